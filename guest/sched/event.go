package sched

import (
	"encoding/binary"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
)

// ClusterEvent is a change of an object in the cluster. Package abi names its resources
// and actions: abi.EventNode, abi.ActionAdd | abi.ActionUpdateNodeLabel.
type ClusterEvent struct {
	Resource abi.EventResource
	// Object, unless it is empty, takes the place of Resource: any resource that the objects of the
	// plugin's configuration name, in the same words: "v1/configmaps",
	// "scheduling.x-k8s.io/v1alpha1/podgroups". Its actions are abi.ActionAdd, abi.ActionUpdate and
	// abi.ActionDelete.
	Object string
	// ActionType is a set of changes, a bit for each.
	ActionType abi.ActionType
}

// ClusterEventWithHint is an event that may make a Pod schedulable.
type ClusterEventWithHint struct {
	Event ClusterEvent
	// QueueingHintFn decides whether a Pod that the plugin has refused is tried again after an
	// event in which oldObj became newObj; nil queues all of them. oldObj is absent if the object
	// was added, newObj if it was deleted. An error counts as Queue.
	QueueingHintFn func(pod core.Pod, oldObj, newObj EventObject) (QueueingHint, error)
	// PreQueueingHintFn, if not nil, is called once for the event, so that QueueingHintFn need not
	// be called for each Pod. It returns the Pods to which the event may matter: all others stay
	// where they are. oldObj and newObj are those of QueueingHintFn. An error counts as all Pods.
	// Kubernetes calls it from 1.37 on.
	PreQueueingHintFn func(oldObj, newObj EventObject) (PreQueueingHintResult, error)
}

// QueueingHint is the answer of a QueueingHintFn.
type QueueingHint int

const (
	// QueueSkip leaves the Pod where it is.
	QueueSkip QueueingHint = iota
	// Queue tries it again.
	Queue
)

// PreQueueingHintResult is the answer of a PreQueueingHintFn.
type PreQueueingHintResult struct {
	// AllPods reports that the event may matter to every Pod; Pods are not read then.
	AllPods bool
	Pods    []PodName
}

// PodName names a Pod.
type PodName struct{ Namespace, Name string }

// appendPodNames appends the names of Pods in the encoding of the host.
func appendPodNames(b []byte, pods []PodName) []byte {
	for _, p := range pods {
		b = append(append(append(append(b, p.Namespace...), 0), p.Name...), 0)
	}
	return b
}

// EventObject is the object of a ClusterEvent, before or after it.
type EventObject struct{ d *eventObject }

// eventObject is an object of an event. It is never changed.
type eventObject struct {
	pod  core.Pod
	node core.Node
	// bytes are those of an object in a native test, and ref is that in a guest.
	bytes []byte
	ref   abi.Ref
}

// NewEventObject returns the object of an event, for native tests: a view, or the bytes of an object
// of another kind.
func NewEventObject[T core.Pod | core.Node | []byte](object T) EventObject {
	switch o := any(object).(type) {
	case core.Pod:
		return EventObject{&eventObject{pod: o}}
	case core.Node:
		return EventObject{&eventObject{node: o}}
	case []byte:
		return EventObject{&eventObject{bytes: o}}
	}
	return EventObject{}
}

// Present reports whether there is an object.
func (o EventObject) Present() bool { return o.d != nil }

// Pod returns the object of an event about Pods.
func (o EventObject) Pod() core.Pod {
	if o.d == nil {
		return core.Pod{}
	}
	return o.d.pod
}

// Node returns the object of an event about Nodes.
func (o EventObject) Node() core.Node {
	if o.d == nil {
		return core.Node{}
	}
	return o.d.node
}

// Bytes returns the object of an event about another kind, as GetObject does: as protobuf or, for a
// custom resource, as JSON. The views of the kinds read them. It may be called during the hint; the
// bytes may be kept.
func (o EventObject) Bytes() []byte {
	if o.d == nil {
		return nil
	}
	if o.d.ref != 0 {
		return hostObject(o.d.ref)
	}
	return o.d.bytes
}

// appendEvents appends events in the encoding of the host.
func appendEvents(b []byte, events []ClusterEventWithHint) []byte {
	for _, e := range events {
		action := e.Event.ActionType
		if e.QueueingHintFn != nil {
			action |= abi.ActionHint
		}
		if e.PreQueueingHintFn != nil {
			action |= abi.ActionPreHint
		}
		resource, object := e.Event.Resource, e.Event.Object
		if object != "" {
			resource = abi.EventNamed
		}
		b = binary.LittleEndian.AppendUint32(b, uint32(resource))
		b = binary.LittleEndian.AppendUint32(b, uint32(action))
		if object != "" {
			b = binary.LittleEndian.AppendUint32(b, uint32(len(object)))
			b = append(b, object...)
		}
	}
	return b
}

// events are those that the plugin registered for, nil before EventsToRegister
// was called.
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
