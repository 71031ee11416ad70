package host

import (
	"context"
	"sync/atomic"
	"time"
)

// backgroundSlice is the fuelSlice of a guest that is throttled: about 0.1 ms. A guest keeps a
// processor from others until its slice is used up.
const backgroundSlice = fuelSlice / 10

// Throttle bounds the share of a processor that the calls of a plugin take together. A guest
// gives way about every 0.1 ms, and sleeps for so long that its share is kept. It is for one
// goroutine: the plugin has one instance.
type Throttle struct {
	share float64
	began time.Time
	late  atomic.Int64
}

// NewThrottle returns a Throttle for a share, more than 0 and at most 1.
func NewThrottle(share float64) *Throttle { return &Throttle{share: share} }

// Begin begins work.
func (t *Throttle) Begin() { t.began = time.Now() }

// Rest sleeps for the work since Begin, or the last Rest. The error is that of ctx if it ends.
func (t *Throttle) Rest(ctx context.Context) error {
	if t.began.IsZero() || t.share >= 1 {
		return ctx.Err()
	}
	start := time.Now()
	pause := time.Duration(float64(start.Sub(t.began)) * (1/t.share - 1))
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	t.began = time.Now()
	t.late.Store(int64(t.began.Sub(start) - pause))
	return nil
}

// Late returns by how much the last sleep was too long: other work has the processors.
func (t *Throttle) Late() time.Duration { return time.Duration(t.late.Load()) }
