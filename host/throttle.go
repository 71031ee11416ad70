package host

import (
	"context"
	"sync/atomic"
	"time"
)

// backgroundSlice is the fuelSlice of a guest that is throttled: about 0.1 ms. A guest keeps a
// processor from others until its slice is used up.
const backgroundSlice = fuelSlice / 10

const (
	// burstTime is how long throttled calls work between two sleeps while processors are free.
	// A goroutine that wakes or goes to sleep makes others move to another processor, where
	// their data is not: it does so rarely.
	burstTime = time.Millisecond
	// lateTime is how late a sleep may end while processors are free. Timers of Go are up to a
	// millisecond late.
	lateTime = 2 * time.Millisecond
)

// Throttle bounds the share of a processor that the calls of a plugin take together. A guest
// works for a millisecond and sleeps for so long that its share is kept; while its sleeps end late,
// it works for 0.1 ms. It is for one goroutine: the plugin has one instance.
type Throttle struct {
	share float64
	// began is the begin of work that worked, the time since the last sleep, lacks.
	began  time.Time
	worked time.Duration
	late   atomic.Int64
}

// NewThrottle returns a Throttle for a share, more than 0 and at most 1.
func NewThrottle(share float64) *Throttle { return &Throttle{share: share} }

// Begin begins work.
func (t *Throttle) Begin() { t.began = time.Now() }

// Rest adds the work since Begin, or the last Rest, and sleeps if that is due. The error is that
// of ctx if it ends.
func (t *Throttle) Rest(ctx context.Context) error {
	if t.began.IsZero() || t.share >= 1 {
		return ctx.Err()
	}
	start := time.Now()
	t.worked += start.Sub(t.began)
	t.began = start
	if t.worked < burstTime && t.Late() < lateTime {
		return ctx.Err()
	}
	pause := time.Duration(float64(t.worked) * (1/t.share - 1))
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	t.began, t.worked = time.Now(), 0
	t.late.Store(int64(t.began.Sub(start) - pause))
	return nil
}

// Late returns by how much the last sleep was too long: other work has the processors.
func (t *Throttle) Late() time.Duration { return time.Duration(t.late.Load()) }
