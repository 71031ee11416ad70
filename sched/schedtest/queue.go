package schedtest

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/harness"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/codec"
	"github.com/kubewasm/kubewasm/guest/sched"
	"github.com/kubewasm/kubewasm/internal/framework"
	"github.com/kubewasm/kubewasm/internal/manifest"
	adapter "github.com/kubewasm/kubewasm/sched"
)

// Less reports whether the Pod in the manifest first comes before that in second in
// the queue. The first came a second before the other.
func (s *Plugin) Less(t testing.TB, first, second string) bool {
	t.Helper()
	r := s.run(t)
	defer r.enter(true)()
	came := time.Unix(1_700_000_000, 0)
	later := came.Add(time.Second)
	a := adapter.Queued{Pod: harness.ReadPod(t, first), Timestamp: came, InitialAttemptTimestamp: &came}
	b := adapter.Queued{Pod: harness.ReadPod(t, second), Timestamp: later, InitialAttemptTimestamp: &later}
	if r.native == nil {
		return r.having(t, "Less", abi.QueueSort).Less(a, b)
	}
	p := harness.As[sched.QueueSortPlugin](t, r.native.Plugin, "Less")
	r.world.state.Refuse()
	x, y := queuedView(t, a), queuedView(t, b)
	// Equal Pods are in the order in which they came.
	return p.Less(x, y) || !p.Less(y, x)
}

// queuedView is a Pod in the queue for a native plugin.
func queuedView(t testing.TB, q adapter.Queued) sched.QueuedPodInfo {
	t.Helper()
	return sched.QueuedPodInfo{Pod: harness.PodView(t, q.Pod), Timestamp: q.Timestamp.UnixNano(), InitialAttemptTimestamp: q.InitialAttemptTimestamp.UnixNano()}
}

// EventsToRegister returns the events that may make a Pod schedulable that the plugin has
// refused.
func (s *Plugin) EventsToRegister(t testing.TB) []sched.ClusterEvent {
	t.Helper()
	r := s.run(t)
	defer r.enter(true)()
	var events []sched.ClusterEvent
	if r.native != nil {
		r.world.state.Refuse()
		for _, e := range r.nativeEvents(t) {
			events = append(events, named(e.Event))
		}
		return events
	}
	for _, e := range r.hostedEvents(t) {
		events = append(events, sched.ClusterEvent{Resource: e.Resource, Object: e.Object, ActionType: e.Action})
	}
	return events
}

func (r *running) nativeEvents(t testing.TB) []sched.ClusterEventWithHint {
	t.Helper()
	list, err := harness.As[sched.EnqueueExtensions](t, r.native.Plugin, "EventsToRegister").EventsToRegister()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func (r *running) hostedEvents(t testing.TB) []adapter.Event {
	t.Helper()
	return r.having(t, "EventsToRegister", abi.EventsToRegister).EventsToRegister()
}

// named returns an event with abi.EventNamed as the resource if it is about a named one.
func named(e sched.ClusterEvent) sched.ClusterEvent {
	if e.Object != "" {
		e.Resource = abi.EventNamed
	}
	return e
}

// QueueingHint returns whether a Pod that the plugin has refused is queued again after an
// event. before and after are manifests of its object, empty if it was
// added or deleted. If the plugin has registered for the event without a hint, the Pod is
// queued. The error is that of the hint.
func (s *Plugin) QueueingHint(t testing.TB, event sched.ClusterEvent, pod, before, after string) (sched.QueueingHint, error) {
	t.Helper()
	r := s.run(t)
	defer r.enter(true)()
	of := harness.ReadPod(t, pod)
	identify(of)
	event = named(event)
	happens := func(e sched.ClusterEvent) bool {
		e = named(e)
		return e.Resource == event.Resource && e.Object == event.Object && e.ActionType&event.ActionType != 0
	}
	if r.native != nil {
		for _, e := range r.nativeEvents(t) {
			if !happens(e.Event) {
				continue
			}
			if e.QueueingHintFn == nil {
				return sched.Queue, nil
			}
			if hint, err := e.QueueingHintFn(harness.PodView(t, of), eventObject(t, event, before), eventObject(t, event, after)); hint == sched.Queue || err != nil {
				r.settle(sched.AsStatus(err))
				return sched.Queue, err
			}
		}
		r.settle(nil)
		return sched.QueueSkip, nil
	}
	for _, e := range r.hostedEvents(t) {
		if !happens(sched.ClusterEvent{Resource: e.Resource, Object: e.Object, ActionType: e.Action}) {
			continue
		}
		if e.Hint == nil {
			return sched.Queue, nil
		}
		if queue, err := e.Hint(of, hostedObject(t, event, before), hostedObject(t, event, after)); queue || err != nil {
			return sched.Queue, err
		}
	}
	return sched.QueueSkip, nil
}

// PreQueueingHint returns the Pods to which an event may matter, of those
// that the plugin has refused. before and after are as in QueueingHint. If the plugin has
// registered for the event without a hint for all Pods, that is AllPods. The error is that of
// the hint.
func (s *Plugin) PreQueueingHint(t testing.TB, event sched.ClusterEvent, before, after string) (result sched.PreQueueingHintResult, err error) {
	t.Helper()
	r := s.run(t)
	defer r.enter(true)()
	event = named(event)
	happens := func(e sched.ClusterEvent) bool {
		e = named(e)
		return e.Resource == event.Resource && e.Object == event.Object && e.ActionType&event.ActionType != 0
	}
	if r.native != nil {
		for _, e := range r.nativeEvents(t) {
			if !happens(e.Event) {
				continue
			}
			if e.PreQueueingHintFn == nil {
				return sched.PreQueueingHintResult{AllPods: true}, nil
			}
			hint, err := e.PreQueueingHintFn(eventObject(t, event, before), eventObject(t, event, after))
			if hint.AllPods || err != nil {
				return sched.PreQueueingHintResult{AllPods: true}, err
			}
			result.Pods = append(result.Pods, hint.Pods...)
		}
		return result, nil
	}
	for _, e := range r.hostedEvents(t) {
		if !happens(sched.ClusterEvent{Resource: e.Resource, Object: e.Object, ActionType: e.Action}) {
			continue
		}
		if e.PreHint == nil {
			return sched.PreQueueingHintResult{AllPods: true}, nil
		}
		pods, all, err := e.PreHint(hostedObject(t, event, before), hostedObject(t, event, after))
		if all || err != nil {
			return sched.PreQueueingHintResult{AllPods: true}, err
		}
		for _, pod := range pods {
			result.Pods = append(result.Pods, sched.PodName{Namespace: pod.Namespace, Name: pod.Name})
		}
	}
	return result, nil
}

// eventObject returns the object of an event for a native plugin.
func eventObject(t testing.TB, event sched.ClusterEvent, manifest string) sched.EventObject {
	t.Helper()
	switch {
	case manifest == "":
		return sched.EventObject{}
	case event.Resource == abi.EventNode:
		return sched.NewEventObject(Node(t, manifest))
	case !aboutPods(event):
		return sched.NewEventObject(must(codec.Encode(otherObject(t, manifest))))
	}
	return sched.NewEventObject(Pod(t, manifest))
}

// aboutPods reports whether an event is about Pods.
func aboutPods(event sched.ClusterEvent) bool {
	return event.Resource <= abi.EventTargetPod || event.Resource == abi.EventWildCard
}

// otherObject returns an object of any kind.
func otherObject(t testing.TB, text string) metav1.Object {
	t.Helper()
	list, err := manifest.Read([]byte(text))
	if err == nil && len(list.All) != 1 {
		err = fmt.Errorf("%d objects, want one", len(list.All))
	}
	if err != nil {
		t.Fatalf("read the object of an event: %v", err)
	}
	object, unknown, err := framework.Decode(&list.All[0])
	if err == nil && len(unknown) != 0 {
		err = errors.Join(unknown...)
	}
	if err != nil {
		t.Fatalf("read the object of an event: %v", err)
	}
	return object
}

// hostedObject returns the object of an event for the scheduler.
func hostedObject(t testing.TB, event sched.ClusterEvent, manifest string) any {
	t.Helper()
	switch {
	case manifest == "":
		return nil
	case event.Resource == abi.EventNode:
		node := &corev1.Node{}
		if err := harness.Decode(manifest, node); err != nil {
			t.Fatalf("read Node: %v", err)
		}
		return node
	case !aboutPods(event):
		return otherObject(t, manifest)
	}
	return harness.ReadPod(t, manifest)
}

// SignPod returns the signature of the Pod in manifest. The values are compact JSON.
func (s *Plugin) SignPod(t testing.TB, manifest string) ([]sched.SignFragment, *sched.Status) {
	t.Helper()
	r := s.run(t)
	defer r.enter(true)()
	compact := func(value any) string {
		b, err := stdjson.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if r.native != nil {
		r.world.state.Refuse()
		list, status := harness.As[sched.SignPlugin](t, r.native.Plugin, "SignPod").SignPod(Pod(t, manifest))
		for i := range list {
			list[i].Value = compact(stdjson.RawMessage(list[i].Value))
		}
		return list, status
	}
	list, status := r.having(t, "SignPod", abi.SignPod).SignPod(harness.ReadPod(t, manifest))
	var fragments []sched.SignFragment
	for _, f := range list {
		fragments = append(fragments, sched.SignFragment{Key: f.Key, Value: compact(f.Value)})
	}
	return fragments, statusOf(t, status)
}
