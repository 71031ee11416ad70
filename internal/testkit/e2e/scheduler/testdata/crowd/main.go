// The crowd guest lets no more than two Pods with the label "crowd" onto a node.
// It counts them once for each cycle, and follows what preemption tries out. A
// Pod with the annotation "loop" makes it loop without end.
package main

import (
	"maps"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
)

type crowd struct{}

const most = 2

// count is how many Pods of the crowd each node has.
type count map[string]int

func (c count) Clone() sched.StateData { return maps.Clone(c) }

func counted(pod core.Pod) bool { return pod.Metadata().Labels().Has("crowd") }

func (crowd) PreFilter(state sched.CycleState, pod core.Pod, nodes sched.NodeInfos) (*sched.PreFilterResult, *sched.Status) {
	if !counted(pod) && !pod.Metadata().Annotations().Has("loop") {
		return nil, sched.Skip()
	}
	n := count{}
	for _, node := range nodes.All {
		for _, p := range node.Pods() {
			if counted(p) {
				n[node.Node().Metadata().Name()]++
			}
		}
	}
	state.Write("count", n)
	return nil, nil
}

func change(state sched.CycleState, pod core.Pod, node sched.NodeInfo, by int) *sched.Status {
	if v, ok := state.Read("count"); ok && counted(pod) {
		v.(count)[node.Node().Metadata().Name()] += by
	}
	return nil
}

func (crowd) AddPod(state sched.CycleState, _, added core.Pod, node sched.NodeInfo) *sched.Status {
	return change(state, added, node, 1)
}

func (crowd) RemovePod(state sched.CycleState, _, removed core.Pod, node sched.NodeInfo) *sched.Status {
	return change(state, removed, node, -1)
}

func (crowd) Filter(state sched.CycleState, pod core.Pod, node sched.NodeInfo) *sched.Status {
	if pod.Metadata().Annotations().Has("loop") {
		for {
		}
	}
	v, ok := state.Read("count")
	if !ok {
		return sched.NewStatus(abi.Error, "PreFilter has not run")
	}
	if v.(count)[node.Node().Metadata().Name()] >= most {
		return sched.Unschedulable("node has its crowd")
	}
	return nil
}

// EventsToRegister returns the events after which a node may have less of a crowd, or the Pod may
// not count.
func (crowd) EventsToRegister() ([]sched.ClusterEventWithHint, error) {
	return []sched.ClusterEventWithHint{
		{Event: sched.ClusterEvent{Resource: abi.EventAssignedPod, ActionType: abi.ActionDelete | abi.ActionUpdatePodLabel}},
		{Event: sched.ClusterEvent{Resource: abi.EventTargetPod, ActionType: abi.ActionUpdatePodLabel}},
		{Event: sched.ClusterEvent{Resource: abi.EventNode, ActionType: abi.ActionAdd}},
	}, nil
}

func init() { sched.Register(crowd{}) }

func main() {}
