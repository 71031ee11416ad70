// The queue guest of the benchmark does what a scheduler asks of a plugin outside of scheduling
// cycles: it gates and orders Pods by a label, signs them, and has hints about Nodes and Pods.
package main

import (
	"strings"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
)

const zoneLabel = "topology.kubernetes.io/zone"

type queue struct{}

func (queue) PreEnqueue(pod core.Pod) *sched.Status {
	if pod.Metadata().Labels().Has("example.com/gate") {
		return sched.UnschedulableAndUnresolvable("the Pod is gated")
	}
	return nil
}

func (queue) Less(a, b sched.QueuedPodInfo) bool {
	x, y := a.Pod.Metadata().Labels().Get("example.com/tier"), b.Pod.Metadata().Labels().Get("example.com/tier")
	if x != y {
		return x < y
	}
	return a.Timestamp < b.Timestamp
}

func (queue) Filter(_ sched.CycleState, pod core.Pod, node sched.NodeInfo) *sched.Status {
	if wants(pod, node.Node().Metadata().Labels().Get(zoneLabel)) {
		return nil
	}
	return sched.Unschedulable("node is in no zone that the Pod wants")
}

func wants(pod core.Pod, zone string) bool {
	return zone != "" && strings.Contains(pod.Metadata().Annotations().Get("kubewasm.dev/zones"), zone)
}

func (queue) EventsToRegister() ([]sched.ClusterEventWithHint, error) {
	return []sched.ClusterEventWithHint{
		{
			Event: sched.ClusterEvent{Resource: abi.EventNode, ActionType: abi.ActionAdd | abi.ActionUpdateNodeLabel},
			QueueingHintFn: func(pod core.Pod, oldObj, newObj sched.EventObject) (sched.QueueingHint, error) {
				zone := newObj.Node().Metadata().Labels().Get(zoneLabel)
				if (!oldObj.Present() || oldObj.Node().Metadata().Labels().Get(zoneLabel) != zone) && wants(pod, zone) {
					return sched.Queue, nil
				}
				return sched.QueueSkip, nil
			},
		},
		{
			Event: sched.ClusterEvent{Resource: abi.EventAssignedPod, ActionType: abi.ActionDelete},
			QueueingHintFn: func(pod core.Pod, oldObj, _ sched.EventObject) (sched.QueueingHint, error) {
				gone, m := oldObj.Pod().Metadata(), pod.Metadata()
				if gone.Namespace() == m.Namespace() && gone.Labels().Get("app") == m.Labels().Get("app") {
					return sched.Queue, nil
				}
				return sched.QueueSkip, nil
			},
		},
		{
			Event: sched.ClusterEvent{Resource: abi.EventPod, ActionType: abi.ActionAdd},
			PreQueueingHintFn: func(_, newObj sched.EventObject) (sched.PreQueueingHintResult, error) {
				m := newObj.Pod().Metadata()
				if name, ok := m.Labels().Lookup("example.com/before"); ok {
					return sched.PreQueueingHintResult{Pods: []sched.PodName{{Namespace: m.Namespace(), Name: name}}}, nil
				}
				return sched.PreQueueingHintResult{Pods: []sched.PodName{}}, nil
			},
		},
	}, nil
}

func (queue) SignPod(pod core.Pod) ([]sched.SignFragment, *sched.Status) {
	return []sched.SignFragment{{Key: "zones", Value: `"` + pod.Metadata().Annotations().Get("kubewasm.dev/zones") + `"`}}, nil
}

func init() { sched.Register(queue{}) }

func main() {}
