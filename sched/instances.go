package sched

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/objects"
	"github.com/kubewasm/kubewasm/sched/internal/wasmextension"
)

// instance is the plugin's state of an instance of its guest.
type instance struct {
	// seen is the part of the cycle in each slot that the instance has seen, and seenMore that in
	// further slots.
	seen     [leastSlots + cloneSlots]seen
	seenMore map[uint32]*seen
	call     call
	// shared is the instance of the cycle on which the call runs, nil if the call belongs to no
	// cycle.
	shared *cycleInstance
	// bound is set if the call is one of a binding, of which there are fewer than instances.
	bound bool
	// peer is the call for a guest of package wasmextension.
	peer wasmextension.Call
	// podsOn is the memory for the Pods on a node.
	podsOn []*corev1.Pod
	// buffer holds the data that the guest reads last: scores, names, messages.
	buffer []byte
	// counted is the last question about Pods.
	counted podQuestion
	// part is the part of an object that the guest read last.
	part lastPart
	// last is the last status with reasons, and lastOf the text of them. Most are repeated.
	last   *Status
	lastOf string
}

// seenAt returns the part of the cycle in a slot that the instance has seen.
func (i *instance) seenAt(slot uint32) *seen {
	if int(slot) < len(i.seen) {
		return &i.seen[slot]
	}
	s := i.seenMore[slot]
	if s == nil {
		if i.seenMore == nil {
			i.seenMore = map[uint32]*seen{}
		}
		s = new(seen)
		i.seenMore[slot] = s
	}
	return s
}

// beginOnNode begins a call of Filter or Score.
func (i *instance) beginOnNode(c *Cycle, node *objects.Object, info NodeInfo) {
	a := &i.call
	a.plain, a.pod, a.of, a.node, a.info, a.snapshot = true, c.pod, c.of, node, info, true
}

// beginOnEvent begins a call about an event. It is plain unless the function has results of its own.
func (i *instance) beginOnEvent(f abi.Function, e *eventCall) {
	a := &i.call
	a.plain, a.pod, a.of, a.other, a.node = f == abi.QueueingHint, e.pod, e.of, e.oldObj, e.newObj
}

// end ends a call. If the guest has asked for nothing else, only its arguments are set; to clear
// all of it would cost a tenth of a Filter.
func (i *instance) end() {
	if a := &i.call; a.plain && !a.own {
		a.plain, a.wide, a.pod, a.of, a.node, a.other, a.info, a.snapshot = false, false, nil, nil, nil, nil, nil, false
		return
	}
	i.call, i.peer = call{}, wasmextension.Call{}
}

// lastPart is the part of an object that a guest asked for last: it may ask again, with a buffer
// that is large enough. Its bytes belong to the instance, until it asks for a different part.
type lastPart struct {
	of     *objects.Object
	number uint32
	fields uint64
	bytes  []byte
}

// acquire takes an instance that has seen the first n steps of h, the history of a cycle, for
// a call in phase. Hand it to leave in the end.
func (p *Plugin) acquire(within context.Context, c *Cycle, h *history, n int, phase phase) (inst *host.Instance, i *instance, err error) {
	bound := false
	switch {
	case c.peer != nil:
		inst, err = p.held(within, c, phase)
	case phase == binding:
		bound, err = p.mayBind(within)
	}
	var shared *cycleInstance
	switch e := c.instances; {
	case inst != nil || err != nil:
	case c.carried != nil && (phase == binding || c.stage.Load() != chooses):
		if inst, err = p.acquireCarried(within, c, h); inst == nil && err == nil {
			inst, err = c.pinned.pin.Acquire(within, nil)
		}
	case p.trials.Load() != 0:
		// The only instance left may be the one that waits for the trial: wait for trialWait at
		// most, and for none of the cycle's.
		ctx, cancel := context.WithTimeout(within, trialWait)
		defer cancel()
		inst, err = c.pinned.pin.Acquire(ctx, nil)
	case e != nil && (e.spent.Load() == 0 || e.replay.Load() >= minReplay):
		// The first call is one of those: its fuel is not known yet.
		inst, shared, err = e.acquire(within, c.pinned.pin, p.instances)
	default:
		inst, err = c.pinned.pin.Acquire(within, nil)
	}
	if err != nil {
		p.bound(bound)
		return nil, nil, err
	}
	i = inst.State().(*instance)
	i.shared, i.bound = shared, bound
	if s := p.seenOf(i, h.ref); s.ref != h.ref || s.steps < n {
		if err := p.replay(within, inst, i, h, n, phase == binding || c.stage.Load() == hasNode); err != nil {
			if phase == scheduling {
				c.life.charge(abi.CloneCycle, inst.FuelUsed())
			}
			p.leave(inst, i)
			return nil, nil, err
		}
		if n == len(h.steps) && c.stage.Load() != chooses {
			c.carried.seenBy(inst, h.ref.Slot())
		}
	}
	return inst, i, nil
}

// leave gives an instance back.
func (p *Plugin) leave(inst *host.Instance, i *instance) {
	i.end()
	shared, bound := i.shared, i.bound
	if shared == nil && !bound {
		inst.Release()
		return
	}
	fuel := inst.FuelUsed()
	i.shared, i.bound = nil, false
	if inst.Release(); shared != nil {
		shared.unlock(fuel)
	}
	p.bound(bound)
}

// bound undoes mayBind.
func (p *Plugin) bound(bound bool) {
	if bound {
		<-p.binding
	}
}

// cycleInstances are the instances that serve a cycle and its clones. Another instance must first
// replay the cycle, which may take longer than all calls that it then serves: so calls wait for
// each other instead.
type cycleInstances struct {
	// replay is the fuel of the steps of the cycle that another instance has to replay, and
	// spent that of all calls, these among them.
	replay, spent atomic.Int64

	// mu is held while an instance is acquired, so that no two elements of all have the same.
	mu sync.Mutex
	// all are the instances, and next counts the callers that wait for one.
	all  []*cycleInstance
	next int
}

// cycleInstance is an instance that has seen the cycle. A call locks it.
type cycleInstance struct {
	mu   sync.Mutex
	of   *cycleInstances
	inst *host.Instance // nil while it has none.
}

// minReplay is the fuel of a replay that is worth avoiding, some 100 us of work. Below that,
// any instance serves.
const minReplay = 1 << 18

// acquire locks one of at most limit instances and acquires it. It adds one when the calls so
// far have taken as much fuel as the replays on all of them: so replays never take more than
// the other calls do.
func (e *cycleInstances) acquire(ctx context.Context, pin *host.Pin, limit int) (inst *host.Instance, c *cycleInstance, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c = e.lockFree(limit); c == nil {
		c = e.all[e.next%len(e.all)]
		e.next++
		e.mu.Unlock()
		c.mu.Lock()
		e.mu.Lock()
	}
	inst, err = pin.Acquire(ctx, c.inst)
	if c.inst = nil; err != nil {
		c.mu.Unlock()
		return nil, nil, err
	}
	if !slices.ContainsFunc(e.all, func(other *cycleInstance) bool { return other.inst == inst }) {
		c.inst = inst
	}
	return inst, c, nil
}

// lockFree locks a free instance, or a new one if that is due, and returns it. It returns nil if
// there is none. e.mu is held.
func (e *cycleInstances) lockFree(limit int) *cycleInstance {
	for _, c := range e.all {
		if c.mu.TryLock() {
			return c
		}
	}
	if n := len(e.all); n != 0 && (n >= limit || e.spent.Load() < int64(n+1)*e.replay.Load()) {
		return nil
	}
	c := &cycleInstance{of: e}
	c.mu.Lock()
	e.all = append(e.all, c)
	return c
}

// unlock ends a call that took so much fuel. Release the instance before.
func (c *cycleInstance) unlock(fuel int64) {
	c.of.spent.Add(fuel)
	c.mu.Unlock()
}
