package sched

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
)

// The state of a cycle is in the memory of the instances that have served it. A binding needs the
// state when the nodes from which it was computed have changed. So the binding runs on one of those
// instances, whose slot for the cycle is kept until the Pod is bound or not.

// carrying are the functions after which a guest may have state that binding functions use, and
// carriedTo are these.
var (
	carrying  = abi.MaskOf(abi.PreFilter, abi.PreScore, abi.Reserve)
	carriedTo = binds | abi.MaskOf(abi.PreBindPreFlight)
)

// carries reports whether the state of cycles is carried into their bindings. Guests of package
// wasmextension have separate instances for that.
func (p *Plugin) carries() bool {
	return !p.peer && p.functions&carrying != 0 && p.functions&carriedTo != 0
}

// carried is the place of a cycle's state.
type carried struct {
	slots *cycleSlots
	slot  uint32

	mu sync.Mutex
	// instances are some that have seen the cycle, the one that has seen most of it first.
	instances []*host.Instance
	// kept is set while the Pod has a node and is not bound yet.
	kept bool
}

// maxCarriers is the maximum number of remembered instances of a cycle.
const maxCarriers = 4

// seenBy records that an instance has seen all of the cycle, which has the slot. c may be nil.
func (c *carried) seenBy(inst *host.Instance, slot uint32) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept && c.slot != slot {
		c.slots.keep(c.slot, -1)
		c.slots.keep(slot, 1)
	}
	c.slot = slot
	if i := slices.Index(c.instances, inst); i >= 0 {
		c.instances = slices.Delete(c.instances, i, i+1)
	} else if c.retain(inst, 1); len(c.instances) == maxCarriers {
		c.retain(c.instances[maxCarriers-1], -1)
		c.instances = slices.Delete(c.instances, maxCarriers-1, maxCarriers)
	}
	c.instances = slices.Insert(c.instances, 0, inst)
}

// retain preserves the memory of an instance, or ends that. c.mu is held.
func (c *carried) retain(inst *host.Instance, n int) {
	if c.kept {
		inst.Retain(n)
	}
}

// lost records that an instance does not have the state any more.
func (c *carried) lost(inst *host.Instance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.instances, inst); i >= 0 {
		c.retain(inst, -1)
		c.instances = slices.Delete(c.instances, i, i+1)
	}
}

// next returns the instance that has seen most of the cycle, nil if there is none.
func (c *carried) next() *host.Instance {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.instances) == 0 {
		return nil
	}
	return c.instances[0]
}

// keep keeps the state until end, which is called at the latest when of is garbage: the framework
// does not always report the end of a cycle. c may be nil.
func (c *carried) keep(of *Cycle) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept {
		return
	}
	c.kept = true
	c.slots.keep(c.slot, 1)
	for _, inst := range c.instances {
		inst.Retain(1)
	}
	runtime.AddCleanup(of, (*carried).end, c)
}

// end undoes keep. c may be nil.
func (c *carried) end() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.kept {
		return
	}
	for _, inst := range c.instances {
		inst.Retain(-1)
	}
	c.kept = false
	c.slots.keep(c.slot, -1)
}

// acquireCarried takes an instance that has the state of a cycle whose Pod has a node, and waits
// while others have it. It is nil if there is none any more.
func (p *Plugin) acquireCarried(ctx context.Context, c *Cycle, h *history) (*host.Instance, error) {
	for {
		want := c.carried.next()
		if want == nil {
			return nil, nil
		}
		inst, err := c.pinned.pin.Acquire(ctx, want)
		if err != nil {
			return nil, err
		}
		i := inst.State().(*instance)
		for of := h; of != nil; of = of.base {
			if s := p.seenOf(i, of.ref); s.ref == of.ref && s.steps > 0 {
				return inst, nil
			}
		}
		inst.Release()
		c.carried.lost(want) // Its guest has trapped meanwhile.
	}
}

const (
	// leastSlots is the number of cycles that an instance remembers at the same time. When more are
	// in progress, the older ones are replayed as they go on, except for those whose slots are
	// kept: there are more slots then, up to mostSlots.
	leastSlots, mostSlots = 64, 4096
	// cloneSlots is the same for clones that the guest makes, which have separate slots: a dry run
	// makes hundreds, and they would take the slot of the original cycle. Two for each goroutine of
	// the framework are in use.
	cloneSlots = 32
)

// cycleSlots gives cycles their refs. The slots of clones lie between the first leastSlots and the
// others.
type cycleSlots struct {
	clones atomic.Uint64

	mu sync.Mutex
	// slots are the slots of cycles. at is the next one, and kept the number of kept ones.
	slots    []cycleSlot
	at, kept int
}

// cycleSlot is the version of a slot, and the number of cycles that keep it.
type cycleSlot struct {
	version uint32
	kept    int32
}

// next returns the ref of a cycle, in a slot that is not kept unless all are.
func (s *cycleSlots) next() abi.Ref {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept >= len(s.slots)/2 && len(s.slots) < mostSlots {
		s.slots = append(s.slots, make([]cycleSlot, leastSlots)...)
	}
	n := s.at
	for range s.slots {
		if s.slots[n].kept == 0 {
			break
		}
		n = (n + 1) % len(s.slots)
	}
	s.at = (n + 1) % len(s.slots)
	slot := &s.slots[n]
	if slot.version++; slot.version == 0 { // After 2^38 cycles and more a version comes again.
		slot.version = 1
	}
	if n >= leastSlots {
		n += cloneSlots
	}
	return abi.MakeRef(slot.version, uint32(n))
}

// keep keeps the slot of a cycle, or releases it with -1.
func (s *cycleSlots) keep(slot uint32, n int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slot >= leastSlots+cloneSlots {
		slot -= cloneSlots
	}
	k := &s.slots[slot].kept
	if *k > 0 {
		s.kept--
	}
	if *k += n; *k > 0 {
		s.kept++
	}
}

// nextClone returns the ref of a clone that the guest makes.
func (s *cycleSlots) nextClone() abi.Ref {
	n := s.clones.Add(1) - 1
	// A version must not be 0. After 2^37 clones a version comes again.
	return abi.MakeRef(uint32(n/cloneSlots%(1<<32-1))+1, uint32(leastSlots+n%cloneSlots))
}
