package sched

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/objects"
	"github.com/kubewasm/kubewasm/sched/internal/wasmextension"
)

// instance is what the plugin knows of an instance of its guest.
type instance struct {
	// seen is what happened here of the cycle in each slot.
	seen [cycleSlots + cloneSlots]seen
	call call
	// home is that of the cycle that the call is of, nil if it has none.
	home *home
	// peer is the call as a guest of package wasmextension knows it.
	peer wasmextension.Call
	// buffer is what the guest reads last: scores, names, messages.
	buffer []byte
	// part is the part of an object that it read last.
	part lastPart
}

// lastPart is the part of an object that a guest asked for last: it may ask once more,
// with a buffer that is large enough. Its bytes are the instance's, until it asks for
// another part.
type lastPart struct {
	of     *objects.Object
	number uint32
	fields uint64
	bytes  []byte
}

func (l *lastPart) get(of *objects.Object, number uint32, fields uint64) []byte {
	if l.of != of || l.number != number || l.fields != fields {
		l.of, l.number, l.fields = of, number, fields
		l.bytes = of.AppendPart(l.bytes[:0], number, fields)
	}
	return l.bytes
}

// cycleInstances are the instances that serve a cycle and its clones. Another instance must
// first replay the cycle, which may take longer than all calls that it then serves: calls wait
// for one another instead.
type cycleInstances struct {
	// replay is the fuel of the steps of the cycle that another instance has to replay, and
	// spent that of all calls, these among them.
	replay, spent atomic.Int64

	// mu is held while an instance is taken, so that one that a home is about to take back
	// does not become another home's.
	mu sync.Mutex
	// homes are the instances, and next counts the callers that wait for one.
	homes []*home
	next  int
}

// home is an instance that has seen the cycle. One call has the home at a time.
type home struct {
	mu   sync.Mutex
	of   *cycleInstances
	inst *host.Instance // nil if it has none of its own yet.
}

// minReplay is the fuel of a replay that is worth avoiding, some 100 us of work. Below that,
// any instance serves.
const minReplay = 1 << 18

// worthwhile reports whether calls should go to the homes. The first does, whose fuel is not
// known yet.
func (e *cycleInstances) worthwhile() bool {
	return e.spent.Load() == 0 || e.replay.Load() >= minReplay
}

// enter locks one of at most limit homes and takes its instance. It adds a home when the calls
// so far have taken as much fuel as the replays on all homes: so replays never take more than
// the other calls do.
func (e *cycleInstances) enter(ctx context.Context, pin *host.Pin, limit int) (inst *host.Instance, h *home, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if h = e.free(limit); h == nil {
		h = e.homes[e.next%len(e.homes)]
		e.next++
		e.mu.Unlock()
		h.mu.Lock()
		e.mu.Lock()
	}
	inst, err = pin.Acquire(ctx, h.inst)
	if h.inst = nil; err != nil {
		h.mu.Unlock()
		return nil, nil, err
	}
	if !slices.ContainsFunc(e.homes, func(h *home) bool { return h.inst == inst }) {
		h.inst = inst
	}
	return inst, h, nil
}

// free returns a home that it has locked, a new one if that is due, and nil if there is
// none. e.mu is held.
func (e *cycleInstances) free(limit int) *home {
	for _, h := range e.homes {
		if h.mu.TryLock() {
			return h
		}
	}
	if n := len(e.homes); n != 0 && (n >= limit || e.spent.Load() < int64(n+1)*e.replay.Load()) {
		return nil
	}
	h := &home{of: e}
	h.mu.Lock()
	e.homes = append(e.homes, h)
	return h
}

// instanceOf takes an instance for a call of the cycle, and its home, nil if it has none.
func (p *plugin) instanceOf(c *cycle) (*host.Instance, *home, error) {
	// A call must not wait for the instance that waits for the trial which it belongs to.
	if c.instances == nil || !c.instances.worthwhile() || p.trials.Load() != 0 {
		inst, err := p.instance(c.pinned.pin)
		return inst, nil, err
	}
	return c.instances.enter(p.ctx, c.pinned.pin, p.instances)
}

// left notes that the instance of the home was given back, after a call that took so much
// fuel.
func (h *home) left(fuel int64) {
	h.of.spent.Add(fuel)
	h.mu.Unlock()
}

// instance takes an instance of the version of a cycle. During a trial it waits for trialWait
// at most: the only instance that is left may be the one that waits for the trial.
func (p *plugin) instance(pin *host.Pin) (*host.Instance, error) {
	if p.trials.Load() == 0 {
		return pin.Acquire(p.ctx, nil)
	}
	ctx, cancel := context.WithTimeout(p.ctx, trialWait)
	defer cancel()
	return pin.Acquire(ctx, nil)
}
