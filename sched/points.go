package sched

import "github.com/kubewasm/kubewasm/abi"

// Points are the extension points whose methods of the framework a value must not have in vain:
//
//   - QueueSort and PlacementGenerate: the framework refuses a profile with two;
//   - EnqueueExtensions: without it a Pod that the plugin rejected is tried again after every
//     event, and only the framework knows all events;
//   - Filter and Score: the plugin is called for each node, and with a Score the scheduler searches
//     for more nodes than the first that fits;
//   - PostFilter: a profile without any clears the nomination of a Pod that does not fit.
//
// At all others a plugin without a function answers neutrally.
type Points struct {
	QueueSort, PlacementGenerate, Enqueue, Filter, PostFilter, Score bool
}

// Points returns the extension points of which a value for the scheduler has the methods.
func (p *Plugin) Points() Points {
	return Points{
		QueueSort:         p.offered.Has(abi.QueueSort),
		PlacementGenerate: p.offered.Has(abi.GeneratePlacements),
		// A Pod rejected by a plugin without it is tried again after every event. So a plugin that
		// rejects nothing has it and registers for none.
		Enqueue:    p.offered.Has(abi.EventsToRegister) || p.offered&rejecting == 0,
		Filter:     p.offered.Has(abi.Filter),
		PostFilter: p.offered&abi.MaskOf(abi.PostFilter, abi.PotentialVictims) != 0,
		Score:      p.offered.Has(abi.Score),
	}
}

// The functions of guests that belong together.
var (
	preFiltering = abi.MaskOf(abi.PreFilter, abi.AddPod, abi.RemovePod)
	reserving    = abi.MaskOf(abi.Reserve, abi.Unreserve)
	preBinding   = abi.MaskOf(abi.PreBind, abi.PreBindPreFlight)
	// rejecting are the functions after which a Pod may wait for an event.
	rejecting = abi.MaskOf(abi.PreEnqueue, abi.Filter, abi.Permit) | preFiltering | reserving
	// choosing are those on which the choice of a node depends, which a signature must cover.
	choosing = abi.MaskOf(abi.Filter, abi.PreScore, abi.Score) | preFiltering
)

// Asks reports whether the plugin calls the guest at the extension point of f. Elsewhere its answer
// needs no cycle.
func (p *Plugin) Asks(f abi.Function) bool {
	mask := abi.MaskOf(f)
	for _, together := range [...]abi.Mask{preFiltering, reserving, preBinding} {
		if together&mask != 0 {
			mask = together
		}
	}
	if mask&bounds != 0 && p.carries() {
		return true
	}
	return p.offered&mask != 0
}

// bounds are the extension points between which the state of a cycle is kept.
var bounds = reserving | abi.MaskOf(abi.PostBind)
