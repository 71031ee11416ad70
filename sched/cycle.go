package sched

import (
	"context"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/objects"
)

// Cycle is the scheduling of one Pod, or of a group of Pods, as a plugin sees it. The
// framework keeps it in its cycle state.
type Cycle struct {
	// pinned is the version of the guest that the cycle began on.
	pinned *pinned
	pod    *objects.Object
	// of is the Pod that the cycle is for, nil for a group.
	of *corev1.Pod
	// state is the state after the last step, for the result cache.
	state cycleState
	// history is the history of the cycle so far.
	history atomic.Pointer[history]
	// clone is set if the cycle was cloned from another.
	clone bool
	life  life
	// binding is the budget of the binding of the Pod.
	binding bindingBudget
	// instances are those of the cycle and its clones, nil if there is nothing to replay.
	instances *cycleInstances
	// carried is nil unless the guest has functions of binding that may use its state.
	carried *carried
	stage   atomic.Int32
	// waited is set if the guest has had the Pod wait in Permit.
	waited atomic.Bool
	// peer is nil unless the guest is of package wasmextension.
	peer *peerCycle
	// told is set once a node that the guest rejects was logged, in the mode Monitor.
	told atomic.Bool
	// recorded is the record of the calls of the cycle, nil unless it is to be repeated.
	recorded *recordedCycle
	// attempt is nil if the guest registers for no event about a named resource.
	attempt *attempt
	// nodes are the nodes passed to PreFilter, nil without PreFilter. newCount is the number of
	// those not seen before, and newNodes adds them to the store once there are many.
	nodes    Nodes
	newCount atomic.Int32
	newNodes atomic.Pointer[newNodes]
}

// history is the calls that a guest must have seen before it can go on with a cycle. An instance
// that has seen some of them gets the others replayed.
type history struct {
	ref   abi.Ref
	steps []step
	// shared is set when a clone of the cycle has the same ref: the next step of either
	// needs another ref. It belongs to all cycles that have the ref.
	shared *atomic.Bool
	// base is the history of the ref that this one replaced, nil for the first. Nothing is added to
	// it any more. Its steps are the first ones of this.
	base *history
}

// step is a call that changed the guest's state of the cycle.
type step struct {
	function abi.Function
	pod      *objects.Object
	of       *corev1.Pod
	other    *objects.Object // The Pod that was added or removed.
	node     *objects.Object
	info     NodeInfo
	nodes    Nodes
	nodeName string
	// first is the result of the first run.
	first *firstRun
}

// The stages of a cycle: from Reserve on its state is kept, and nodes may change once the Pod is
// placed.
const (
	chooses int32 = iota
	reserves
	hasNode
)

// phase is a part of a cycle. It determines the objects of the scheduler that a call may use.
type phase uint8

const (
	// scheduling is the time in which the scheduler's snapshot does not change.
	scheduling phase = iota
	// binding is the time afterwards, in which other Pods are scheduled.
	binding
)

// For reports whether the cycle is that of a Pod or of a copy of it, such as the one that is bound.
// pod is nil for a group.
func (c *Cycle) For(pod *corev1.Pod) bool {
	return c.of == pod || c.of != nil && pod != nil && c.of.UID == pod.UID && c.of.Name == pod.Name && c.of.Namespace == pod.Namespace
}

// Clone returns a copy. Later changes of the one are not seen by the other: preemption tries out
// the removal of different Pods on clones, on several goroutines.
func (c *Cycle) Clone() *Cycle {
	h := c.history.Load()
	clone := &Cycle{pinned: c.pinned, pod: c.pod, of: c.of, state: c.state, clone: true, instances: c.instances, attempt: c.attempt}
	clone.life.Context, clone.life.of = c.life.Context, &c.life
	if c.peer != nil {
		clone.peer, h = c.peer.clone(h)
	} else {
		h.shared.Store(true)
	}
	clone.history.Store(h)
	return clone
}

// Begin begins the cycle of a Pod, with PreFilter as its first call. pod is nil for a group.
func (p *Plugin) Begin(pod *corev1.Pod) *Cycle {
	p.objects.Advance()
	c := &Cycle{pinned: p.pin(), of: pod, state: p.cache.begin(p.label, p.observer), attempt: p.attempt()}
	if c.pinned.apart {
		c.state = 0
	}
	c.life.Context, c.life.limit = p.ctx, p.cycleFuel
	c.binding.Context, c.binding.limit = p.ctx, p.cycleFuel
	if b := &p.background; b.shadow.Shadow() != nil || b.profile.Shadow() != nil {
		c.recorded = b.begin(p, pod)
	}
	if pod != nil {
		c.pod = p.objects.Pod(pod)
	}
	if p.functions.Has(abi.PreFilter) && pod != nil && !p.peer {
		c.instances = &cycleInstances{}
	}
	if p.peer {
		c.peer = &peerCycle{refs: &p.cycles}
	}
	ref := p.cycles.next()
	if p.carries() && pod != nil {
		c.carried = &carried{slots: &p.cycles, slot: ref.Slot()}
	}
	c.history.Store(&history{ref: ref, shared: new(atomic.Bool)})
	return c
}

// Resume begins the cycle of a Pod whose PreFilter the scheduler does not call: a guest with
// PreFilter still sees it before any other call. pod is nil for a group.
func (p *Plugin) Resume(pod *corev1.Pod) *Cycle {
	c := p.Begin(pod)
	if pod != nil && p.functions.Has(abi.PreFilter) {
		p.addStep(c, step{function: abi.PreFilter, pod: c.pod, of: pod})
	}
	return c
}

// addStep adds a step to the history of a cycle.
func (p *Plugin) addStep(c *Cycle, s step) *history {
	s.first = new(firstRun)
	old := c.history.Load()
	fresh := &history{ref: old.ref, steps: append(old.steps, s), shared: old.shared, base: old.base}
	if old.shared.Load() {
		fresh.ref, fresh.shared, fresh.base = p.nextRef(c), new(atomic.Bool), old
		fresh.steps = append(old.steps[:len(old.steps):len(old.steps)], s)
	}
	c.history.Store(fresh)
	if c.state != 0 {
		c.state = p.cache.newState()
	}
	return fresh
}

// nextRef returns a ref for a cycle that continues beside its clone.
func (p *Plugin) nextRef(c *Cycle) abi.Ref {
	if c.clone && p.functions.Has(abi.CloneCycle) {
		return p.cycles.nextClone()
	}
	return p.cycles.next()
}

// seen is the part of a cycle that an instance has seen.
type seen struct {
	ref   abi.Ref
	steps int
}

// seenOf returns the steps that the instance has seen in the slot of a cycle. A guest of package
// wasmextension remembers one cycle at a time.
func (p *Plugin) seenOf(i *instance, ref abi.Ref) *seen {
	if p.peer {
		return &i.seen[0]
	}
	return i.seenAt(ref.Slot())
}

// replay runs those of the first n steps of a cycle that the instance has not seen. Their results
// are those of the first run, which the framework already has. gone is set if the nodes of the
// scheduling cycle may have changed.
func (p *Plugin) replay(ctx context.Context, inst *host.Instance, i *instance, h *history, n int, gone bool) error {
	s := p.seenOf(i, h.ref)
	if s.ref != h.ref {
		var err error
		if *s, err = p.cloned(ctx, inst, i, h, gone); err != nil {
			return err
		}
	}
	for ; s.steps < n; s.steps++ {
		if err := p.repeat(ctx, inst, i, &h.steps[s.steps], h.ref, gone); err != nil {
			return fmt.Errorf("replay %s: %w", h.steps[s.steps].function, err)
		}
	}
	return nil
}

// cloned makes the guest copy the state of the cycle from the original, and returns the number of
// steps that the instance has seen then: 0 if there is no original, or the guest cannot copy it.
func (p *Plugin) cloned(ctx context.Context, inst *host.Instance, i *instance, h *history, gone bool) (seen, error) {
	none := seen{ref: h.ref}
	if h.base == nil || !inst.Implements(abi.CloneCycle) {
		return none, nil
	}
	// The nearest that the instance has seen; otherwise the first, from which most clones
	// come.
	from := h.base
	for from.base != nil && (from.ref.Slot() == h.ref.Slot() || *p.seenOf(i, from.ref) != seen{from.ref, len(from.steps)}) {
		from = from.base
	}
	if from.ref.Slot() == h.ref.Slot() {
		return none, nil
	}
	if err := p.replay(ctx, inst, i, from, len(from.steps), gone); err != nil {
		return none, err
	}
	defer i.end()
	i.call = call{first: new(firstRun)}
	inst.StateTrial(nil)
	result, err := inst.Call(ctx, abi.CloneCycle, uint64(h.ref), uint64(from.ref))
	switch code := abi.Code(int32(result)); {
	case err != nil:
		return none, fmt.Errorf("clone: %w", err)
	case code == abi.Skip:
		return none, nil
	case code != abi.Success:
		return none, fmt.Errorf("clone: %w", status(abi.Code(result), inst).AsError())
	}
	return seen{h.ref, len(from.steps)}, nil
}

// call is the data that the guest may ask about during the step.
func (s *step) call() call {
	return call{pod: s.pod, of: s.of, other: s.other, node: s.node, info: s.info, nodes: s.nodes, nodeName: s.nodeName}
}

// run calls the guest.
func (s *step) run(ctx context.Context, p *Plugin, inst *host.Instance, i *instance, ref abi.Ref) (uint64, error) {
	if s.function == abi.AddPod || s.function == abi.RemovePod {
		return p.invoke(ctx, inst, i, s.function, uint64(ref), uint64(s.pod.Ref), uint64(s.other.Ref), uint64(s.node.Ref))
	}
	return p.invoke(ctx, inst, i, s.function, uint64(ref), uint64(s.pod.Ref))
}

// runStep runs a step for the first time, in the scheduling phase. then, if not nil, reads the data
// that the guest left in the instance.
func (p *Plugin) runStep(c *Cycle, s step, then func(*instance)) *Status {
	if status, over := p.over(c, s.function, nil); over {
		return status
	}
	h := p.addStep(c, s)
	ctx := p.context(c, s.function, scheduling)
	inst, i, err := p.acquire(ctx, c, h, len(h.steps)-1, scheduling)
	if err != nil {
		return p.failedIn(c, s.function, err, nil)
	}
	defer p.leave(inst, i)
	if c.clone || p.candidate || s.function == abi.AddPod || s.function == abi.RemovePod {
		inst.StateTrial(nil)
	}
	result, err := p.runFirst(ctx, inst, i, &h.steps[len(h.steps)-1], h.ref, true)
	defer func() { c.life.charge(s.function, inst.FuelUsed()) }() // A failure comes first.
	if err != nil {
		return p.failedIn(c, s.function, err, nil)
	}
	if c.instances != nil && !c.clone {
		c.instances.replay.Add(inst.FuelUsed())
	}
	*p.seenOf(i, h.ref) = seen{h.ref, len(h.steps)}
	if !c.clone {
		c.carried.seenBy(inst, h.ref.Slot())
	}
	if then != nil {
		then(i)
	}
	return status(abi.Code(result), inst)
}
