package sched

import (
	"encoding/binary"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
)

// EventResource is the resource of a ClusterEvent.
type EventResource = abi.EventResource

// The resources of cluster events that the views of this SDK can show.
// [github.com/kubewasm/kubewasm/abi] has all of them.
const (
	// EventPod is any Pod, EventAssignedPod one that runs, EventTargetPod the one
	// that was refused itself, EventUnscheduledPod one that waits like it.
	EventPod            = abi.EventPod
	EventAssignedPod    = abi.EventAssignedPod
	EventUnscheduledPod = abi.EventUnscheduledPod
	EventTargetPod      = abi.EventTargetPod
	EventNode           = abi.EventNode
)

// ActionType is what happens in a ClusterEvent: bits that may be combined.
type ActionType = abi.ActionType

// The actions of cluster events that plugins wait for most.
// [github.com/kubewasm/kubewasm/abi] has all of them.
const (
	ActionAdd                   = abi.ActionAdd
	ActionDelete                = abi.ActionDelete
	ActionUpdate                = abi.ActionUpdate
	ActionUpdateNodeAllocatable = abi.ActionUpdateNodeAllocatable
	ActionUpdateNodeLabel       = abi.ActionUpdateNodeLabel
	ActionUpdateNodeTaint       = abi.ActionUpdateNodeTaint
	ActionUpdateNodeCondition   = abi.ActionUpdateNodeCondition
	ActionUpdatePodLabel        = abi.ActionUpdatePodLabel
	ActionUpdatePodScaleDown    = abi.ActionUpdatePodScaleDown
	ActionUpdatePodToleration   = abi.ActionUpdatePodToleration
	ActionAll                   = abi.ActionAll
)

// ClusterEvent is something that may happen in a cluster.
type ClusterEvent struct {
	Resource   EventResource
	ActionType ActionType
}

// ClusterEventWithHint is an event that may make a Pod schedulable.
type ClusterEventWithHint struct {
	Event ClusterEvent
	// QueueingHintFn looks whether it may for a Pod that the plugin has refused;
	// nil is yes.
	QueueingHintFn QueueingHintFn
}

// QueueingHintFn says whether a Pod that the plugin has refused is worth another
// try, after an event in which oldObj became newObj: the one is absent when the
// object was added, the other when it was deleted. An error is a Queue.
type QueueingHintFn func(pod core.Pod, oldObj, newObj EventObject) (QueueingHint, error)

// QueueingHint is whether a Pod is worth another try.
type QueueingHint int

const (
	// QueueSkip leaves the Pod where it is.
	QueueSkip QueueingHint = iota
	// Queue tries it again.
	Queue
)

// EventObject is the object of a ClusterEvent, before or after it.
type EventObject struct {
	present bool
	pod     core.Pod
	node    core.Node
}

// EventObjectOfPod and EventObjectOfNode return the object of an event, for
// native tests.
func EventObjectOfPod(pod core.Pod) EventObject { return EventObject{present: true, pod: pod} }

// EventObjectOfNode is EventObjectOfPod for a Node.
func EventObjectOfNode(node core.Node) EventObject { return EventObject{present: true, node: node} }

// Present reports whether there is an object.
func (o EventObject) Present() bool { return o.present }

// Pod returns the object of an event about Pods.
func (o EventObject) Pod() core.Pod { return o.pod }

// Node returns the object of an event about Nodes.
func (o EventObject) Node() core.Node { return o.node }

// appendEvents appends events as the host wants them.
func appendEvents(b []byte, events []ClusterEventWithHint) []byte {
	for _, e := range events {
		action := e.Event.ActionType
		if e.QueueingHintFn != nil {
			action |= abi.ActionHint
		}
		b = binary.LittleEndian.AppendUint32(b, uint32(e.Event.Resource))
		b = binary.LittleEndian.AppendUint32(b, uint32(action))
	}
	return b
}

// events are those that the plugin registered for, nil before it was asked.
var events []ClusterEventWithHint

func registeredEvents() ([]ClusterEventWithHint, error) {
	if events == nil {
		list, err := registered.enqueue.EventsToRegister()
		if err != nil {
			return nil, err
		}
		events = append([]ClusterEventWithHint{}, list...)
	}
	return events, nil
}
