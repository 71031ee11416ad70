package sched

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/kubewasm/kubewasm/host"
)

// effort says how much a guest has to do for a cycle and its clones, in fuel, and which
// instances do it. Another instance must first be shown what happened, which may take longer
// than all that it then answers: calls wait for one another instead.
type effort struct {
	// replay is what the steps of the cycle took, as far as another instance must be shown
	// them; spent is what all calls took, these among them.
	replay, spent atomic.Int64

	// mu is held while an instance is taken, so that one that a home is about to take back
	// does not become another home's.
	mu sync.Mutex
	// homes are the instances, and next counts those who wait for one.
	homes []*home
	next  int
}

// home is an instance that has seen the cycle. One call has the home at a time.
type home struct {
	mu     sync.Mutex
	effort *effort
	inst   *host.Instance // nil if it has none of its own yet.
}

// dearReplay is the fuel from which on a replay is weighed, some 100 us of work. Below that,
// any instance will do.
const dearReplay = 1 << 18

// dear reports whether calls should go to the homes: so does the first, whose fuel is not
// known yet.
func (e *effort) dear() bool { return e.spent.Load() == 0 || e.replay.Load() >= dearReplay }

// enter locks a home, of limit at most, and takes its instance. There is one home more than
// before when the answers so far have taken as much as the replays on all of them: so,
// whatever is still to come, replays take no more than the answers do.
func (e *effort) enter(ctx context.Context, pin *host.Pin, limit int) (inst *host.Instance, h *home, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if h = e.free(limit); h == nil {
		h = e.homes[e.next%len(e.homes)]
		e.next++
		e.mu.Unlock()
		h.mu.Lock()
		e.mu.Lock()
	}
	if h.inst != nil {
		inst, err = pin.AcquireAgain(ctx, h.inst)
	} else {
		inst, err = pin.Acquire(ctx)
	}
	if h.inst = nil; err != nil {
		h.mu.Unlock()
		return nil, nil, err
	}
	if !slices.ContainsFunc(e.homes, func(h *home) bool { return h.inst == inst }) {
		h.inst = inst
	}
	return inst, h, nil
}

// free returns a home that it has locked, a new one if that pays off, and nil if there is
// none. e.mu is held.
func (e *effort) free(limit int) *home {
	for _, h := range e.homes {
		if h.mu.TryLock() {
			return h
		}
	}
	if n := len(e.homes); n != 0 && (n >= limit || e.spent.Load() < int64(n+1)*e.replay.Load()) {
		return nil
	}
	h := &home{effort: e}
	h.mu.Lock()
	e.homes = append(e.homes, h)
	return h
}

// instanceOf takes an instance for a call of the cycle, and its home, nil if it has none.
func (p *plugin) instanceOf(c *cycle) (*host.Instance, *home, error) {
	// A call must not wait for the instance that waits for the trial which it belongs to.
	if c.effort == nil || !c.effort.dear() || p.trials.Load() != 0 {
		inst, err := p.instance(c.pinned.pin)
		return inst, nil, err
	}
	return c.effort.enter(p.ctx, c.pinned.pin, p.instances)
}

// left notes that the instance of the home was given back, after a call that took so much
// fuel.
func (h *home) left(fuel int64) {
	h.effort.spent.Add(fuel)
	h.mu.Unlock()
}
