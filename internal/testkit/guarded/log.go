package guarded

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
)

// Log is a handler that keeps records and formats them in String, as a handler may that
// writes in the background: by then the memory of the guest that logged must not be read.
// It is safe for use by several goroutines.
type Log struct {
	opts slog.HandlerOptions
	kept *kept
	// with are the calls of WithAttrs and WithGroup, in order.
	with []func(slog.Handler) slog.Handler
}

type kept struct {
	mu   sync.Mutex
	list []record
}

type record struct {
	slog.Record
	with []func(slog.Handler) slog.Handler
}

// NewLog returns an empty Log of every level. Its text has no times.
func NewLog() *Log {
	return &Log{kept: &kept{}, opts: slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}}
}

// Enabled implements slog.Handler.
func (*Log) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (l *Log) Handle(_ context.Context, r slog.Record) error {
	l.kept.mu.Lock()
	defer l.kept.mu.Unlock()
	l.kept.list = append(l.kept.list, record{r.Clone(), l.with})
	return nil
}

// WithAttrs implements slog.Handler.
func (l *Log) WithAttrs(attrs []slog.Attr) slog.Handler {
	return l.and(func(h slog.Handler) slog.Handler { return h.WithAttrs(attrs) })
}

// WithGroup implements slog.Handler.
func (l *Log) WithGroup(name string) slog.Handler {
	return l.and(func(h slog.Handler) slog.Handler { return h.WithGroup(name) })
}

func (l *Log) and(f func(slog.Handler) slog.Handler) *Log {
	return &Log{opts: l.opts, kept: l.kept, with: append(slices.Clip(l.with), f)}
}

// String returns the records as slog.TextHandler writes them.
func (l *Log) String() string {
	l.kept.mu.Lock()
	defer l.kept.mu.Unlock()
	var b strings.Builder
	for _, r := range l.kept.list {
		var h slog.Handler = slog.NewTextHandler(&b, &l.opts)
		for _, f := range r.with {
			h = f(h)
		}
		_ = h.Handle(context.Background(), r.Record) // A Builder takes everything.
	}
	return b.String()
}
