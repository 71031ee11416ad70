// The gate guest keeps Pods whose label "gate" is "closed" out of the queue, and lets them
// in when their label changes.
package main

import (
	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
)

type gate struct{}

func closed(pod core.Pod) bool { return pod.Metadata().Labels().Get("gate") == "closed" }

func (gate) PreEnqueue(pod core.Pod) *sched.Status {
	if closed(pod) {
		return sched.Unschedulable("the gate is closed")
	}
	return nil
}

func (gate) EventsToRegister() ([]sched.ClusterEventWithHint, error) {
	return []sched.ClusterEventWithHint{{
		Event:          sched.ClusterEvent{Resource: abi.EventTargetPod, ActionType: abi.ActionUpdatePodLabel},
		QueueingHintFn: opened,
	}}, nil
}

// opened queues the Pod whose own label was changed.
func opened(pod core.Pod, _, newObj sched.EventObject) (sched.QueueingHint, error) {
	if newObj.Present() && newObj.Pod().Metadata().UID() == pod.Metadata().UID() && !closed(newObj.Pod()) {
		return sched.Queue, nil
	}
	return sched.QueueSkip, nil
}

func init() { sched.Register(gate{}) }

func main() {}
