package shadow

import (
	"context"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

const (
	// burstTime is the time that throttled calls work between two sleeps while processors are free.
	// A goroutine that wakes or goes to sleep makes others move to another processor, away from
	// their data, so it should do that rarely.
	burstTime = 5 * time.Millisecond
	// lateTime is the maximum delay of the end of a sleep while processors are free. Timers of Go
	// are up to a millisecond late.
	lateTime = 2 * time.Millisecond
)

// throttle bounds the share of a processor that the calls of a plugin and its compilation take
// together. A guest
// works for 5 ms and sleeps for so long that its share is kept. While a goroutine waits for a
// processor, or its sleeps end late, it works for 0.1 ms. It is for one goroutine: the plugin has
// one instance.
type throttle struct {
	share float64
	// began is the begin of work that is not yet in worked, the time since the last sleep.
	began  time.Time
	worked time.Duration
	late   atomic.Int64
	// runnable is the number of goroutines that wait for a processor.
	runnable [1]metrics.Sample
}

// newThrottle returns a throttle for a share, more than 0 and at most 1.
func newThrottle(share float64) *throttle {
	return &throttle{share: share, runnable: [1]metrics.Sample{{Name: "/sched/goroutines/runnable:goroutines"}}}
}

// Begin begins work.
func (t *throttle) Begin() { t.began = time.Now() }

// Rest adds the work since Begin, or the last Rest, and sleeps if that is due. The error is that
// of ctx if it ends.
func (t *throttle) Rest(ctx context.Context) error {
	if t.began.IsZero() || t.share >= 1 {
		return ctx.Err()
	}
	now := time.Now()
	t.worked += now.Sub(t.began)
	t.began = now
	if t.worked < burstTime && t.Late() < lateTime && !t.wanted() {
		return ctx.Err()
	}
	return t.Sleep(ctx, 0)
}

// Worked adds work outside of calls, which the next Sleep pays for.
func (t *throttle) Worked(d time.Duration) { t.worked += d }

// wanted reports whether a goroutine waits for a processor. It takes 0.06 µs.
func (t *throttle) wanted() bool {
	metrics.Read(t.runnable[:])
	v := t.runnable[0].Value
	return v.Kind() == metrics.KindUint64 && v.Uint64() != 0
}

// Sleep ends the work. It sleeps for as long as the share requires, but at least for least. The
// error is that of ctx if it ends.
func (t *throttle) Sleep(ctx context.Context, least time.Duration) error {
	start, pause := time.Now(), max(least, time.Duration(float64(t.worked)*(1/t.share-1)))
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	t.began, t.worked = time.Now(), 0
	if t.share < 1 {
		t.late.Store(int64(t.began.Sub(start) - pause))
	}
	return nil
}

// Late returns the delay of the last sleep: other work has the processors. It is 0 for a share of
// 1, which is not limited.
func (t *throttle) Late() time.Duration { return time.Duration(t.late.Load()) }
