package kube137

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	fwk "k8s.io/kube-scheduler/framework"
)

// evicting is a scheduler that evicts Pods through a client. The Pod "waits" waits in Permit, and the Pod
// "binds" is about to be bound.
type evicting struct {
	fwk.Handle
	client    kubernetes.Interface
	nominated []fwk.PodInfo

	mu   sync.Mutex
	done []string
}

func (h *evicting) did(format string, values ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.done = append(h.done, fmt.Sprintf(format, values...))
}

func (h *evicting) ClientSet() kubernetes.Interface           { return h.client }
func (h *evicting) APICacher() fwk.APICacher                  { return nil }
func (h *evicting) Parallelizer() fwk.Parallelizer            { return inTurn{} }
func (h *evicting) NominatedPodsForNode(string) []fwk.PodInfo { return h.nominated }
func (h *evicting) EventRecorder() events.EventRecorderLogger { return evictingEvents{h: h} }
func (h *evicting) GetPodInPreBind(uid types.UID) fwk.PodInPreBind {
	return evictingPod{h: h, uid: uid}.ifNamed("binds")
}
func (h *evicting) GetWaitingPod(uid types.UID) fwk.WaitingPod {
	if uid == "waits" {
		return evictingWaiting{h: h}
	}
	return nil
}

type inTurn struct{}

func (inTurn) Until(_ context.Context, pieces int, work workqueue.DoWorkPieceFunc, _ string) {
	for n := range pieces {
		work(n)
	}
}

type evictingEvents struct {
	events.EventRecorderLogger
	h *evicting
}

func (e evictingEvents) Eventf(regarding, _ runtime.Object, _, reason, _, note string, args ...any) {
	e.h.did("event %s of %s: %s", reason, regarding.(*corev1.Pod).Name, fmt.Sprintf(note, args...))
}

type evictingWaiting struct {
	fwk.WaitingPod
	h *evicting
}

func (w evictingWaiting) Preempt(plugin, msg string) bool {
	w.h.did("wait ended by %s: %s", plugin, msg)
	return true
}

type evictingPod struct {
	fwk.PodInPreBind
	h   *evicting
	uid types.UID
}

func (p evictingPod) ifNamed(uid types.UID) fwk.PodInPreBind {
	if p.uid != uid {
		return nil
	}
	return p
}

func (p evictingPod) CancelPod(reason string) bool {
	p.h.did("binding ended: %s", reason)
	return true
}

type namedPod struct {
	fwk.PodInfo
	pod *corev1.Pod
}

func (p namedPod) GetPod() *corev1.Pod { return p.pod }

// TestEvictions has Pods of each state evicted, and holds what the API server is told.
func TestEvictions(t *testing.T) {
	pod := func(name string, priority int32) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{Priority: &priority, SchedulerName: "s"}}
	}
	ending, low, high := pod("ending", 0), pod("low", 1), pod("high", 5)
	ending.DeletionTimestamp = &metav1.Time{}
	for _, nominated := range []*corev1.Pod{low, high} {
		nominated.Status.NominatedNodeName = "n1"
	}
	client := fake.NewClientset(pod("runs", 0), low, high)
	h := &evicting{client: client, nominated: []fwk.PodInfo{namedPod{pod: low}, namedPod{pod: high}}}
	err := handle{h}.Preempt(t.Context(), "plugin", pod("preemptor", 5), "n1", []*corev1.Pod{pod("runs", 0), ending, pod("gone", 0), pod("waits", 0), pod("binds", 0)})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range client.Actions() {
		switch a := a.(type) {
		case kubetesting.PatchAction:
			h.did("patch %s of %s", a.GetSubresource(), a.GetName())
		case kubetesting.DeleteActionImpl:
			h.did("delete %s with the UID %s", a.Name, *a.DeleteOptions.Preconditions.UID)
		}
	}
	want := []string{
		"binding ended: preempted by plugin", "delete runs with the UID runs",
		"event Preempted of binds: Preempted by pod preemptor on node n1 (in kube-scheduler memory).",
		"event Preempted of runs: Preempted by pod preemptor on node n1",
		"event Preempted of waits: Preempted by pod preemptor on node n1 (in kube-scheduler memory).",
		"patch status of gone", "patch status of low", "patch status of runs", "wait ended by plugin: preempted",
	}
	slices.Sort(h.done)
	if diff := cmp.Diff(want, h.done); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	now, err := client.CoreV1().Pods("default").Get(t.Context(), "low", metav1.GetOptions{})
	if err != nil || now.Status.NominatedNodeName != "" {
		t.Errorf("the nomination of the lower Pod is %q, %v", now.Status.NominatedNodeName, err)
	}
}

// TestAnEvictionThatFails holds that the Pod is not nominated then.
func TestAnEvictionThatFails(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("patch", "pods", func(kubetesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "runs", errors.New("no right"))
	})
	h := handle{&evicting{client: client}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "runs", UID: "runs"}}
	err := h.Preempt(t.Context(), "plugin", pod, "n1", []*corev1.Pod{pod})
	if want := `the Pod default/runs: pods "runs" is forbidden: no right`; fmt.Sprint(err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
