package main

import (
	"context"
	"sync"
	"time"

	"github.com/kubewasm/kubewasm/host"
)

// fuelCounter adds up the calls of a guest.
type fuelCounter struct {
	mu    sync.Mutex
	total int64
	took  time.Duration
	// failure is the error of the last call, nil if it returned.
	failure error
}

// Called implements host.Observer.
func (c *fuelCounter) Called(_ context.Context, call host.CallEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total += call.Fuel
	c.took += call.Duration
	c.failure = call.Err
}

// Built implements host.Observer.
func (*fuelCounter) Built(context.Context, host.BuildEvent) {}

// CacheHits implements host.Observer.
func (*fuelCounter) CacheHits(string, string, uint64) {}

// Restarted implements host.Observer.
func (*fuelCounter) Restarted(string, bool) {}

// Refused implements host.Observer.
func (*fuelCounter) Refused(context.Context, string, error) {}

// take returns the sums since the last take.
func (c *fuelCounter) take() (fuel int64, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fuel, took = c.total, c.took
	c.total, c.took, c.failure = 0, 0, nil
	return fuel, took
}

// failed returns the error of the last call since the last take, nil if it returned.
func (c *fuelCounter) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failure
}
