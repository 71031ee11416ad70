// The tainttoleration guest is the scheduler's plugin TaintToleration.
package main

import (
	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
)

type taintToleration struct{}

func (taintToleration) Filter(_ sched.CycleState, pod core.Pod, node sched.NodeInfo) *sched.Status {
	if _, found := core.FindUntolerated(node.Node().Spec().Taints(), pod.Spec().Tolerations()); found {
		return sched.UnschedulableAndUnresolvable("node(s) had untolerated taint(s)")
	}
	return nil
}

// Score counts the taints that the Pod would rather not have.
func (taintToleration) Score(_ sched.CycleState, pod core.Pod, node sched.NodeInfo) (count int64, _ *sched.Status) {
next:
	for _, taint := range node.Node().Spec().Taints() {
		if taint.Effect() != core.TaintEffectPreferNoSchedule {
			continue
		}
		for _, t := range pod.Spec().Tolerations() {
			if e := t.Effect(); (e == "" || e == core.TaintEffectPreferNoSchedule) && t.Tolerates(taint) {
				continue next
			}
		}
		count++
	}
	return count, nil
}

// NormalizeScore turns the counts round: none is best.
func (taintToleration) NormalizeScore(_ sched.CycleState, _ core.Pod, scores sched.NodeScoreList) *sched.Status {
	var most int64
	for _, s := range scores {
		most = max(most, s.Score)
	}
	for i := range scores {
		if most == 0 {
			scores[i].Score = sched.MaxNodeScore
		} else {
			scores[i].Score = sched.MaxNodeScore - scores[i].Score*sched.MaxNodeScore/most
		}
	}
	return nil
}

// EventsToRegister returns the events of the plugin.
func (taintToleration) EventsToRegister() ([]sched.ClusterEventWithHint, error) {
	return []sched.ClusterEventWithHint{
		{Event: sched.ClusterEvent{Resource: abi.EventNode, ActionType: abi.ActionAdd | abi.ActionUpdateNodeTaint}},
		{Event: sched.ClusterEvent{Resource: abi.EventTargetPod, ActionType: abi.ActionUpdatePodToleration}},
	}, nil
}

func init() { sched.Register(taintToleration{}) }

func main() {}
