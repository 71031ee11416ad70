package shadow

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// The clock is that of the test.
func TestThrottlePaysForWorkOutsideOfCalls(t *testing.T) {
	for share, want := range map[float64]time.Duration{0.1: 18 * time.Second, 0.5: 2 * time.Second, 1: 0} {
		synctest.Test(t, func(t *testing.T) {
			throttle := newThrottle(share)
			throttle.Worked(500 * time.Millisecond)
			throttle.Worked(1500 * time.Millisecond)
			for _, want := range []time.Duration{want, 0} { // It pays once.
				start := time.Now()
				if err := throttle.Sleep(t.Context(), 0); err != nil {
					t.Fatal(err)
				}
				if got := time.Since(start).Round(time.Microsecond); got != want {
					t.Errorf("with a share of %g it pays %s for 2s, want %s", share, got, want)
				}
			}
		})
	}
}

func TestThrottleSeesThatGoroutinesWaitForAProcessor(t *testing.T) {
	throttle := newThrottle(0.1)
	var stop atomic.Bool
	var working sync.WaitGroup
	for range 4 * runtime.GOMAXPROCS(0) {
		working.Go(func() {
			for !stop.Load() {
			}
		})
	}
	for !throttle.wanted() && t.Context().Err() == nil {
	}
	stop.Store(true)
	working.Wait()
	for throttle.wanted() { // Goroutines of the test runner and of Go come and go.
		runtime.Gosched()
	}
}
