package conformance_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/framework"
	"github.com/kubewasm/kubewasm/sched"
)

// load loads a guest into a scheduler. more is added to its arguments.
func load(t *testing.T, rt *host.Runtime, guest string, handle *framework.Handle, instances int, more string) *sched.Plugin {
	t.Helper()
	args := fmt.Sprintf(`{"module": {"file": %q}, "limits": {"instances": %d}%s}`, guest, instances, more)
	p, err := sched.LoadArgs(t.Context(), rt, "guest", &runtime.Unknown{Raw: []byte(args)}, framework.Of(handle))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func podOf(o Object) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: meta(o)}
	pod.Namespace, pod.UID = metav1.NamespaceDefault, types.UID("uid-"+o.Name)
	if o.Namespace != "" {
		pod.Namespace = o.Namespace
	}
	if o.Terminating {
		pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	}
	return pod
}

func statusOf(s *sched.Status) Status {
	return Status{Code: s.Code().String(), Reason: s.Message()}
}

// checkStatus compares a status; no code at all is Success.
func checkStatus(t *testing.T, got *sched.Status, want Status) {
	t.Helper()
	if want.Code == "" {
		want.Code = "Success"
	}
	if diff := cmp.Diff(want, statusOf(got)); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestQueue(t *testing.T) { run(t, "queue", onCases(queueCases)) }

func queueCases(t *testing.T, rt *host.Runtime, guest string, s *Suite) {
	p := load(t, rt, guest, nil, 1, "")
	for _, c := range s.Queue {
		t.Run(c.Name, func(t *testing.T) { queue(t, p, c) })
	}
}

// eventObject returns the object of an event, nil if there is none.
func eventObject(event sched.Event, o *Object) any {
	switch {
	case o == nil:
		return nil
	case event.Resource == abi.EventNode:
		return nodeObject(*o)
	}
	return podOf(*o)
}

func queue(t *testing.T, p *sched.Plugin, c QueueCase) {
	switch {
	case c.PreEnqueue != nil:
		checkStatus(t, p.PreEnqueue(podOf(c.PreEnqueue.Pod)), c.PreEnqueue.Want)
	case c.QueueSort != nil:
		var list []sched.Queued
		for _, pod := range c.QueueSort.Pods {
			q := sched.Queued{Pod: podOf(pod.Object), Timestamp: time.Unix(pod.Second, 0), Attempts: pod.Attempts}
			if pod.First != 0 {
				first := time.Unix(pod.First, 0)
				q.InitialAttemptTimestamp = &first
			}
			list = append(list, q)
		}
		// Every pair is asked about, both ways.
		position := func(q sched.Queued) int { return slices.Index(c.QueueSort.Want, q.Pod.Name) }
		for _, a := range list {
			for _, b := range list {
				if got, want := p.Less(a, b), position(a) < position(b); got != want {
					t.Errorf("%s before %s: got %v", a.Pod.Name, b.Pod.Name, got)
				}
			}
		}
	case c.Events != nil:
		var got []ClusterEvent
		for _, e := range p.EventsToRegister() {
			got = append(got, ClusterEvent{Resource: e.Resource.String(), Action: uint32(e.Action), Hint: e.Hint != nil, PreHint: e.PreHint != nil})
		}
		if diff := cmp.Diff(c.Events, got); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	case c.Hint != nil:
		event := p.EventsToRegister()[c.Hint.Event]
		queue, err := event.Hint(podOf(c.Hint.Pod), eventObject(event, c.Hint.Old), eventObject(event, c.Hint.New))
		got := *c.Hint
		if got.Queue, got.Error = queue, ""; err != nil {
			got.Error = err.Error()
		}
		if diff := cmp.Diff(*c.Hint, got); diff != "" {
			t.Errorf("hint (-want +got):\n%s", diff)
		}
	case c.PreHint != nil:
		event := p.EventsToRegister()[c.PreHint.Event]
		pods, all, err := event.PreHint(eventObject(event, c.PreHint.Old), eventObject(event, c.PreHint.New))
		got := *c.PreHint
		got.Pods, got.All, got.Error = nil, all, ""
		for _, pod := range pods {
			got.Pods = append(got.Pods, pod.String())
		}
		if err != nil {
			got.Error = err.Error()
		}
		if diff := cmp.Diff(*c.PreHint, got); diff != "" {
			t.Errorf("hint for all Pods (-want +got):\n%s", diff)
		}
	case c.Sign != nil:
		fragments, status := p.SignPod(podOf(c.Sign.Pod))
		checkStatus(t, status, c.Sign.Want)
		var got []Fragment
		for _, f := range fragments {
			got = append(got, Fragment{Key: f.Key, Value: string(f.Value)})
		}
		if diff := cmp.Diff(c.Sign.Fragments, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("fragments (-want +got):\n%s", diff)
		}
	default:
		t.Fatal("the case asks nothing")
	}
}
