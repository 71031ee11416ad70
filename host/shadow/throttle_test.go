package shadow

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

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
