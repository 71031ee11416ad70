// Package lograte bounds the lines of a log that guests, users or clients can repeat.
package lograte

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Period is the time for which a budget lasts.
const Period = time.Minute

// DefaultBytes is the budget of a component that has no setting of its own for it.
const DefaultBytes = 1 << 20

// LineBytes is what a line costs beside its texts: time, level and names.
const LineBytes = 128

// Budget is the bytes that a source of lines may write in a [Period]: a token bucket, full at
// first. It is safe for use by several goroutines.
type Budget struct {
	bytes int64
	now   func() time.Time

	mu sync.Mutex
	// spent is what is missing in the bucket, at the time since.
	spent   int64
	since   time.Time
	dropped uint64
	// told is when the log was last told that lines are dropped.
	told time.Time
}

// New returns a Budget of some bytes in a Period.
func New(bytes int) *Budget { return &Budget{bytes: int64(bytes), now: time.Now} }

// Take reports whether a line with n bytes of text may be written, and pays for it. If not, the
// line counts as dropped; first is set for the first one in a Period, which the log should be
// told of.
func (b *Budget) Take(n int) (ok, first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	b.refill(now)
	// A line that is longer than the bucket empties it.
	if cost := min(int64(n)+LineBytes, b.bytes); b.spent+cost <= b.bytes {
		b.spent += cost
		return true, false
	}
	b.drop()
	if first = b.told.IsZero() || now.Sub(b.told) >= Period; first {
		b.told = now
	}
	return false, first
}

// refill pays back whole bytes for the time that has passed. The rest of the time counts for the
// next one: of lines that come faster than bytes, each alone is worth none. b.mu is held.
func (b *Budget) refill(now time.Time) {
	// A day refills every bucket, and does not overflow.
	passed := min(max(now.Sub(b.since), 0), 24*time.Hour)
	paid := int64(float64(b.bytes) * (passed.Seconds() / Period.Seconds()))
	if b.spent -= min(paid, b.spent); b.spent == 0 || now.Before(b.since) {
		b.since = now
		return
	}
	b.since = b.since.Add(time.Duration(float64(paid) / float64(b.bytes) * float64(Period)))
}

// Drop counts a line that is not written for another reason.
func (b *Budget) Drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop()
}

func (b *Budget) drop() {
	b.dropped++
	all.Add(1)
}

// all is the number of lines that all budgets have dropped.
var all atomic.Uint64

// AllDropped returns the number of lines that the budgets of the process have dropped.
func AllDropped() uint64 { return all.Load() }

// Dropped returns the number of lines that were dropped.
func (b *Budget) Dropped() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dropped
}

// Logger returns a logger that writes to that of another, nil for nil, as far as each of the
// budgets allows. Once in a Period it says that lines are dropped, and how many were until then.
func Logger(l *slog.Logger, budgets ...*Budget) *slog.Logger {
	if l == nil {
		return nil
	}
	return slog.New(&handler{Handler: l.Handler(), budgets: budgets})
}

type handler struct {
	slog.Handler
	budgets []*Budget
	// more is the length of the attributes that every record gets.
	more int
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	n := len(r.Message) + h.more
	r.Attrs(func(a slog.Attr) bool {
		n += size(a)
		return true
	})
	for _, b := range h.budgets {
		if ok, first := b.Take(n); !ok {
			if !first {
				return nil
			}
			told := slog.NewRecord(r.Time, slog.LevelWarn, "lines are dropped: there are too many of them for one minute", r.PC)
			told.AddAttrs(slog.Uint64("dropped", b.Dropped()), slog.String("line", cut(r.Message)))
			return h.Handler.Handle(ctx, told)
		}
	}
	return h.Handler.Handle(ctx, r)
}

// cut keeps a line that says that others are dropped short.
func cut(message string) string {
	const most = 100
	if len(message) <= most {
		return message
	}
	return fmt.Sprintf("%.*q", most, message)
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := &handler{Handler: h.Handler.WithAttrs(attrs), budgets: h.budgets, more: h.more}
	for _, a := range attrs {
		with.more += size(a)
	}
	return with
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{Handler: h.Handler.WithGroup(name), budgets: h.budgets, more: h.more}
}

// size returns about how many bytes an attribute takes in a line.
func size(a slog.Attr) int {
	n := len(a.Key) + 2
	switch v := a.Value.Resolve(); v.Kind() {
	case slog.KindString:
		return n + len(v.String())
	case slog.KindGroup:
		for _, a := range v.Group() {
			n += size(a)
		}
		return n
	case slog.KindAny:
		return n + len(fmt.Sprint(v.Any()))
	default:
		return n + 16
	}
}
