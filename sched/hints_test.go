package sched_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/framework"
	"github.com/kubewasm/kubewasm/sched"
)

// hinting loads the guest of testdata/hints.wat.
func hinting(t *testing.T, config string, change func(*sched.PluginConfig)) (*sched.Plugin, *calls) {
	t.Helper()
	rt, err := compiledOnce()
	if err != nil {
		t.Fatal(err)
	}
	made := new(calls)
	made.reset()
	cfg := sched.PluginConfig{Config: host.Config{
		Name: "hints", Module: host.ModuleConfig{File: "testdata/hints.wasm"}, GuestConfig: host.GuestConfig(config), Observer: made,
		Limits: host.Limits{Instances: 1},
	}}
	if change != nil {
		change(&cfg)
	}
	p, err := sched.Load(t.Context(), rt, cfg, framework.Of(nil))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	return p, made
}

// pendingPods returns Pods, which are in three zones and of one name each.
func pendingPods(n int) (pods []*corev1.Pod) {
	for i := range n {
		name := fmt.Sprint("p", i)
		pods = append(pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID(name), ResourceVersion: fmt.Sprint(i), Labels: map[string]string{"zone": string("abc"[i%3]), "n": name},
		}})
	}
	return pods
}

func zonedNode(zone, version string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n", ResourceVersion: version, Labels: map[string]string{"zone": zone}}}
}

// TestHintsAreSharedByClassOfPod holds that an event calls the guest once for the Pods that are
// equal in what it reads, where that can make no difference.
func TestHintsAreSharedByClassOfPod(t *testing.T) {
	const pods, zones = 30, 3
	granted := func(grants ...string) func(*sched.PluginConfig) {
		return func(cfg *sched.PluginConfig) { cfg.Grants = grants }
	}
	var log bytes.Buffer
	for name, test := range map[string]struct {
		config string
		change func(*sched.PluginConfig)
		// asked is how often the second event calls the guest, which has read all by then.
		asked int
	}{
		"a guest that reads a label":                {"", nil, zones},
		"results that are not shared":               {"", func(cfg *sched.PluginConfig) { cfg.DisableResultSharing = true }, pods},
		"a guest with a clock":                      {"", granted(host.GrantClock), pods},
		"a guest with random numbers":               {"", granted(host.GrantRandom), pods},
		"a guest that reads the names of Pods":      {"n", nil, pods},
		"a guest that reads what is no argument":    {"r", nil, pods},
		"a guest that logs":                         {"l", func(cfg *sched.PluginConfig) { cfg.Logger = slog.New(slog.NewTextHandler(&log, nil)) }, pods},
		"a guest that logs what the log leaves out": {"l", nil, zones},
	} {
		t.Run(name, func(t *testing.T) {
			p, made := hinting(t, test.config, test.change)
			pending := pendingPods(pods)
			other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "other"}}
			if _, status := p.PreFilter(p.Begin(other), framework.Nodes{}); status != nil {
				t.Fatal(status.Message())
			}
			hint := p.EventsToRegister()[0].Hint
			event := func(zone, version string) {
				made.reset()
				node := zonedNode(zone, version)
				for i, pod := range pending {
					queue, err := hint(pod, nil, node)
					if want := pod.Labels["zone"] == zone; queue != want || err != nil {
						t.Errorf("Pod %d: got %t, error %v, want %t", i, queue, err, want)
					}
				}
			}
			event("a", "1")
			event("b", "2")
			if diff := cmp.Diff(map[string]int{"queueinghint": test.asked}, made.made); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSharedHintsAreOfTheirEvent asks about one Pod again and again. Each answer must be that of
// what the guest would be shown now.
func TestSharedHintsAreOfTheirEvent(t *testing.T) {
	p, made := hinting(t, "", nil)
	module, err := os.ReadFile("testdata/hints.wasm")
	if err != nil {
		t.Fatal(err)
	}
	hints := p.EventsToRegister()
	node := zonedNode("a", "1")
	pod, unlike := pendingPods(3)[0], pendingPods(3)[1]
	steps := []struct {
		does  string
		do    func()
		hint  int
		pod   *corev1.Pod
		asked int
		want  bool
	}{
		{"asks, and reads a field for the first time", func() {}, 0, pod, 1, true},
		{"asks", func() {}, 0, pod, 1, true},
		{"asks again", func() {}, 0, pod, 0, true},
		{"asks about a Pod of another class", func() {}, 0, unlike, 1, false},
		{"asks about another event of the object", func() {}, 1, pod, 1, true},
		{"reads the object again into the same variable", func() { *node = *zonedNode("c", "2") }, 0, pod, 1, false},
		{"has an object that was never stored", func() { *node = *zonedNode("a", "") }, 0, pod, 1, true},
		{"changes that object", func() { node.Labels["zone"] = "c" }, 0, pod, 1, false},
		{"has another object of the same name", func() { node = zonedNode("a", "1") }, 0, pod, 1, true},
		{"asks once more", func() {}, 0, pod, 0, true},
		{"swaps the module", func() {
			if err := p.Swap(t.Context(), host.Bytes(append(module, "\x00\x03\x01x-"...)), ""); err != nil { // A custom section.
				t.Fatal(err)
			}
		}, 0, pod, 1, true},
	}
	for _, step := range steps {
		step.do()
		made.reset()
		queue, err := hints[step.hint].Hint(step.pod, nil, node)
		if err != nil || queue != step.want {
			t.Errorf("%s: got %t, error %v, want %t", step.does, queue, err, step.want)
		}
		if got := made.made["queueinghint"]; got != step.asked {
			t.Errorf("%s: the guest is asked %d times, want %d", step.does, got, step.asked)
		}
	}
}

// TestFailedHintsAreNotShared holds that the answer for a failure is that Pod's alone.
func TestFailedHintsAreNotShared(t *testing.T) {
	p, made := hinting(t, "f", nil)
	hint, node := p.EventsToRegister()[0].Hint, zonedNode("a", "1")
	pods := pendingPods(4)
	made.reset()
	for _, pod := range pods {
		if queue, err := hint(pod, nil, node); !queue || err == nil {
			t.Errorf("got %t, error %v, want true and an error", queue, err)
		}
	}
	if got := made.made["queueinghint"]; got != len(pods) {
		t.Errorf("the guest is asked %d times about %d Pods", got, len(pods))
	}
}

// TestHintsDoNotAllocate asks about Pods again and again, also where each answer is the guest's own.
func TestHintsDoNotAllocate(t *testing.T) {
	for name, change := range map[string]func(*sched.PluginConfig){
		"shared":     nil,
		"not shared": func(cfg *sched.PluginConfig) { cfg.DisableResultSharing = true },
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := hinting(t, "", change)
			hint, node, pods := p.EventsToRegister()[0].Hint, zonedNode("a", "1"), pendingPods(3)
			ask := func() {
				for _, pod := range pods {
					if _, err := hint(pod, nil, node); err != nil {
						t.Fatal(err)
					}
				}
			}
			ask()
			ask()
			if n := testing.AllocsPerRun(100, ask); n != 0 {
				t.Errorf("%g allocations, want none", n)
			}
		})
	}
}
