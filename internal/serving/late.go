package serving

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// waitShare divides the time of a request into the time for which it waits.
	waitShare = 100
	// maxCalls bounds the calls of all policies that outlive their requests, and maxCallsOfPolicy
	// those of one policy.
	maxCalls         = 64
	maxCallsOfPolicy = 8
	// maxBytes bounds the memory of their requests.
	maxBytes = 32 << 20
)

// running has a slot for each running call of a slow policy. The other half of the processors is
// for calls that requests wait for.
var running = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))

// all counts the calls that outlive their requests.
var all struct {
	sync.Mutex
	calls int
	bytes int64
}

// Monitor holds the state of a policy that only monitors. The zero value is ready to use.
//
// A request waits for such a policy a hundredth of its time, and not at all if the policy was slow
// the last time. Its verdict then comes after the answer. The calls that outlive their requests are
// bounded in number, in bytes, and in processors.
type Monitor struct {
	// slow is set if the last call took longer than the wait of a request.
	slow atomic.Bool
	// calls is the number of the policy's calls counted in all, and guarded by its lock.
	calls int
}

// Call is a call of a policy.
type Call struct {
	policy *Monitor
	bytes  int64
	wait   time.Duration // 0 means no limit.
	slow   bool
	done   chan struct{}
	cancel context.CancelFunc
	// late is set if the request is answered first, and dropped if the call may not continue after
	// that.
	late, dropped atomic.Bool
	// mu guards ended and free, which removes the call from all.
	mu    sync.Mutex
	ended bool
	free  func()
}

// Start calls f on a new goroutine, for a request with the given number of bytes. It returns nil if
// too many calls outlive their requests, so that the call is dropped. If the call is dropped later,
// it calls dropped. f must not use the caller's ctx. If ctx has no deadline, the request waits for
// f.
func (p *Monitor) Start(ctx context.Context, bytes int64, f func(ctx context.Context, c *Call), dropped func()) *Call {
	c := &Call{policy: p, bytes: bytes, done: make(chan struct{})}
	deadline, ok := ctx.Deadline()
	if !ok {
		ctx, c.cancel = context.WithCancel(ctx)
		go c.run(ctx, f)
		return c
	}
	c.wait = time.Until(deadline) / waitShare
	if p.slow.Load() {
		c.slow = true
		if !c.outlive(ctx) {
			return nil
		}
	}
	ctx, c.cancel = context.WithDeadline(context.WithoutCancel(ctx), deadline)
	if !c.slow {
		go c.run(ctx, f)
		return c
	}
	go func() {
		select {
		case running <- struct{}{}:
			defer func() { <-running }()
			c.run(ctx, f)
		case <-ctx.Done():
			c.end()
			dropped()
		}
	}()
	return c
}

func (c *Call) run(ctx context.Context, f func(ctx context.Context, c *Call)) {
	start := time.Now()
	defer c.end()
	f(ctx, c)
	if c.wait != 0 {
		c.policy.slow.Store(time.Since(start) > c.wait)
	}
}

// end ends the call.
func (c *Call) end() {
	c.cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended = true; c.free != nil {
		c.free()
	}
	close(c.done)
}

// Late reports whether the request was answered without the call.
func (c *Call) Late() bool { return c.late.Load() }

// Dropped reports whether the call was ended because too many calls would have outlived their
// requests.
func (c *Call) Dropped() bool { return c.dropped.Load() }

// Wait waits for the call for the time allowed to a request, and reports whether it has ended. If
// it has not, the call continues without the request, or is dropped.
func (c *Call) Wait(ctx context.Context) bool {
	if c.wait == 0 {
		<-c.done
		return true
	}
	if !c.slow {
		timer := time.NewTimer(c.wait)
		defer timer.Stop()
		select {
		case <-c.done:
		case <-timer.C:
		}
	}
	select {
	case <-c.done:
		return true
	default:
	}
	if c.late.Store(true); c.slow {
		return false // Counted by Start.
	}
	c.policy.slow.Store(true) // Set before the call ends, so that the next request does not wait either.
	if !c.outlive(ctx) {
		c.dropped.Store(true)
		c.cancel()
	}
	return false
}

// outlive counts the call as one that outlives its request, and reports whether it may.
func (c *Call) outlive(ctx context.Context) bool {
	all.Lock()
	if all.calls >= maxCalls || c.policy.calls >= maxCallsOfPolicy || all.calls > 0 && all.bytes+c.bytes > maxBytes {
		all.Unlock()
		return false
	}
	all.calls, all.bytes, c.policy.calls = all.calls+1, all.bytes+c.bytes, c.policy.calls+1
	all.Unlock()
	leave := func() {
		all.Lock()
		all.calls, all.bytes, c.policy.calls = all.calls-1, all.bytes-c.bytes, c.policy.calls-1
		all.Unlock()
	}
	body, ok := Keep(ctx, 0)
	if !ok {
		leave()
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		body()
		leave()
		return true
	}
	c.free = func() {
		body()
		leave()
	}
	return true
}
