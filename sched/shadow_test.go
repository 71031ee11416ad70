package sched_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/shadow"
	"github.com/kubewasm/kubewasm/internal/framework"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
	"github.com/kubewasm/kubewasm/sched"
)

// shadowed is a plugin with a shadow that takes every cycle.
type shadowed struct {
	*sched.Plugin
	nodes framework.Nodes
}

// compiledOnce returns the Runtime of the tests of shadows, which compiles a module once.
var compiledOnce = sync.OnceValues(func() (*host.Runtime, error) { return host.NewRuntime(compiled.Config()) })

func newShadowed(t *testing.T, example, serving, candidate string) *shadowed {
	t.Helper()
	return newShadowedIn(t, host.Enforce, example, serving, candidate)
}

// newShadowedIn is newShadowed in a mode.
func newShadowedIn(t *testing.T, mode host.Mode, example, serving, candidate string) *shadowed {
	t.Helper()
	rt, err := compiledOnce()
	if err != nil {
		t.Fatal(err)
	}
	file, err := guestbuild.Build(t.Context(), "../examples/sched/"+example)
	if err != nil {
		t.Fatal(err)
	}
	p := &shadowed{}
	for n := range 5 {
		p.nodes = append(p.nodes, framework.NewNodeInfo(&corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprint("n", n), Labels: map[string]string{corev1.LabelTopologyZone: string(rune('a' + n))},
		}}))
	}
	f := framework.Of(&framework.Handle{Snapshot: p.nodes})
	p.Plugin, err = sched.Load(t.Context(), rt, sched.PluginConfig{
		Config: host.Config{Name: example, Module: host.ModuleConfig{File: file}, GuestConfig: host.GuestConfig(serving)}, Mode: mode,
		Shadow: &shadow.Config{Module: host.ModuleConfig{File: file}, GuestConfig: host.GuestConfig(candidate), Rate: 1, CPU: 1},
	}, f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	p.await(t, func(s shadow.Status) bool { return s.State == shadow.Running })
	return p
}

func (p *shadowed) await(t *testing.T, is func(shadow.Status) bool) shadow.Status {
	t.Helper()
	for {
		status := p.Shadow().Status()
		if is(status) {
			return status
		}
		if status.State == shadow.Stopped {
			t.Fatalf("the shadow has stopped: %s", status.Reason)
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("have %+v", status)
		case <-time.After(time.Millisecond):
		}
	}
}

func (p *shadowed) pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: corev1.PodSpec{TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{},
		}}},
	}
}

// digest returns the digest of the module that serves.
func (p *shadowed) digest(t *testing.T) string {
	t.Helper()
	rt, err := compiledOnce()
	if err != nil {
		t.Fatal(err)
	}
	for _, guest := range rt.Plugins() {
		if guest.Name() == p.Name() {
			return guest.Digest()
		}
	}
	return ""
}

// cycle asks the plugin as the scheduler does in a cycle.
func (p *shadowed) cycle(name string) {
	c := p.Begin(p.pod(name))
	p.PreFilter(c, p.nodes)
	for _, node := range p.nodes {
		if p.Filter(c, node) == nil {
			p.Score(c, node)
		}
	}
}

// schedule schedules Pods, as the scheduler does, until the shadow has taken all cycles.
func (p *shadowed) schedule(t *testing.T, pods int) shadow.Status {
	t.Helper()
	for n := range pods + 1 {
		p.await(t, func(s shadow.Status) bool {
			return int(s.Compared+s.Failed+s.Uncompared) >= n-1 && s.State == shadow.Running
		})
		if n == pods {
			p.Begin(p.pod(fmt.Sprint("web", n))) // It ends the record of the last one.
			break
		}
		p.cycle(fmt.Sprint("web", n))
	}
	return p.await(t, func(s shadow.Status) bool { return int(s.Compared+s.Failed+s.Uncompared) >= pods })
}

func TestShadowRepeatsCycles(t *testing.T) {
	t.Run("the same version agrees", func(t *testing.T) {
		got := newShadowed(t, "zone", `{"defaultZones": ["a"]}`, "").schedule(t, 5)
		if got.Same != 5 || len(got.Groups) != 0 {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("another configuration decides otherwise", func(t *testing.T) {
		got := newShadowed(t, "zone", `{"defaultZones": ["a"]}`, `{"defaultZones": ["b"]}`).schedule(t, 5)
		if got.Same != 0 || len(got.Groups) != 1 || got.Groups[0].Change != "filter Success -> filter Unschedulable" {
			t.Fatalf("got %+v", got)
		}
		if example := got.Groups[0].Examples[0]; !strings.Contains(example, "shop/web0 on n0") || !strings.Contains(example, `"" -> "node is in zone`) {
			t.Errorf("example %s", example)
		}
	})
	t.Run("what a monitored plugin answers is compared", func(t *testing.T) {
		p := newShadowedIn(t, host.Monitor, "zone", `{"defaultZones": ["a"]}`, `{"defaultZones": ["b"]}`)
		got := p.schedule(t, 5)
		c := p.Begin(p.pod("web"))
		if names, status := p.PreFilter(c, p.nodes); names != nil || status != nil {
			t.Errorf("it allows the nodes %q alone, %v", names, status)
		}
		for _, node := range p.nodes {
			if status := p.Filter(c, node); status != nil {
				t.Errorf("it rejects a node: %v", status)
			}
			if score, status := p.Score(c, node); score != 0 || status != nil {
				t.Errorf("it scores a node with %d, %v", score, status)
			}
		}
		if got.Same != 0 || len(got.Groups) != 1 || got.Groups[0].Change != "filter Success -> filter Unschedulable" {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("nodes are as they were", func(t *testing.T) {
		p := newShadowed(t, "topology-spread", "", "")
		got := p.schedule(t, 3)
		if got.Same != 3 {
			t.Errorf("got %+v", got)
		}
	})
}

func TestProfileOfAServingScheduler(t *testing.T) {
	p := newShadowed(t, "zone", `{"defaultZones": ["a"]}`, "")
	err := p.BeginProfile(t.Context(), 2)
	if strings.Contains(os.Getenv("KUBEWASM_DEBUG"), "process") {
		if err == nil || !strings.Contains(err.Error(), "isolation is process") {
			t.Errorf("a profile of a process begins: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	p.schedule(t, 1)
	for p.Profile().Profile() == nil {
		p.schedule(t, 1)
	}
	if got := p.Profile().Profile(); got.Fuel() == 0 || got.Digest == "" {
		t.Errorf("got %+v", got)
	}
}

func TestMistakesOfAShadowInTheArguments(t *testing.T) {
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(t.Context())
	args := &runtime.Unknown{Raw: []byte(`{"module": {"file": "zone.wasm"}, "logSeverity": 9, "shadow": {"rate": 2, "cpu": 3, "module": {"oci": "example.com/zone:1"}}}`)}
	_, err = sched.LoadArgs(t.Context(), rt, "zone", args, framework.Of(nil))
	for _, want := range []string{"logSeverity is 9", "shadow.rate is 2", "shadow.cpu is 3", "shadow.module.oci: this program has no access"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not reported: %v", want, err)
		}
	}
}

func TestShadowOfASchedulerIsPromoted(t *testing.T) {
	rt, err := compiledOnce()
	if err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile("testdata/passes.wasm")
	if err != nil {
		t.Fatal(err)
	}
	candidate := host.Bytes(append(slices.Clone(module), "\x00\x07\x05otherx"...)) // With one more custom section.
	p := &shadowed{nodes: framework.Nodes{framework.NewNodeInfo(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0"}})}}
	p.Plugin, err = sched.Load(t.Context(), rt, sched.PluginConfig{
		Config: host.Config{Name: "passes", Module: host.ModuleConfig{Bytes: module}},
		Shadow: &shadow.Config{Module: host.ModuleConfig{Source: candidate}, Rate: 1, CPU: 1},
	}, framework.Of(&framework.Handle{Snapshot: p.nodes}))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(t.Context())
	before := p.digest(t)
	p.await(t, func(s shadow.Status) bool { return s.State != shadow.Loading })
	got := p.await(t, func(s shadow.Status) bool {
		p.cycle("web")
		if s.Same >= 3 {
			if err := p.Shadow().Promote(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		return s.State == shadow.Promoted
	})
	if is := p.digest(t); is == before || is != got.Digest {
		t.Errorf("%s serves, before %s, the candidate is %s", is, before, got.Digest)
	}
}

// Calls of which nothing can be compared are no agreement.
func TestAShadowThatComparesNothing(t *testing.T) {
	module, err := os.ReadFile("testdata/permit.wasm")
	if err != nil {
		t.Fatal(err)
	}
	rt, err := compiledOnce()
	if err != nil {
		t.Fatal(err)
	}
	p := &shadowed{nodes: framework.Nodes{framework.NewNodeInfo(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0"}})}}
	p.Plugin, err = sched.Load(t.Context(), rt, sched.PluginConfig{
		Config: host.Config{Name: "permit", Module: host.ModuleConfig{Bytes: module}},
		Shadow: &shadow.Config{Module: host.ModuleConfig{Bytes: append(slices.Clone(module), "\x00\x07\x05otherx"...)}, Rate: 1, CPU: 1},
	}, framework.Of(&framework.Handle{Snapshot: p.nodes}))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(t.Context())
	p.await(t, func(s shadow.Status) bool { return s.State == shadow.Running })
	got := p.await(t, func(s shadow.Status) bool {
		pod := p.pod("web")
		p.Permit(p.Begin(pod), pod, "n0")
		return s.Uncompared >= 5
	})
	want := shadow.Status{State: shadow.Running, Uncompared: got.Uncompared, NotRepeated: []string{"permit"}, Digest: got.Digest, Serving: p.digest(t), Since: got.Since, Dropped: got.Dropped}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

// Numbers are about one serving version: they begin anew when that is swapped.
func TestAShadowOfAVersionThatIsSwapped(t *testing.T) {
	file, err := guestbuild.Build(t.Context(), "../examples/sched/zone")
	if err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	variant := func(name string) host.Source {
		return host.Bytes(append(slices.Clone(module), "\x00\x07\x05other"+name...))
	}
	p := newShadowed(t, "zone", `{"defaultZones": ["a"]}`, "")
	if err := p.BeginShadow(t.Context(), shadow.Config{Module: host.ModuleConfig{Source: variant("x")}, Rate: 1, CPU: 1}); err != nil {
		t.Fatal(err)
	}
	compares := func(s shadow.Status) bool {
		p.cycle("web")
		return s.Compared >= 3
	}
	first := p.await(t, compares)
	if err := p.Swap(t.Context(), variant("y"), ""); err != nil {
		t.Fatal(err)
	}
	anew := p.await(t, func(s shadow.Status) bool {
		p.cycle("web")
		return s.Serving != first.Serving
	})
	if anew.Compared > first.Compared || anew.Serving != p.digest(t) || !anew.Since.After(first.Since) {
		t.Errorf("after the swap %+v, before it %+v", anew, first)
	}
	p.await(t, compares)
}
