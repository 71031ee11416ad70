package sched

import (
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec"
)

// cycle is the scheduling of one Pod, as the guest knows it. It does not change.
type cycle struct {
	ref abi.Ref
	pod *codec.Object
	// of is the Pod that the cycle is for.
	of *corev1.Pod
}

// Clone implements fwk.StateData.
func (c *cycle) Clone() fwk.StateData { return c }

// cycleSlots is how many cycles an instance remembers at the same time: those
// that wait for their Pods to be bound, for the most part. When more are on
// their way the older ones are replayed as they go on.
const cycleSlots = 64

// cycleCounter gives cycles their refs.
type cycleCounter struct{ n atomic.Uint64 }

func (c *cycleCounter) next() abi.Ref {
	n := c.n.Add(1) - 1
	// A version must not be 0. After 2^38 cycles a version comes again.
	return abi.MakeRef(uint32(n/cycleSlots%(1<<32-1))+1, uint32(n%cycleSlots))
}

// begin starts the cycle of a Pod.
func (p *plugin) begin(state fwk.CycleState, pod *corev1.Pod) (*cycle, error) {
	object, err := p.objects.Pod(pod)
	if err != nil {
		return nil, err
	}
	c := &cycle{ref: p.cycles.next(), pod: object, of: pod}
	if state != nil {
		state.Write(p.key, c)
	}
	return c, nil
}

// cycleOf returns the cycle that PreFilter began, or begins it for a guest
// without PreFilter.
func (p *plugin) cycleOf(state fwk.CycleState, pod *corev1.Pod) (*cycle, error) {
	if state != nil {
		if data, err := state.Read(p.key); err == nil {
			if c, ok := data.(*cycle); ok && c.of == pod {
				return c, nil
			}
		}
	}
	return p.begin(state, pod)
}
