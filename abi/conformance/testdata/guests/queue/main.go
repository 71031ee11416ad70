// The queue guest of the conformance suite, by the SDK.
package main

import (
	"errors"
	"strconv"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
)

//kubewasm:name conformance-queue

type guest struct{}

func (guest) PreEnqueue(pod core.Pod) *sched.Status {
	hold, held := pod.Metadata().Labels().Lookup("hold")
	switch {
	case !held:
		return nil
	case hold == "twice":
		s := sched.UnschedulableAndUnresolvable("first")
		s.AppendReason("second")
		return s
	}
	return sched.UnschedulableAndUnresolvable("held: ", hold)
}

func (guest) Less(a, b sched.QueuedPodInfo) bool {
	x, y := a.Pod.Metadata().Labels().Get("order"), b.Pod.Metadata().Labels().Get("order")
	if x != y {
		return x < y
	}
	if a.Attempts != b.Attempts {
		return a.Attempts < b.Attempts
	}
	if a.InitialAttemptTimestamp != b.InitialAttemptTimestamp {
		return a.InitialAttemptTimestamp < b.InitialAttemptTimestamp
	}
	return a.Timestamp > b.Timestamp
}

func (guest) EventsToRegister() ([]sched.ClusterEventWithHint, error) {
	return []sched.ClusterEventWithHint{
		{Event: sched.ClusterEvent{Resource: abi.EventNode, ActionType: abi.ActionAdd | abi.ActionUpdateNodeLabel}, QueueingHintFn: nodeCame},
		{Event: sched.ClusterEvent{Resource: abi.EventAssignedPod, ActionType: abi.ActionDelete}, QueueingHintFn: podLeft},
		{Event: sched.ClusterEvent{Resource: abi.EventPersistentVolumeClaim, ActionType: abi.ActionAdd}},
		{Event: sched.ClusterEvent{Resource: abi.EventPod, ActionType: abi.ActionAdd}, PreQueueingHintFn: podCame},
	}, nil
}

func nodeCame(pod core.Pod, oldObj, newObj sched.EventObject) (sched.QueueingHint, error) {
	if err := puzzled(pod); err != nil {
		return sched.Queue, err
	}
	zone := func(o sched.EventObject) string { return o.Node().Metadata().Labels().Get("zone") }
	want := pod.Metadata().Labels().Get("zone")
	if zone(newObj) == want && (!oldObj.Present() || zone(oldObj) != want) {
		return sched.Queue, nil
	}
	return sched.QueueSkip, nil
}

func podLeft(pod core.Pod, oldObj, _ sched.EventObject) (sched.QueueingHint, error) {
	if err := puzzled(pod); err != nil {
		return sched.Queue, err
	}
	if oldObj.Pod().Metadata().Name() == pod.Metadata().Labels().Get("after") {
		return sched.Queue, nil
	}
	return sched.QueueSkip, nil
}

func podCame(_, newObj sched.EventObject) (sched.PreQueueingHintResult, error) {
	if err := puzzled(newObj.Pod()); err != nil {
		return sched.PreQueueingHintResult{}, err
	}
	labels := newObj.Pod().Metadata().Labels()
	if labels.Has("everyone") {
		return sched.PreQueueingHintResult{AllPods: true}, nil
	}
	var result sched.PreQueueingHintResult
	if name, ok := labels.Lookup("before"); ok {
		result.Pods = []sched.PodName{{Namespace: "default", Name: name}, {Namespace: "default", Name: "always"}}
	}
	return result, nil
}

func puzzled(pod core.Pod) error {
	if pod.Metadata().Labels().Has("puzzled") {
		return errors.New("no hint")
	}
	return nil
}

func (guest) SignPod(pod core.Pod) ([]sched.SignFragment, *sched.Status) {
	labels := pod.Metadata().Labels()
	if labels.Has("unlike") {
		return nil, sched.Unschedulable("unlike any other")
	}
	return []sched.SignFragment{
		{Key: "zone", Value: `"` + labels.Get("zone") + `"`},
		{Key: "labels", Value: strconv.Itoa(labels.Len())},
	}, nil
}

func init() { sched.Register(guest{}) }

func main() {}
