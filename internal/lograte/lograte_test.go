package lograte

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestTake goes through the life of a budget of ten lines.
func TestTake(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	b := New(10 * LineBytes)
	b.now = func() time.Time { return now }
	type result struct{ Written, Told int }
	lines := func(n, bytes int) (r result) {
		for range n {
			ok, first := b.Take(bytes)
			if ok {
				r.Written++
			}
			if first {
				r.Told++
			}
		}
		return r
	}
	for _, step := range []struct {
		name         string
		after        time.Duration
		lines, bytes int
		want         result
	}{
		{"ten are written, and the log is told of the rest", 0, 1000, 0, result{10, 1}},
		{"nothing comes at once", 0, 1000, 0, result{0, 0}},
		{"a tenth of the time brings a line", Period / 10, 1000, 0, result{1, 0}},
		{"after a period the log is told again", Period, 1000, 0, result{10, 1}},
		{"a longer time brings no more", 100 * Period, 1000, 0, result{10, 1}},
		{"a year neither", 365 * 24 * time.Hour, 1000, 0, result{10, 1}},
		{"long lines count by their length", Period, 1000, LineBytes, result{5, 1}},
		{"a line that is longer than the budget takes all of it", Period, 1000, 1 << 40, result{1, 1}},
		{"a clock that goes back brings nothing", -time.Hour, 1000, 0, result{0, 0}},
	} {
		now = now.Add(step.after)
		if diff := cmp.Diff(step.want, lines(step.lines, step.bytes)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
}

// TestTakeInAFlood holds that a budget is refilled while lines come faster than bytes do: each
// brings the time of a part of a byte.
func TestTakeInAFlood(t *testing.T) {
	for _, every := range []time.Duration{time.Microsecond * 100, time.Millisecond, 29 * time.Millisecond, time.Second} {
		now := time.Unix(1_800_000_000, 0)
		b := New(10 * LineBytes) // A byte in 47 ms.
		b.now = func() time.Time { return now }
		written := 0
		for end := now.Add(2 * Period); now.Before(end); now = now.Add(every) {
			if ok, _ := b.Take(0); ok {
				written++
			}
		}
		if written < 29 || written > 30 {
			t.Errorf("a line each %s: %d in two periods are written, want the 10 of each and the 10 at first", every, written)
		}
	}
}

// TestLogger holds that each kind of attribute counts, and that what a logger derives has the
// same budget.
func TestLogger(t *testing.T) {
	long := strings.Repeat("x", 1<<10)
	for name, log := range map[string]func(l *slog.Logger){
		"a message":             func(l *slog.Logger) { l.Info(long) },
		"a text":                func(l *slog.Logger) { l.Info("line", "key", long) },
		"a key":                 func(l *slog.Logger) { l.Info("line", slog.String(long, "value")) },
		"an error":              func(l *slog.Logger) { l.Info("line", "err", errors.New(long)) },
		"a group":               func(l *slog.Logger) { l.Info("line", slog.Group("guest", slog.String("key", long))) },
		"any value":             func(l *slog.Logger) { l.Info("line", "data", map[string]any{"key": []any{long}}) },
		"an attribute of all":   func(l *slog.Logger) { l.With("key", long).Info("line") },
		"one in a group of all": func(l *slog.Logger) { l.WithGroup("guest").With("key", long).Info("line") },
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			b := New(8 << 10)
			limited := Logger(slog.New(slog.NewTextHandler(&out, nil)), b)
			for range 1000 {
				log(limited)
			}
			lines := strings.Count(out.String(), "\n")
			if written := 1000 - int(b.Dropped()); lines != written+1 || written < 5 || written > 8 {
				t.Errorf("%d lines are in the log, %d are dropped", lines, b.Dropped())
			}
			if told := strings.Count(out.String(), "there are too many of them"); told != 1 {
				t.Errorf("the log says %d times that lines are dropped", told)
			}
			if len(out.String()) > 10<<10 {
				t.Errorf("the log has %d bytes", len(out.String()))
			}
		})
	}
	if Logger(nil, New(1)) != nil {
		t.Error("there is a logger where there was none")
	}
}

// TestLoggerWithSeveralBudgets holds that a source that has used its own budget up does not take
// that of all.
func TestLoggerWithSeveralBudgets(t *testing.T) {
	var out strings.Builder
	l, all := slog.New(slog.NewTextHandler(&out, nil)), New(64<<10)
	for source := range 3 {
		one := Logger(l, New(1<<10), all)
		for n := range 10_000 {
			one.Info(fmt.Sprintf("source %d, line %d", source, n))
		}
	}
	for source := range 3 {
		if !strings.Contains(out.String(), fmt.Sprintf("source %d, line 0", source)) {
			t.Errorf("source %d is not in the log:\n%s", source, out.String())
		}
	}
}
