package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// pool is a bounded stack of idle instances. Last in, first out: the instance
// that ran last has its memory in the processor's caches.
//
// It is not a sync.Pool, which drops instances without closing them: wazero
// keeps an instance until it is closed.
type pool struct {
	mu    sync.Mutex
	idle  []*Instance
	count int // Instances that exist or are being made.
	limit int
	// waiters are the callers that found no instance, oldest first. Each gets
	// an instance, or nil for the leave to make one.
	waiters []chan *Instance
	closed  bool
	// discard closes an instance that came back too late to be used.
	discard func(*Instance)
	// drained is closed when the pool is closed and the last instance is gone.
	drained chan struct{}
}

func newPool(limit int, discard func(*Instance)) *pool {
	return &pool{limit: limit, idle: make([]*Instance, 0, limit), discard: discard, drained: make(chan struct{})}
}

// acquire takes an idle instance, or nil when the caller may make one; it must
// then call either put or forget. It waits while the limit is reached.
func (p *pool) acquire(ctx context.Context) (*Instance, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, ErrClosed
	}
	if n := len(p.idle); n > 0 {
		inst := p.idle[n-1]
		p.idle[n-1] = nil
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		return inst, nil
	}
	if p.count < p.limit {
		p.count++
		p.mu.Unlock()
		return nil, nil
	}
	return p.wait(ctx)
}

// errNobody says that there is no other instance to wait for.
var errNobody = errors.New("the plugin has no other instance")

// waitInstead is for a caller that was given leave to make an instance and could
// not, for want of memory: it gives the leave up and waits for an instance of
// another caller, or for the leave to try again. The error is [errNobody] if there
// is none.
func (p *pool) waitInstead(ctx context.Context) (*Instance, error) {
	p.mu.Lock()
	if p.count == 1 || p.closed {
		// Whoever waits may try, and find the same.
		p.mu.Unlock()
		p.forget()
		return nil, errNobody
	}
	p.count--
	if n := len(p.idle); n > 0 {
		inst := p.idle[n-1]
		p.idle[n-1] = nil
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		return inst, nil
	}
	return p.wait(ctx)
}

// wait waits for an instance, or for the leave to make one. p.mu is held, and
// released.
func (p *pool) wait(ctx context.Context) (*Instance, error) {
	wait := make(chan *Instance, 1)
	p.waiters = append(p.waiters, wait)
	p.mu.Unlock()

	select {
	case inst, ok := <-wait:
		if !ok {
			return nil, ErrClosed
		}
		return inst, nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	for i, w := range p.waiters {
		if w == wait {
			p.waiters = append(p.waiters[:i], p.waiters[i+1:]...)
			p.mu.Unlock()
			return nil, fmt.Errorf("%w: %w", ErrSaturated, ctx.Err())
		}
	}
	p.mu.Unlock()
	// It was served between the end of ctx and the lock: pass it on.
	if inst, ok := <-wait; !ok {
		return nil, ErrClosed
	} else if inst != nil {
		p.put(inst)
	} else {
		p.forget()
	}
	return nil, fmt.Errorf("%w: %w", ErrSaturated, ctx.Err())
}

// put gives an instance back that may run again.
func (p *pool) put(inst *Instance) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		p.discard(inst)
		p.forget()
		return
	}
	if w := p.popWaiter(); w != nil {
		w <- inst
	} else {
		p.idle = append(p.idle, inst)
	}
	p.mu.Unlock()
}

// forget says that an instance is gone, or was not made after all.
func (p *pool) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.popWaiter(); w != nil {
		w <- nil // The leave to make one passes on; count stays.
		return
	}
	p.count--
	p.checkDrained()
}

// close ends the pool: it discards the idle instances, turns the waiters away
// and leaves the instances in use to their callers. drained is closed after the
// last of them came back.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	for _, inst := range p.idle {
		p.discard(inst)
	}
	p.count -= len(p.idle)
	p.idle = nil
	for _, w := range p.waiters {
		close(w)
	}
	p.waiters = nil
	p.checkDrained()
}

func (p *pool) popWaiter() chan *Instance {
	if len(p.waiters) == 0 {
		return nil
	}
	w := p.waiters[0]
	p.waiters = p.waiters[1:]
	return w
}

func (p *pool) checkDrained() {
	if p.closed && p.count == 0 {
		close(p.drained)
	}
}
