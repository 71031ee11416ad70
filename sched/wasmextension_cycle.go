package sched

import (
	"context"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
)

// A guest of package wasmextension may keep anything from one extension point to the next: its host
// has one instance for all scheduling cycles, which run one after the other, and gives it to the
// Pod at Permit, until the Pod is bound or not. So here each function of a cycle runs on the
// instance that is held for it, and data that a list of steps lacks, such as that left by Filter,
// is there. Calls without a held instance get the steps replayed, as in our own ABI: those of the
// copies of a cycle in which preemption tries out the removal of Pods, and those after the end of a
// cycle.

// peerCycle is the part of a cycle that only such a guest needs. plugin.peers guards it.
type peerCycle struct {
	refs *cycleSlots
	// copied is set if it began as a copy of another cycle, which has the instance.
	copied bool
	// settled is set when its Pod has a node: no other cycle may have its instance.
	settled bool
	// hold is that of its instance, nil before its next call if it is not settled.
	hold *host.Hold
}

// peerCycles is the part of a plugin that only such a guest needs.
type peerCycles struct {
	mu sync.Mutex
	// hold is the hold on the instance of the cycle that has no node for its Pod yet, nil if there
	// is none. pin is of the same version. served is the last cycle that it served.
	hold   *host.Hold
	pin    *host.Pin
	served *peerCycle

	// logger is the plugin's with its name, and severity the minimum that guests log.
	logger   *slog.Logger
	severity int32
}

// binds are the functions that may run when the next cycle has begun.
var binds = abi.MaskOf(abi.Reserve, abi.Unreserve, abi.Permit, abi.PreBind, abi.Bind, abi.PostBind)

// settles are those by which a Pod has a node.
var settles = abi.MaskOf(abi.Reserve, abi.Permit, abi.PreBind, abi.Bind)

// held takes the instance that is held for a cycle of a guest of package wasmextension. It is
// nil if there is none, which is no error.
func (p *Plugin) held(ctx context.Context, c *Cycle, phase phase) (*host.Instance, error) {
	for {
		hold, err := p.holdOf(c, phase)
		if hold == nil || err != nil {
			return nil, err
		}
		inst, err := hold.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		// Another call may have waited for it, and made it that of another cycle.
		if p.serves(hold, c.peer) {
			return inst, nil
		}
		inst.Release()
	}
}

// holdOf returns the hold that serves a cycle, and makes it if need be.
func (p *Plugin) holdOf(c *Cycle, phase phase) (*host.Hold, error) {
	p.peers.mu.Lock()
	defer p.peers.mu.Unlock()
	k := c.peer
	switch {
	case k.hold != nil:
		return k.hold, nil
	case k.settled:
		hold, err := c.pinned.pin.Hold()
		if err == nil {
			c.keep(hold)
		}
		return hold, err
	case k.copied || phase == binding:
		return nil, nil
	}
	if p.peers.hold != nil && p.peers.pin == c.pinned.pin {
		return p.peers.hold, nil
	}
	hold, err := c.pinned.pin.Hold()
	if err != nil {
		return nil, err
	}
	if p.peers.hold != nil {
		p.peers.hold.Release() // It is of the version before a swap.
	}
	p.peers.hold, p.peers.pin, p.peers.served = hold, c.pinned.pin, nil
	return hold, nil
}

// keep gives a hold to the cycle. The framework does not always report the end of a cycle, so the
// hold ends with it at the latest.
func (c *Cycle) keep(hold *host.Hold) {
	c.peer.hold = hold
	runtime.AddCleanup(c, (*host.Hold).Release, hold)
}

// serves records that a hold serves a cycle, and reports whether it still does.
func (p *Plugin) serves(hold *host.Hold, k *peerCycle) bool {
	p.peers.mu.Lock()
	defer p.peers.mu.Unlock()
	if k.hold == hold {
		return true
	}
	if k.settled || p.peers.hold != hold {
		return false
	}
	p.peers.served = k
	return true
}

// settle records that the Pod of a cycle has a node: the guest's state of the cycle is kept from
// now on. For a peer, the cycle keeps the instance that has served it.
func (p *Plugin) settle(c *Cycle) {
	c.stage.CompareAndSwap(chooses, reserves)
	c.carried.keep(c)
	if c.peer == nil {
		return
	}
	p.peers.mu.Lock()
	defer p.peers.mu.Unlock()
	if c.peer.settled {
		return
	}
	c.peer.settled = true
	if p.peers.served == c.peer && p.peers.hold != nil {
		c.keep(p.peers.hold)
		p.peers.hold, p.peers.served = nil, nil
	}
}

// endBinding undoes settle: the Pod of the cycle is bound, or is not to be.
func (p *Plugin) endBinding(c *Cycle) {
	c.carried.end()
	if c.peer == nil {
		return
	}
	p.peers.mu.Lock()
	hold := c.peer.hold
	c.peer.settled, c.peer.hold = false, nil
	p.peers.mu.Unlock()
	if hold != nil {
		hold.Release()
	}
}

// clone returns the data of a copy of a cycle. The copy has a different ref from the beginning,
// since their instances must not be confused.
func (k *peerCycle) clone(h *history) (*peerCycle, *history) {
	return &peerCycle{refs: k.refs, copied: true},
		&history{ref: k.refs.nextClone(), steps: slices.Clip(h.steps), shared: new(atomic.Bool)}
}
