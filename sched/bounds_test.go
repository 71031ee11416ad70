package sched

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/abi"
)

// pendingHandle is a scheduler with pending Pods.
type pendingHandle struct {
	Handle
	pending func(pod *corev1.Pod) bool
}

func (h pendingHandle) Pending(pod *corev1.Pod) *corev1.Pod {
	if h.pending(pod) {
		return pod
	}
	return nil
}

func (h pendingHandle) Activate([]*corev1.Pod) {}

func podNamed(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}}
}

// TestRefusedPodsMakeRoom holds that Pods are remembered again as soon as those of a full memory have
// been scheduled, however many they were.
func TestRefusedPodsMakeRoom(t *testing.T) {
	pending := true
	p := &Plugin{
		handle: pendingHandle{pending: func(*corev1.Pod) bool { return pending }}, logger: slog.New(slog.DiscardHandler),
		wakes: &wakes{signal: make(chan struct{}, 1), refused: map[types.UID]*refusedPod{}},
	}
	for n := range maxRefused {
		p.refuse(podNamed(fmt.Sprint(n)), 0, true)
	}
	if n := len(p.wakes.refused); n != maxRefused {
		t.Fatalf("%d Pods are remembered, want %d", n, maxRefused)
	}
	pending = false
	p.refuse(podNamed("next"), 0, true)
	if n := len(p.wakes.refused); n != 1 {
		t.Errorf("%d Pods are remembered, want 1", n)
	}
}

// TestGatedPodsMakeRoom holds that Pods which wait for objects are remembered again as soon as those of a
// full memory are gone.
func TestGatedPodsMakeRoom(t *testing.T) {
	pending := true
	p := &Plugin{handle: pendingHandle{pending: func(*corev1.Pod) bool { return pending }}}
	p.gate.retrying = true // Nothing is tried again meanwhile.
	for n := range maxGated {
		p.retryLater(podNamed(fmt.Sprint(n)), &notSyncedError{resource: "example.com/v1/widgets"})
	}
	if n := len(p.gate.retries); n != maxGated {
		t.Fatalf("%d Pods are remembered, want %d", n, maxGated)
	}
	pending = false
	p.retryLater(podNamed("next"), &notSyncedError{resource: "example.com/v1/widgets"})
	if n := len(p.gate.retries); n != 1 {
		t.Errorf("%d Pods are remembered, want 1", n)
	}
}

// TestCandidatesWatchNoObjects holds that a candidate is not asked about events.
func TestCandidatesWatchNoObjects(t *testing.T) {
	p := &Plugin{
		handle: pendingHandle{}, candidate: true, offered: rejecting,
		registered: []event{{resource: abi.EventNamed, action: abi.ActionAll, object: "v1/secrets"}},
		informers: map[string]informer{"v1/secrets": {Objects: Objects{Watch: func(func(oldObj, newObj any)) (func(), error) {
			t.Error("the objects are watched")
			return func() {}, nil
		}}}},
		closed: make(chan struct{}),
	}
	defer close(p.closed)
	if err := p.watch(); err != nil || p.wakes != nil {
		t.Errorf("wakes are %v, error %v", p.wakes, err)
	}
}

// TestActivationsForgetPodsThatDoNotExist holds that names which a guest makes up are not kept, and
// that an activation of a Pod puts the next one off.
func TestActivationsForgetPodsThatDoNotExist(t *testing.T) {
	p := &Plugin{
		handle: pendingHandle{pending: func(pod *corev1.Pod) bool { return pod.Name == "a" }},
		closed: make(chan struct{}), callLogger: slog.New(slog.DiscardHandler),
	}
	a := &p.activations
	a.running = true // The test does the work.
	now := time.Now()
	a.add(p, []string{"shop", "a", "shop", "b", "shop", strings.Repeat("x", maxPodName+1), strings.Repeat("x", maxNamespace+1), "a"})
	names := func(now time.Time) (names []string) {
		for _, name := range a.due(now) {
			names = append(names, name.String())
		}
		return names
	}
	if diff := cmp.Diff([]string{"shop/a", "shop/b"}, names(now)); diff != "" {
		t.Errorf("Pods (-want +got):\n%s", diff)
	}
	if !a.activated([]*corev1.Pod{podNamed("a")}, now) || len(a.wanted) != 0 || len(a.last) != 1 {
		t.Errorf("%v are wanted, and the last are %v", a.wanted, a.last)
	}
	a.add(p, []string{"shop", "a"})
	if got := names(now.Add(activateEvery - 1)); got != nil {
		t.Errorf("%v are activated too early", got)
	}
	now = now.Add(activateEvery)
	if diff := cmp.Diff([]string{"shop/a"}, names(now)); diff != "" {
		t.Errorf("Pods (-want +got):\n%s", diff)
	}
	if a.activated(nil, now) {
		t.Error("the work goes on")
	}
}

// TestActivationsOfNamesThatAreMadeUpEnd holds that the names of Pods that do not exist are gone as
// soon as they were looked for.
func TestActivationsOfNamesThatAreMadeUpEnd(t *testing.T) {
	p := &Plugin{
		handle: pendingHandle{pending: func(*corev1.Pod) bool { return false }},
		closed: make(chan struct{}), callLogger: slog.New(slog.DiscardHandler),
	}
	a := &p.activations
	a.running = true
	for n := range maxActivated {
		a.add(p, []string{"shop", fmt.Sprint(n)})
	}
	a.run(p) // It returns without a Pod to wait for.
	if len(a.wanted) != 0 || len(a.last) != 0 || a.running {
		t.Errorf("%d Pods are wanted, %d are remembered", len(a.wanted), len(a.last))
	}
}
