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
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/framework"
	"github.com/kubewasm/kubewasm/sched"
)

// load loads a guest into a scheduler. more is added to its arguments.
func load(t *testing.T, rt *host.Runtime, guest string, handle fwk.Handle, instances int, more string) sched.Plugin {
	t.Helper()
	args := fmt.Sprintf(`{"file": %q, "limits": {"instances": %d}%s}`, guest, instances, more)
	p, err := sched.New("guest", rt)(t.Context(), &runtime.Unknown{Raw: []byte(args)}, handle)
	if err != nil {
		t.Fatal(err)
	}
	return p.(sched.Plugin)
}

func podOf(o Object) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: meta(o)}
	pod.Namespace, pod.UID = metav1.NamespaceDefault, types.UID("uid-"+o.Name)
	return pod
}

func statusOf(s *fwk.Status) Status {
	return Status{Code: s.Code().String(), Reason: s.Message()}
}

// checkStatus compares a status; no code at all is Success.
func checkStatus(t *testing.T, got *fwk.Status, want Status) {
	t.Helper()
	if want.Code == "" {
		want.Code = "Success"
	}
	if diff := cmp.Diff(want, statusOf(got)); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestQueue(t *testing.T) {
	run(t, "queue", func(t *testing.T, rt *host.Runtime, guest string) {
		p := load(t, rt, guest, nil, 1, "")
		for _, c := range readCases(t).Queue {
			t.Run(c.Name, func(t *testing.T) { queue(t, p, c) })
		}
	})
}

func queue(t *testing.T, p sched.Plugin, c QueueCase) {
	switch {
	case c.PreEnqueue != nil:
		checkStatus(t, p.(fwk.PreEnqueuePlugin).PreEnqueue(t.Context(), podOf(c.PreEnqueue.Pod)), c.PreEnqueue.Want)
	case c.QueueSort != nil:
		var list []framework.QueuedPod
		for _, pod := range c.QueueSort.Pods {
			list = append(list, framework.QueuedPod{Pod: podOf(pod.Object), Came: time.Unix(pod.Second, 0)})
		}
		// Every pair is asked about, both ways.
		less := p.(fwk.QueueSortPlugin).Less
		position := func(q framework.QueuedPod) int { return slices.Index(c.QueueSort.Want, q.Pod.Name) }
		for _, a := range list {
			for _, b := range list {
				if got, want := less(a, b), position(a) < position(b); got != want {
					t.Errorf("%s before %s: got %v", a.Pod.Name, b.Pod.Name, got)
				}
			}
		}
	case c.Events != nil:
		list, err := p.(fwk.EnqueueExtensions).EventsToRegister(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []ClusterEvent
		for _, e := range list {
			got = append(got, ClusterEvent{Resource: string(e.Event.Resource), Action: uint32(e.Event.ActionType), Hint: e.QueueingHintFn != nil})
		}
		if diff := cmp.Diff(c.Events, got); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	case c.Hint != nil:
		list, err := p.(fwk.EnqueueExtensions).EventsToRegister(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		object := func(o *Object) any {
			switch {
			case o == nil:
				return nil
			case list[c.Hint.Event].Event.Resource == fwk.Node:
				return nodeObject(*o)
			}
			return podOf(*o)
		}
		hint, err := list[c.Hint.Event].QueueingHintFn(klog.Background(), podOf(c.Hint.Pod), object(c.Hint.Old), object(c.Hint.New))
		got := *c.Hint
		if got.Queue, got.Error = hint == fwk.Queue, ""; err != nil {
			got.Error = err.Error()
		}
		if diff := cmp.Diff(*c.Hint, got); diff != "" {
			t.Errorf("hint (-want +got):\n%s", diff)
		}
	case c.Sign != nil:
		fragments, status := p.(fwk.SignPlugin).SignPod(t.Context(), podOf(c.Sign.Pod))
		checkStatus(t, status, c.Sign.Want)
		var got []Fragment
		for _, f := range fragments {
			got = append(got, Fragment{Key: f.Key, Value: fmt.Sprintf("%s", f.Value)})
		}
		if diff := cmp.Diff(c.Sign.Fragments, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("fragments (-want +got):\n%s", diff)
		}
	default:
		t.Fatal("the case asks nothing")
	}
}
