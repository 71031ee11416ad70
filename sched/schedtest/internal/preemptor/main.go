// The preemptor guest is run by the tests of the harness, both ways: it implements the extension
// points of the queue and those of preemption.
package main

import (
	"errors"
	"strconv"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
)

// preemptor lets one Pod of a team run on a node.
type preemptor struct{}

func team(pod core.Pod) string { return pod.Metadata().Labels().Get("team") }

func (preemptor) Less(a, b sched.QueuedPodInfo) bool {
	return a.Pod.Spec().Priority() > b.Pod.Spec().Priority()
}

func (preemptor) EventsToRegister() ([]sched.ClusterEventWithHint, error) {
	return []sched.ClusterEventWithHint{
		{Event: sched.ClusterEvent{Resource: abi.EventAssignedPod, ActionType: abi.ActionDelete}, QueueingHintFn: left, PreQueueingHintFn: leads},
		{Event: sched.ClusterEvent{Resource: abi.EventNode, ActionType: abi.ActionAdd}},
	}, nil
}

// leads names the leader of the team that a Pod was of.
func leads(oldObj, _ sched.EventObject) (sched.PreQueueingHintResult, error) {
	switch team := team(oldObj.Pod()); team {
	case "":
		return sched.PreQueueingHintResult{}, errors.New("a Pod without a team")
	case "all":
		return sched.PreQueueingHintResult{AllPods: true}, nil
	default:
		return sched.PreQueueingHintResult{Pods: []sched.PodName{{Namespace: team, Name: "leader"}}}, nil
	}
}

func left(pod core.Pod, oldObj, _ sched.EventObject) (sched.QueueingHint, error) {
	switch {
	case team(pod) == "":
		return sched.Queue, errors.New("a Pod without a team is never refused")
	case team(oldObj.Pod()) == team(pod):
		return sched.Queue, nil
	}
	return sched.QueueSkip, nil
}

func (preemptor) SignPod(pod core.Pod) ([]sched.SignFragment, *sched.Status) {
	if team(pod) == "" {
		return nil, sched.Unschedulable("no team")
	}
	return []sched.SignFragment{{Key: "team", Value: `{ "name": ` + strconv.Quote(team(pod)) + ` }`}}, nil
}

func (preemptor) PreFilter(state sched.CycleState, pod core.Pod, _ sched.NodeInfos) (*sched.PreFilterResult, *sched.Status) {
	state.Write("there", map[string]int{})
	return nil, nil
}

// count changes the number of Pods of the team on a node.
func count(state sched.CycleState, pod, other core.Pod, node sched.NodeInfo, by int) *sched.Status {
	if team(other) == "" {
		return sched.NewStatus(abi.Error, "a Pod without a team")
	}
	if team(other) == team(pod) {
		there, _ := state.Read("there")
		there.(map[string]int)[node.Node().Metadata().Name()] += by
	}
	return nil
}

func (preemptor) AddPod(state sched.CycleState, pod, other core.Pod, node sched.NodeInfo) *sched.Status {
	return count(state, pod, other, node, 1)
}

func (preemptor) RemovePod(state sched.CycleState, pod, other core.Pod, node sched.NodeInfo) *sched.Status {
	return count(state, pod, other, node, -1)
}

func (preemptor) Filter(state sched.CycleState, _ core.Pod, node sched.NodeInfo) *sched.Status {
	there, _ := state.Read("there")
	if n := there.(map[string]int)[node.Node().Metadata().Name()]; n > 0 {
		return sched.Unschedulable(strconv.Itoa(n), " of the team run there")
	}
	return nil
}

func (preemptor) PostFilter(_ sched.CycleState, _ core.Pod, statuses sched.NodeToStatus) (*sched.PostFilterResult, *sched.Status) {
	for _, s := range statuses.All() {
		if s.Status.Code() == abi.Unschedulable {
			return &sched.PostFilterResult{NominatedNodeName: s.NodeName}, nil
		}
	}
	return nil, sched.Unschedulable("no node would do: ", strconv.Itoa(len(statuses.All())))
}

func init() { sched.Register(preemptor{}) }

func main() {}
