package proxy_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/codec/hookpb"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/hooks/proxy"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

var runtime *host.Runtime

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "proxy")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		if runtime, err = host.NewRuntime(host.RuntimeConfig{CacheDir: dir}); err != nil {
			panic(err)
		}
		defer runtime.Close(context.Background())
		return m.Run()
	}())
}

// agent is a handler over a tree of files like those of cgroup v2.
type agent struct {
	*testing.T
	root    string
	state   *hooks.State
	handler *proxy.Handler
}

func newAgent(t *testing.T, enforcer hooks.EnforcerConfig, timeout time.Duration) *agent {
	t.Helper()
	file, err := guestbuild.Build(t.Context(), "../testdata/scripted")
	if err != nil {
		t.Fatal(err)
	}
	engine, err := hooks.NewEngine(t.Context(), runtime, hooks.Config{Plugins: []hooks.PluginConfig{{
		Module: host.Config{Name: "p", Source: host.File(file), Guest: []byte(`{"qos": {"Burstable": "cpu_shares 3"}}`)},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Close(context.Background()) })
	a := &agent{T: t, root: t.TempDir(), state: new(hooks.State)}
	a.make("")
	applier, err := hooks.NewApplier(hooks.ApplierConfig{Root: a.root, Version: hooks.V2})
	if err != nil {
		t.Fatal(err)
	}
	e := hooks.NewEnforcer(a.state, applier, enforcer)
	t.Cleanup(func() {
		e.Close()
		applier.Close()
	})
	a.handler, err = proxy.New(proxy.Config{
		Engine: engine, State: a.state, Enforcer: e, Timeout: timeout,
		Carries: hooks.FieldCPUShares | hooks.FieldCFSQuota | hooks.FieldContainerEnvs,
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// make makes a cgroup as the kernel does.
func (a *agent) make(cgroup string) {
	a.Helper()
	dir := filepath.Join(a.root, cgroup)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		a.Fatal(err)
	}
	for name, text := range map[string]string{"cpu.weight": "100\n", "cpu.max": "max 100000\n", "cpu.max.burst": "0\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			a.Fatal(err)
		}
	}
}

func (a *agent) read(file string) string {
	a.Helper()
	b, err := os.ReadFile(filepath.Join(a.root, file))
	if err != nil {
		a.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func request(stage hookpb.Stage, script string) *hookpb.Request {
	return &hookpb.Request{
		Stage: stage, Level: hookpb.LevelContainer, Pod: hookpb.PodMeta{Namespace: "shop", Name: "web", UID: "u1"}, Container: hookpb.ContainerMeta{Name: "nginx", ID: "c1"},
		PodAnnotations: map[string]string{"p": script}, CgroupParent: "pod", Resources: &hookpb.Resources{CFSQuotaUS: new(int64(80_000))},
	}
}

// One decision, in two halves: what the runtime is told, and what is written when
// the cgroup is there.
func TestADecisionIsSplit(t *testing.T) {
	a := newAgent(t, hooks.EnforcerConfig{}, 0)
	script := "divide_quota 2\ncpu_burst_us 500\nenv A 1\nannotation lost x"
	got, err := a.handler.Handle(t.Context(), request(hookpb.PreCreateContainer, script), "pod/c1")
	if err != nil {
		t.Fatal(err)
	}
	want := &hookpb.Decision{Resources: &hookpb.Resources{CFSQuotaUS: new(int64(40_000))}, ContainerEnvs: map[string]string{"A": "1"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if a.state.Len() != 0 {
		t.Errorf("the state has %v before there is a cgroup", a.state.All())
	}

	// The runtime makes it, and says afterwards what it made of our answer. A
	// plugin that is asked at the creation only has its way as well.
	a.make("pod/c1")
	after := request(hookpb.PostStartContainer, "divide_quota 2")
	after.Resources.CFSQuotaUS = new(int64(40_000))
	got, err = a.handler.Handle(t.Context(), after, "pod/c1")
	if err != nil {
		t.Fatal(err)
	}
	if hooks.FieldsOf(got) != 0 {
		t.Errorf("after the start the runtime is told %v", got)
	}
	if max, burst := a.read("pod/c1/cpu.max"), a.read("pod/c1/cpu.max.burst"); max != "40000 100000" || burst != "500" {
		t.Errorf("the cgroup has %s and %s", max, burst)
	}

	update := request(hookpb.PreUpdateContainerResources, "divide_quota 2\ncpu_burst_us 300")
	update.Resources = &hookpb.Resources{CFSQuotaUS: new(int64(60_000))}
	got, err = a.handler.Handle(t.Context(), update, "pod/c1")
	if err != nil || *got.Resources.CFSQuotaUS != 30_000 || got.Resources.CPUBurstUS != nil {
		t.Errorf("of the update the runtime is told %+v, error %v", got.Resources, err)
	}
	if burst := a.read("pod/c1/cpu.max.burst"); burst != "300" {
		t.Errorf("the burst is %s", burst)
	}
	if _, err := a.handler.Handle(t.Context(), request(hookpb.PostStopContainer, "error x"), "pod/c1"); err == nil {
		t.Error("the plugin's failure is kept from the runtime")
	}
	if a.state.Len() != 0 {
		t.Errorf("the state has %v after the end", a.state.All())
	}
	// What was asked is forgotten with the container.
	again, err := a.handler.Handle(t.Context(), request(hookpb.Reconcile, "divide_quota 2"), "pod/c1")
	if err != nil || hooks.FieldsOf(again) != 0 {
		t.Errorf("got %v, error %v", again, err)
	}
}

// All that is decided on a pod is written: its cgroup is not the runtime's.
func TestAPodIsWritten(t *testing.T) {
	a := newAgent(t, hooks.EnforcerConfig{}, 0)
	a.make("pod")
	req := request(hookpb.PreRunPodSandbox, "cpu_shares 2")
	req.Level, req.Container = hookpb.LevelPod, hookpb.ContainerMeta{}
	got, err := a.handler.Handle(t.Context(), req, "pod")
	if err != nil || hooks.FieldsOf(got) != 0 {
		t.Errorf("got %v, error %v", got, err)
	}
	if weight := a.read("pod/cpu.weight"); weight != "1" {
		t.Errorf("the weight is %s", weight)
	}
	req.Stage = hookpb.PostStopPodSandbox
	_, err = a.handler.Handle(t.Context(), req, "pod")
	if d, ok := a.state.Get("pod"); err != nil || ok {
		t.Errorf("after the end: %v, error %v", d, err)
	}
}

// A runtime that was restarted does not tell of the end of what it ran before.
func TestAPodThatEndsWithoutAWord(t *testing.T) {
	a := newAgent(t, hooks.EnforcerConfig{}, 0)
	a.make("pod/c1")
	for _, stage := range []hookpb.Stage{hookpb.PreCreateContainer, hookpb.PostStartContainer} {
		if _, err := a.handler.Handle(t.Context(), request(stage, "divide_quota 2"), "pod/c1"); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(filepath.Join(a.root, "pod")); err != nil {
		t.Fatal(err)
	}
	other := request(hookpb.PreRunPodSandbox, "")
	other.Level, other.Container, other.Pod.UID = hookpb.LevelPod, hookpb.ContainerMeta{}, "u2"
	if _, err := a.handler.Handle(t.Context(), other, "other"); err != nil {
		t.Fatal(err)
	}
	a.handler.Wait()
	if d, ok := a.state.Get("pod/c1"); ok {
		t.Errorf("the state has %v", d)
	}
	// What was asked is forgotten, too.
	got, err := a.handler.Handle(t.Context(), request(hookpb.Reconcile, "divide_quota 2"), "pod/c1")
	if err != nil || hooks.FieldsOf(got) != 0 {
		t.Errorf("got %v, error %v", got, err)
	}
}

// No event of a runtime is about a class: a pod that comes is the occasion.
func TestAPodThatComesBringsAboutItsClass(t *testing.T) {
	a := newAgent(t, hooks.EnforcerConfig{}, 0)
	for _, class := range []string{"", "/burstable", "/besteffort"} {
		a.make("kubepods" + class)
	}
	req := request(hookpb.PreRunPodSandbox, "")
	req.Level, req.Container = hookpb.LevelPod, hookpb.ContainerMeta{}
	for _, drift := range []string{"100", "77"} {
		if err := os.WriteFile(filepath.Join(a.root, "kubepods/burstable/cpu.weight"), []byte(drift), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := a.handler.Handle(t.Context(), req, "pod"); err != nil {
			t.Fatal(err)
		}
		a.handler.Wait()
		for class, want := range map[string]string{"": "100", "/burstable": "2", "/besteffort": "100"} {
			if got := a.read("kubepods" + class + "/cpu.weight"); got != want {
				t.Errorf("the weight of kubepods%s is %s, want %s", class, got, want)
			}
		}
	}
}

func TestDryRunTellsTheRuntimeNothing(t *testing.T) {
	a := newAgent(t, hooks.EnforcerConfig{DryRun: true}, 0)
	a.make("pod/c1")
	for _, stage := range []hookpb.Stage{hookpb.PreCreateContainer, hookpb.PostStartContainer} {
		got, err := a.handler.Handle(t.Context(), request(stage, "cpu_shares 2"), "pod/c1")
		if err != nil || hooks.FieldsOf(got) != 0 {
			t.Errorf("%s: got %v, error %v", stage, got, err)
		}
	}
	if weight := a.read("pod/c1/cpu.weight"); weight != "100" {
		t.Errorf("the weight is %s", weight)
	}
}

func TestTheAnswerComesBeforeTheRuntimeGivesUp(t *testing.T) {
	a := newAgent(t, hooks.EnforcerConfig{}, 50*time.Millisecond)
	start := time.Now()
	_, err := a.handler.Handle(t.Context(), request(hookpb.PreCreateContainer, "loop"), "pod/c1")
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > time.Second {
		t.Errorf("after %s, error %v", time.Since(start), err)
	}
}
