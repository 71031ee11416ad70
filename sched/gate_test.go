package sched_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/framework"
	"github.com/kubewasm/kubewasm/sched"
)

// gated is the guest of testdata/gated.wat in a scheduler whose informers are empty until they have
// synced.
type gated struct {
	*sched.Plugin
	handle *framework.Handle
	synced atomic.Bool
	asked  func()
	// active has Pods that are tried again, and asked is called when the plugin asks whether the
	// informers have synced.
	active chan []*corev1.Pod

	mu      sync.Mutex
	refused map[string][]string
}

func loadGated(t *testing.T, limits host.Limits, policy host.FailurePolicy) *gated {
	t.Helper()
	rt, err := compiledOnce()
	if err != nil {
		t.Fatal(err)
	}
	g := &gated{refused: map[string][]string{}, active: make(chan []*corev1.Pod, 100), asked: func() {}}
	g.handle = &framework.Handle{
		Informers: framework.NewInformers(),
		Synced:    func() bool { g.asked(); return g.synced.Load() },
		Activated: func(pods []*corev1.Pod) { g.active <- pods },
		Refuses: func(pod *corev1.Pod, note string) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.refused[pod.Name] = append(g.refused[pod.Name], note)
		},
	}
	limits.Instances = 1
	g.Plugin, err = sched.Load(t.Context(), rt, sched.PluginConfig{Objects: []host.ObjectGrant{{Resource: "v1/configmaps"}}, FailurePolicy: policy, Config: host.Config{
		Name: "gated", Module: host.ModuleConfig{File: "testdata/gated.wasm"}, Limits: limits, Grants: []string{host.GrantObjects},
	}}, framework.Of(g.handle))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close(context.Background()) })
	return g
}

// TestLookUpsHoldToTheirNamespaces looks a ConfigMap of the namespace shop up with several grants.
// A grant of objects implies that of the import.
func TestLookUpsHoldToTheirNamespaces(t *testing.T) {
	rt, err := compiledOnce()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		namespaces []string
		want       string
	}{
		"all":                {nil, ""},
		"that of the object": {[]string{"bank", "shop"}, ""},
		"another":            {[]string{"bank"}, `the plugin's configuration does not name the objects "v1/configmaps" of the namespace "shop"`},
	} {
		t.Run(name, func(t *testing.T) {
			g := &gated{}
			g.handle = &framework.Handle{Informers: framework.NewInformers(), Synced: func() bool { return true }}
			g.Plugin, err = sched.Load(t.Context(), rt, sched.PluginConfig{Objects: []host.ObjectGrant{{Resource: "v1/configmaps", Namespaces: test.namespaces}}, Config: host.Config{
				Name: "gated", Module: host.ModuleConfig{File: "testdata/gated.wasm"},
			}}, framework.Of(g.handle))
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close(context.WithoutCancel(t.Context()))
			g.sync(t)
			if got := g.PreEnqueue(annotated("p")).Message(); (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("PreEnqueue says %q, want %q", got, test.want)
			}
		})
	}
}

// sync fills the informers.
func (g *gated) sync(t *testing.T) {
	t.Helper()
	if err := g.handle.Informers[configMaps].Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "first"}}); err != nil {
		t.Fatal(err)
	}
	g.synced.Store(true)
}

const notSynced = `look up "v1/configmaps": the scheduler has not listed these objects yet`

// TestPodsAreTriedAgainOnceTheInformersHaveSynced has many Pods come while the scheduler knows no
// objects yet: the guest is not told that there are none, no Pod counts as one on which it fails,
// and all are tried again once the objects are there.
func TestPodsAreTriedAgainOnceTheInformersHaveSynced(t *testing.T) {
	g := loadGated(t, host.Limits{}, host.Fail)
	const pods = 200
	var want []string
	for i := range pods {
		pod := annotated(fmt.Sprintf("p%03d", i))
		want = append(want, pod.Name)
		if status := g.PreEnqueue(pod); !strings.Contains(status.Message(), notSynced) {
			t.Fatalf("PreEnqueue says %q, want %q", status.Message(), notSynced)
		}
	}
	g.sync(t)
	var got []string
	for len(got) < pods {
		for _, pod := range <-g.active {
			got = append(got, pod.Name)
			if status := g.PreEnqueue(pod); status != nil {
				t.Errorf("PreEnqueue says %q about %s", status.Message(), pod.Name)
			}
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Pods that are tried again (-want +got):\n%s", diff)
	}
}

// TestAHintThatCannotBeAnsweredTriesThePod holds that a hint does not take objects that the scheduler
// does not know yet for objects that are not there, however often it is asked.
func TestAHintThatCannotBeAnsweredTriesThePod(t *testing.T) {
	g := loadGated(t, host.Limits{}, host.Fail)
	hint := g.EventsToRegister()[0].Hint
	for i := range 20 {
		if queue, _ := hint(annotated("p"), nil, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}}); !queue {
			t.Error("the Pod is not tried again")
		}
	}
	g.synced.Store(true)
	if queue, err := hint(annotated("p"), nil, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "last"}}); queue || err != nil {
		t.Errorf("without the ConfigMap the hint says %v, %v", queue, err)
	}
}

// TestACycleWaitsForTheInformers holds that a call of a cycle waits for the objects that it looks
// up, and ends with an error if they do not come.
func TestACycleWaitsForTheInformers(t *testing.T) {
	g := loadGated(t, host.Limits{Timeout: 200 * time.Millisecond}, host.Fail)
	nodes := emptyNodes(1)
	if status := g.Filter(g.Begin(annotated("p")), nodes[0]); !strings.Contains(status.Message(), notSynced) {
		t.Errorf("Filter says %q, want %q", status.Message(), notSynced)
	}
	g = loadGated(t, host.Limits{}, host.Fail)
	status, asked := make(chan *sched.Status), make(chan struct{})
	g.asked = sync.OnceFunc(func() { close(asked) })
	go func() { status <- g.Filter(g.Begin(annotated("p")), nodes[0]) }()
	<-asked
	g.sync(t)
	if s := <-status; s != nil {
		t.Errorf("Filter says %q", s.Message())
	}
}

// TestTheReasonOfPreEnqueueIsReported holds that it is, once for each reason of a Pod.
func TestTheReasonOfPreEnqueueIsReported(t *testing.T) {
	g := loadGated(t, host.Limits{}, host.Fail)
	a, b := annotated("a"), annotated("b")
	g.PreEnqueue(a)
	g.PreEnqueue(a)
	g.synced.Store(true)
	for range 3 {
		g.PreEnqueue(a)
		g.PreEnqueue(b)
	}
	g.sync(t)
	g.PreEnqueue(a)
	g.mu.Lock()
	defer g.mu.Unlock()
	const keeps = `plugin "gated" keeps the Pod out of the scheduling queue: `
	got := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(g.refused)) {
		for _, note := range g.refused[name] {
			reason, ok := strings.CutPrefix(note, keeps)
			if strings.Contains(reason, notSynced) {
				reason = "not synced"
			}
			if !ok {
				t.Errorf("the note is %q", note)
			}
			got[name] = append(got[name], reason)
		}
	}
	if diff := cmp.Diff(map[string][]string{"a": {"not synced", "no ConfigMap"}, "b": {"no ConfigMap"}}, got); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
}

// TestPodsOnWhichPreEnqueueFailsAreTriedAgain holds that a Pod about which a guest that fails is not
// asked comes back without an event.
func TestPodsOnWhichPreEnqueueFailsAreTriedAgain(t *testing.T) {
	active := make(chan []*corev1.Pod, 100)
	p, _ := poisonedIn(t, &framework.Handle{Activated: func(pods []*corev1.Pod) { active <- pods }}, abi.MaskOf(abi.PreEnqueue), abi.PreEnqueue, 1, nil)
	want := map[string]int{}
	for i := range 8 {
		pod := annotated(fmt.Sprint("p", i))
		want[pod.Name] = 1
		if status := p.PreEnqueue(pod); status == nil {
			t.Fatal("PreEnqueue succeeds")
		}
	}
	got := map[string]int{}
	for n := 0; n < len(want); {
		for _, pod := range <-active {
			got[pod.Name]++
			n++
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Pods that are tried again (-want +got):\n%s", diff)
	}
}

// TestPodsWaitForInstancesOfOthers holds that PreEnqueue without an instance, since others have all of
// them, says nothing about the Pod: it is asked about as soon as there is one.
func TestPodsWaitForInstancesOfOthers(t *testing.T) {
	active := make(chan []*corev1.Pod, 100)
	p, _ := poisonedIn(t, &framework.Handle{Activated: func(pods []*corev1.Pod) { active <- pods }}, abi.MaskOf(abi.PreEnqueue), abi.Filter, 0, func(cfg *sched.PluginConfig) {
		cfg.Limits.Instances = 1
	})
	busy, err := p.Guest().Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first, second := annotated("first"), annotated("second")
	for _, pod := range []*corev1.Pod{first, second} {
		if status := p.PreEnqueue(pod); !errors.Is(status.Err(), host.ErrSaturated) {
			t.Fatalf("PreEnqueue says %q", status.Message())
		}
	}
	busy.Release()
	if status := p.PreEnqueue(first); status != nil {
		t.Errorf("with an instance PreEnqueue says %q", status.Message())
	}
	if diff := cmp.Diff([]*corev1.Pod{second}, <-active); diff != "" {
		t.Errorf("Pods that are tried again (-want +got):\n%s", diff)
	}
}
