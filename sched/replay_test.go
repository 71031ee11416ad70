package sched_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/framework"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/sched"
)

// carrying is a plugin of testdata/carried in a scheduler.
type carrying struct {
	*sched.Plugin
	handle *framework.Handle

	mu     sync.Mutex
	events []string
}

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

func loadCarrying(t *testing.T, change func(*host.Config)) *carrying {
	t.Helper()
	rt, err := compiledOnce()
	if err != nil {
		t.Fatal(err)
	}
	file, err := guestbuild.Build(t.Context(), "testdata/carried")
	if err != nil {
		t.Fatal(err)
	}
	c := &carrying{handle: &framework.Handle{Informers: framework.NewInformers()}}
	c.handle.Recorder = func(_, _ runtime.Object, _, reason, action, note string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.events = append(c.events, reason+" "+action+" "+note)
	}
	cfg := host.Config{
		Name: "carried", Module: host.ModuleConfig{File: file}, Limits: host.Limits{Instances: 1},
		Grants: []string{sched.GrantWaitingPods, sched.GrantEvents, host.GrantObjects},
	}
	change(&cfg)
	c.Plugin, err = sched.Load(t.Context(), rt, sched.PluginConfig{Objects: []host.ObjectGrant{{Resource: "v1/configmaps"}}, Config: cfg}, framework.Of(c.handle))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func (c *carrying) seen() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string{}, c.events...)
}

// waits has a Pod wait.
func (c *carrying) waits(name string) *framework.WaitingPod {
	w := &framework.WaitingPod{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}}
	c.handle.Waiting = []*framework.WaitingPod{w}
	return w
}

func (c *carrying) hasConfigMap(t *testing.T, name string) {
	t.Helper()
	if err := c.handle.Informers[configMaps].Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}); err != nil {
		t.Fatal(err)
	}
}

// annotated returns a Pod with annotations: key, value, key, value.
func annotated(name string, notes ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Annotations: map[string]string{}}}
	for ; len(notes) > 0; notes = notes[2:] {
		pod.Annotations[notes[0]] = notes[1]
	}
	return pod
}

// wants returns the copy of a Pod that is bound, with what the guest should know of its cycle.
func wants(pod *corev1.Pod, want string) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Annotations["want"] = want
	return pod
}

// everyCall has each call of a cycle repeat its steps.
func everyCall(cfg *host.Config) { cfg.Reset = host.ResetPerCall }

// TestARepetitionIsTheCall changes the world after each step of a cycle and has the next call on an
// instance that knows nothing of it: the guest knows what it knew, and has done nothing twice.
func TestARepetitionIsTheCall(t *testing.T) {
	for name, test := range map[string]struct {
		asks, want string
		// change changes what the guest has asked about.
		change     func(*testing.T, *carrying)
		wantEvents []string
	}{
		"objects that come later": {
			asks: "prefilter:objects", want: "prefilter p prefilter lists 1 gets 27",
			change: func(t *testing.T, c *carrying) {
				c.hasConfigMap(t, fmt.Sprint("later", len(c.handle.Informers[configMaps].List())))
				first := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "first"}, Data: map[string]string{"k": "more"}}
				if err := c.handle.Informers[configMaps].Update(first); err != nil {
					t.Fatal(err)
				}
			},
		},
		"Pods that wait no more": {
			asks: "prefilter:waiting", want: "prefilter p prefilter sees 1",
			change: func(_ *testing.T, c *carrying) { c.handle.Waiting = nil },
		},
		"a rejected Pod": {
			asks: "prefilter:reject", want: "prefilter p prefilter rejects w true",
			change: func(_ *testing.T, c *carrying) { c.handle.Waiting = nil },
		},
		"an event": {asks: "prefilter:event", want: "prefilter p", wantEvents: []string{"Step prefilter p"}, change: func(*testing.T, *carrying) {}},
	} {
		t.Run(name, func(t *testing.T) {
			c := loadCarrying(t, everyCall)
			c.hasConfigMap(t, "first")
			w := c.waits("w")
			pod := annotated("p", "asks", test.asks, "filter", "tell")
			cycle := c.Begin(pod)
			if _, status := c.PreFilter(cycle, emptyNodes(1)); status != nil {
				t.Fatal(status.Message())
			}
			for range 3 {
				test.change(t, c)
				if got := c.Filter(cycle, emptyNodes(1)[0]).Message(); got != test.want {
					t.Errorf("the guest knows %q, want %q", got, test.want)
				}
			}
			if status := c.Reserve(cycle, pod, "n0"); status != nil {
				t.Fatal(status.Message())
			}
			bound := wants(pod, test.want+" reserve n0")
			if status, _ := c.Permit(cycle, bound, "n0"); status != nil {
				t.Error(status.Message())
			}
			if status := c.PreBind(t.Context(), cycle, bound, "n0"); status != nil {
				t.Error(status.Message())
			}
			if diff := cmp.Diff(append([]string{}, test.wantEvents...), c.seen()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			want := ""
			if strings.Contains(test.asks, "reject") {
				want = "rejected by carried: makes room"
			}
			if got := w.Result(); got != want {
				t.Errorf("the Pod that waited is %q, want %q", got, want)
			}
		})
	}
}

// TestARepetitionSeesNodesAsTheyWere tries out a preemption on an instance that forgets each call,
// while the node changes under it.
func TestARepetitionSeesNodesAsTheyWere(t *testing.T) {
	c := loadCarrying(t, everyCall)
	pod := annotated("p", "filter", "tell", "nodes", "")
	victims := []*corev1.Pod{annotated("v0"), annotated("v1"), annotated("v2")}
	node := framework.NewNodeInfo(emptyNodes(1)[0].Node(), victims...)
	cycle := c.Begin(pod)
	if _, status := c.PreFilter(cycle, framework.Nodes{node}); status != nil {
		t.Fatal(status.Message())
	}
	clone, want := cycle.Clone(), "prefilter p"
	for i, v := range victims {
		if err := node.Remove(v); err != nil {
			t.Fatal(err)
		}
		if status := c.RemovePod(clone, v, node); status != nil {
			t.Fatal(status.Message())
		}
		want += fmt.Sprintf(" -%s=%d", v.Name, len(victims)-1-i)
		if got := c.Filter(clone, node).Message(); got != want {
			t.Errorf("the guest knows %q, want %q", got, want)
		}
	}
}

// TestNothingIsMutedAfterARepetition filters many nodes on several instances: what the guest does in
// Filter happens, also in the first call after an instance has repeated the steps.
func TestNothingIsMutedAfterARepetition(t *testing.T) {
	for _, reset := range []host.ResetPolicy{host.ResetOnError, host.ResetPerCall} {
		t.Run(string(reset), func(t *testing.T) {
			c := loadCarrying(t, func(cfg *host.Config) { cfg.Reset, cfg.Limits.Instances = reset, 4 })
			const cycles, nodes = 20, 64
			infos := emptyNodes(nodes)
			for i := range cycles {
				cycle := c.Begin(annotated(fmt.Sprint("p", i), "asks", "filter:event", "filter", "acts"))
				if _, status := c.PreFilter(cycle, infos); status != nil {
					t.Fatal(status.Message())
				}
				c.handle.Parallel(nodes, "", func(n int) { c.Filter(cycle, infos[n]) })
			}
			if got := len(c.seen()); got != cycles*nodes {
				t.Errorf("%d Filters have reported %d events", cycles*nodes, got)
			}
			cycle := c.Begin(annotated("last", "asks", "filter:reject", "filter", "acts"))
			if _, status := c.PreFilter(cycle, infos); status != nil {
				t.Fatal(status.Message())
			}
			for i := range 8 {
				w := c.waits(fmt.Sprint("w", i))
				got, want := c.Filter(cycle, infos[i]).Message(), "filter rejects "+w.Pod.Name+" true"
				if got != want || w.Result() != "rejected by carried: makes room" {
					t.Errorf("the guest says %q, want %q, and the Pod is %q", got, want, w.Result())
				}
			}
		})
	}
}

// TestWhatCannotBeRepeatedEndsTheCall binds a Pod after all instances have forgotten its cycle.
func TestWhatCannotBeRepeatedEndsTheCall(t *testing.T) {
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want string // The end of the failure, empty for none.
	}{
		"a PreFilter without nodes": {annotated("p"), ""},
		"a PreFilter that has asked about nodes": {annotated("p", "nodes", "asked"),
			"replay prefilter: the cycle's instance is gone, and the step depends on nodes that have changed"},
	} {
		t.Run(name, func(t *testing.T) {
			c := loadCarrying(t, func(*host.Config) {})
			nodes := emptyNodes(3)
			cycle := c.Begin(test.pod)
			if _, status := c.PreFilter(cycle, nodes); status != nil {
				t.Fatal(status.Message())
			}
			if status := c.PreScore(cycle, nodes); status != nil {
				t.Fatal(status.Message())
			}
			if status := c.Reserve(cycle, test.pod, "n1"); status != nil {
				t.Fatal(status.Message())
			}
			bad := c.Begin(annotated("bad", "filter", "trap"))
			if _, status := c.PreFilter(bad, nodes); status != nil {
				t.Fatal(status.Message())
			}
			if status := c.Filter(bad, nodes[0]); !strings.Contains(status.Message(), "as told") {
				t.Fatal(status.Message())
			}
			for range 2 {
				status := c.PreBind(t.Context(), cycle, wants(test.pod, "prefilter p reserve n1"), "n1")
				if got := status.Message(); !strings.HasSuffix(got, test.want) || (test.want == "") != (status == nil) {
					t.Errorf("PreBind says %q, want %q", got, test.want)
				}
			}
		})
	}
}

// TestAStepThatTheSchedulerLeavesOutHasItsEffects begins a cycle with Filter: PreFilter runs all the
// same, once with effects.
func TestAStepThatTheSchedulerLeavesOutHasItsEffects(t *testing.T) {
	c := loadCarrying(t, func(cfg *host.Config) { cfg.Limits.Instances = 4 })
	w := c.waits("w")
	cycle := c.Resume(annotated("p", "asks", "prefilter:reject,prefilter:event", "filter", "tell"))
	infos := emptyNodes(64)
	c.handle.Parallel(len(infos), "", func(n int) {
		if got, want := c.Filter(cycle, infos[n]).Message(), "prefilter p prefilter rejects w true"; got != want {
			t.Errorf("the guest knows %q, want %q", got, want)
		}
	})
	if diff := cmp.Diff([]string{"Step prefilter p"}, c.seen()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if got := w.Result(); got != "rejected by carried: makes room" {
		t.Errorf("the Pod that waited is %q", got)
	}
}
