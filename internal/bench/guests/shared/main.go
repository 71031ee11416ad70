// The shared guest of the benchmark counts in the state that all instances share, and looks for the
// Pods of a group.
package main

import (
	"math"
	"strconv"

	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/api/meta"
	"github.com/kubewasm/kubewasm/guest/sched"
	"github.com/kubewasm/kubewasm/guest/state"
)

//kubewasm:reads pod.metadata.labels pod.spec.nodeName

type shared struct{}

// PreEnqueue counts Pods with a label, and does nothing for others.
func (shared) PreEnqueue(pod core.Pod) *sched.Status {
	switch pod.Metadata().Labels().Get("count") {
	case "add":
		if !state.Add("tenant/a", 1, math.MaxInt64) {
			return sched.Unschedulable("the tenant has its Pods")
		}
	}
	return nil
}

// PreFilter counts the Pods of a Pod's group that have a node.
func (shared) PreFilter(_ sched.CycleState, pod core.Pod, _ sched.NodeInfos) (*sched.PreFilterResult, *sched.Status) {
	group := pod.Metadata().Labels().Get("group")
	selector, err := meta.NewSelector(meta.Requirement{Key: "group", Operator: meta.LabelSelectorOpIn, Values: []string{group}})
	if err != nil {
		return nil, sched.AsStatus(err)
	}
	all, placed := 0, 0
	for other := range sched.NewPodSelector(pod.Metadata().Namespace(), selector).List() {
		all++
		if other.Spec().NodeName() != "" {
			placed++
		}
	}
	if all == 0 || placed == all {
		return nil, sched.Unschedulable(strconv.Itoa(placed), " of ", strconv.Itoa(all))
	}
	return nil, nil
}

func init() { sched.Register(shared{}) }

func main() {}
