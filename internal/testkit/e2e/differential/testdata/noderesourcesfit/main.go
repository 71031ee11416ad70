// The noderesourcesfit guest is the scheduler's plugin NodeResourcesFit with its
// default strategy, LeastAllocated over CPU and memory.
package main

import (
	"sort"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/api/resource"
	"github.com/kubewasm/kubewasm/guest/sched"
)

type fit struct{}

// request is what a Pod asks for.
type request struct {
	cpu, memory, storage int64
	scalars              []scalar
	// scoreCPU and scoreMemory count something for containers that ask for
	// nothing.
	scoreCPU, scoreMemory int64
}

type scalar struct {
	name  string
	value int64
}

const (
	defaultCPU    = 100
	defaultMemory = 200 << 20
)

func (fit) PreFilter(state sched.CycleState, pod core.Pod, _ sched.NodeInfos) (*sched.PreFilterResult, *sched.Status) {
	r := &request{}
	for name, q := range pod.Requests() {
		switch name {
		case core.ResourceCPU:
			r.cpu = q.MilliValue()
		case core.ResourceMemory:
			r.memory = q.Value()
		case core.ResourceEphemeralStorage:
			r.storage = q.Value()
		default:
			r.scalars = append(r.scalars, scalar{name, q.Value()})
		}
	}
	sort.Slice(r.scalars, func(i, j int) bool { return r.scalars[i].name < r.scalars[j].name })
	for _, c := range pod.Spec().Containers() {
		cpu, memory := atLeast(c)
		r.scoreCPU += cpu
		r.scoreMemory += memory
	}
	for _, c := range pod.Spec().InitContainers() {
		cpu, memory := atLeast(c)
		r.scoreCPU, r.scoreMemory = max(r.scoreCPU, cpu), max(r.scoreMemory, memory)
	}
	overhead := func(name string) resource.Quantity {
		q, _ := pod.Spec().Overhead().Lookup(name)
		return q
	}
	r.scoreCPU += overhead(core.ResourceCPU).MilliValue()
	r.scoreMemory += overhead(core.ResourceMemory).Value()
	state.Write("request", r)
	return nil, nil
}

// atLeast returns what a container asks for, with the defaults of scoring.
func atLeast(c core.Container) (cpu, memory int64) {
	cpu, memory = defaultCPU, defaultMemory
	if q, ok := c.Resources().Requests().Lookup(core.ResourceCPU); ok {
		cpu = q.MilliValue()
	}
	if q, ok := c.Resources().Requests().Lookup(core.ResourceMemory); ok {
		memory = q.Value()
	}
	return cpu, memory
}

func of(state sched.CycleState) *request {
	v, _ := state.Read("request")
	return v.(*request)
}

func (fit) Filter(state sched.CycleState, _ core.Pod, node sched.NodeInfo) *sched.Status {
	r, u := of(state), node.Usage()
	reasons := make([]string, 0, 4)
	never := false
	check := func(reason string, want, free, all int64) {
		if want > 0 && want > free {
			reasons = append(reasons, reason)
			never = never || want > all
		}
	}
	if int64(node.NumPods())+1 > u.Allocatable.AllowedPodNumber {
		reasons = append(reasons, "Too many pods")
	}
	check("Insufficient cpu", r.cpu, u.Allocatable.MilliCPU-u.Requested.MilliCPU, u.Allocatable.MilliCPU)
	check("Insufficient memory", r.memory, u.Allocatable.Memory-u.Requested.Memory, u.Allocatable.Memory)
	check("Insufficient ephemeral-storage", r.storage, u.Allocatable.EphemeralStorage-u.Requested.EphemeralStorage, u.Allocatable.EphemeralStorage)
	for _, s := range r.scalars {
		all := u.Allocatable.Scalar(s.name)
		check("Insufficient "+s.name, s.value, all-u.Requested.Scalar(s.name), all)
	}
	if len(reasons) == 0 {
		return nil
	}
	status := sched.Unschedulable()
	if never {
		status = sched.UnschedulableAndUnresolvable()
	}
	for _, reason := range reasons {
		status.AppendReason(reason)
	}
	return status
}

func (fit) Score(state sched.CycleState, _ core.Pod, node sched.NodeInfo) (int64, *sched.Status) {
	r, u := of(state), node.Usage()
	var sum, weights int64
	add := func(requested, capacity int64) {
		if capacity == 0 {
			return
		}
		weights++
		if requested <= capacity {
			sum += (capacity - requested) * sched.MaxNodeScore / capacity
		}
	}
	add(u.NonZeroRequested.MilliCPU+r.scoreCPU, u.Allocatable.MilliCPU)
	add(u.NonZeroRequested.Memory+r.scoreMemory, u.Allocatable.Memory)
	if weights == 0 {
		return 0, nil
	}
	return sum / weights, nil
}

// EventsToRegister returns the events of the plugin.
func (fit) EventsToRegister() ([]sched.ClusterEventWithHint, error) {
	return []sched.ClusterEventWithHint{
		{Event: sched.ClusterEvent{Resource: abi.EventAssignedPod, ActionType: abi.ActionDelete | abi.ActionUpdatePodScaleDown}},
		{Event: sched.ClusterEvent{Resource: abi.EventTargetPod, ActionType: abi.ActionUpdatePodScaleDown}},
		{Event: sched.ClusterEvent{Resource: abi.EventNode, ActionType: abi.ActionAdd | abi.ActionUpdateNodeAllocatable}},
	}, nil
}

func init() { sched.Register(fit{}) }

func main() {}
