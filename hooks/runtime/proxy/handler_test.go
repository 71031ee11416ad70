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
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/internal/facts"
	"github.com/kubewasm/kubewasm/hooks/runtime/proxy"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
)

var runtime *host.Runtime

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if runtime, err = host.NewRuntime(compiled.Config()); err != nil {
			panic(err)
		}
		defer runtime.Close(context.Background())
		return m.Run()
	}())
}

// agent is a handler over a tree of files like those of cgroup v2.
type agent struct {
	*testing.T
	root     string
	engine   *hooks.Engine
	state    *cgroup.State
	enforcer *cgroup.Enforcer
	handler  *proxy.Handler
}

// newAgent returns an agent whose plugin has the observer if there is one.
func newAgent(t *testing.T, enforcer cgroup.EnforcerConfig, timeout time.Duration, observer ...host.Observer) *agent {
	t.Helper()
	file, err := guestbuild.Build(t.Context(), "../../testdata/scripted")
	if err != nil {
		t.Fatal(err)
	}
	plugin := host.Config{Name: "p", Module: host.ModuleConfig{File: file}, GuestConfig: []byte(`{"qos": {"Burstable": "cpu_shares 3"}}`)}
	for _, o := range observer {
		plugin.Observer = o
	}
	engine, err := hooks.NewEngine(t.Context(), runtime, hooks.Config{Plugins: []hooks.PluginConfig{{
		Config:         plugin,
		DecisionGrants: hooks.Grants{Env: []string{"A"}, Annotations: []string{"lost"}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Close(context.Background()) })
	a := &agent{T: t, root: t.TempDir(), engine: engine, state: new(cgroup.State)}
	a.make("")
	applier, err := cgroup.NewApplier(cgroup.ApplierConfig{Root: a.root, Version: cgroup.V2})
	if err != nil {
		t.Fatal(err)
	}
	enforcer.State, enforcer.Applier = a.state, applier
	e, err := cgroup.NewEnforcer(enforcer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		e.Close()
		applier.Close()
	})
	a.enforcer = e
	a.handler, err = proxy.New(proxy.Config{
		Engine: engine, State: a.state, Enforcer: e, Timeout: timeout,
		Supports: hookmsg.FieldCPUShares | hookmsg.FieldCFSQuota | hookmsg.FieldContainerEnvs,
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

// podCgroup is that of the pod of the tests.
const podCgroup = "kubepods/burstable/podu1"

func request(stage abi.Stage, script string) *hookmsg.Request {
	return &hookmsg.Request{
		Stage: stage, Level: abi.LevelContainer, Pod: hookmsg.PodMeta{Namespace: "shop", Name: "web", UID: "u1"}, Container: hookmsg.ContainerMeta{Name: "nginx", ID: "c1"},
		PodAnnotations: map[string]string{"p": script}, CgroupParent: podCgroup, Resources: &hookmsg.Resources{CFSQuotaUS: new(int64(80_000))},
	}
}

// One decision, in two halves: what the runtime is told, and what is written when
// the cgroup is there.
func TestADecisionIsSplit(t *testing.T) {
	a := newAgent(t, cgroup.EnforcerConfig{}, 0)
	script := "divide_quota 2\ncpu_burst_us 500\nenv A 1\nannotation lost x"
	got, err := a.handler.Handle(t.Context(), request(abi.PreCreateContainer, script), podCgroup+"/c1")
	if err != nil {
		t.Fatal(err)
	}
	want := &hookmsg.Decision{Resources: &hookmsg.Resources{CFSQuotaUS: new(int64(40_000))}, ContainerEnvs: map[string]string{"A": "1"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if a.state.Len() != 0 {
		t.Errorf("the state has %v before there is a cgroup", a.state.All())
	}

	// The runtime makes it, and says afterwards what it made of our answer. A
	// plugin that is asked at the creation only has its way as well.
	a.make(podCgroup + "/c1")
	after := request(abi.PostStartContainer, "divide_quota 2")
	after.Resources.CFSQuotaUS = new(int64(40_000))
	got, err = a.handler.Handle(t.Context(), after, podCgroup+"/c1")
	if err != nil {
		t.Fatal(err)
	}
	if got.Fields() != 0 {
		t.Errorf("after the start the runtime is told %v", got)
	}
	if max, burst := a.read(podCgroup+"/c1/cpu.max"), a.read(podCgroup+"/c1/cpu.max.burst"); max != "40000 100000" || burst != "500" {
		t.Errorf("the cgroup has %s and %s", max, burst)
	}

	update := request(abi.PreUpdateContainerResources, "divide_quota 2\ncpu_burst_us 300")
	update.Resources = &hookmsg.Resources{CFSQuotaUS: new(int64(60_000))}
	got, err = a.handler.Handle(t.Context(), update, podCgroup+"/c1")
	if err != nil || *got.Resources.CFSQuotaUS != 30_000 || got.Resources.CPUBurstUS != nil {
		t.Errorf("of the update the runtime is told %+v, error %v", got.Resources, err)
	}
	if burst := a.read(podCgroup + "/c1/cpu.max.burst"); burst != "300" {
		t.Errorf("the burst is %s", burst)
	}
	if _, err := a.handler.Handle(t.Context(), request(abi.PostStopContainer, "error x"), podCgroup+"/c1"); err == nil {
		t.Error("the plugin's failure is kept from the runtime")
	}
	if a.state.Len() != 0 {
		t.Errorf("the state has %v after the end", a.state.All())
	}
	// What was asked is forgotten with the container.
	again, err := a.handler.Handle(t.Context(), request(abi.Reconcile, "divide_quota 2"), podCgroup+"/c1")
	if err != nil || again.Fields() != 0 {
		t.Errorf("got %v, error %v", again, err)
	}
}

// All that is decided on a pod is written: its cgroup is not the runtime's.
func TestAPodIsWritten(t *testing.T) {
	a := newAgent(t, cgroup.EnforcerConfig{}, 0)
	a.make(podCgroup)
	req := request(abi.PreRunPodSandbox, "cpu_shares 2")
	req.Level, req.Container = abi.LevelPod, hookmsg.ContainerMeta{}
	got, err := a.handler.Handle(t.Context(), req, podCgroup)
	if err != nil || got.Fields() != 0 {
		t.Errorf("got %v, error %v", got, err)
	}
	if weight := a.read(podCgroup + "/cpu.weight"); weight != "1" {
		t.Errorf("the weight is %s", weight)
	}
	req.Stage = abi.PostStopPodSandbox
	_, err = a.handler.Handle(t.Context(), req, podCgroup)
	if d, ok := a.state.Get(podCgroup); err != nil || ok {
		t.Errorf("after the end: %v, error %v", d, err)
	}
}

// What a container without an identifier brings is not known of its pod afterwards.
func TestAContainerWithoutAnIdentifierIsNotItsPod(t *testing.T) {
	a := newAgent(t, cgroup.EnforcerConfig{}, 0)
	a.make(podCgroup + "/c1")
	req := request(abi.PreRunPodSandbox, "")
	req.Level, req.Container = abi.LevelPod, hookmsg.ContainerMeta{}
	if _, err := a.handler.Handle(t.Context(), req, podCgroup); err != nil {
		t.Fatal(err)
	}
	pod := facts.Subject{PodUID: "u1"}
	before := (*facts.Store)(a.state.Facts()).Get(pod)
	for _, stage := range []abi.Stage{abi.PreCreateContainer, abi.PreUpdateContainerResources, abi.PostStartContainer, abi.PostStopContainer} {
		req := request(stage, "cpu_shares 2")
		req.Container.ID, req.ContainerAnnotations, req.ContainerEnvs = "", map[string]string{"a": "1"}, []hookmsg.Env{{Name: "A", Value: "1"}}
		if _, err := a.handler.Handle(t.Context(), req, podCgroup+"/c1"); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, (*facts.Store)(a.state.Facts()).Get(pod), cmpopts.IgnoreUnexported(facts.Facts{})); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", stage, diff)
		}
	}
}

// A runtime that was restarted does not tell of the end of what it ran before.
func TestAPodThatEndsWithoutAWord(t *testing.T) {
	a := newAgent(t, cgroup.EnforcerConfig{}, 0)
	a.make(podCgroup + "/c1")
	for _, stage := range []abi.Stage{abi.PreCreateContainer, abi.PostStartContainer} {
		if _, err := a.handler.Handle(t.Context(), request(stage, "divide_quota 2"), podCgroup+"/c1"); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(filepath.Join(a.root, podCgroup)); err != nil {
		t.Fatal(err)
	}
	other := request(abi.PreRunPodSandbox, "")
	other.Level, other.Container, other.Pod.UID = abi.LevelPod, hookmsg.ContainerMeta{}, "u2"
	if _, err := a.handler.Handle(t.Context(), other, "other"); err != nil {
		t.Fatal(err)
	}
	a.handler.Wait()
	if d, ok := a.state.Get(podCgroup + "/c1"); ok {
		t.Errorf("the state has %v", d)
	}
	// What was asked is forgotten, too.
	got, err := a.handler.Handle(t.Context(), request(abi.Reconcile, "divide_quota 2"), podCgroup+"/c1")
	if err != nil || got.Fields() != 0 {
		t.Errorf("got %v, error %v", got, err)
	}
}

// No event of a runtime is about a class: a pod that comes is the occasion.
func TestAPodThatComesBringsAboutItsClass(t *testing.T) {
	a := newAgent(t, cgroup.EnforcerConfig{}, 0)
	for _, class := range []string{"", "/burstable", "/besteffort"} {
		a.make("kubepods" + class)
	}
	req := request(abi.PreRunPodSandbox, "")
	req.Level, req.Container = abi.LevelPod, hookmsg.ContainerMeta{}
	for _, drift := range []string{"100", "77"} {
		if err := os.WriteFile(filepath.Join(a.root, "kubepods/burstable/cpu.weight"), []byte(drift), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := a.handler.Handle(t.Context(), req, podCgroup); err != nil {
			t.Fatal(err)
		}
		a.handler.Wait()
		for class, want := range map[string]string{"": "100", "/burstable": "1", "/besteffort": "100"} {
			if got := a.read("kubepods" + class + "/cpu.weight"); got != want {
				t.Errorf("the weight of kubepods%s is %s, want %s", class, got, want)
			}
		}
	}
}

func TestDryRunTellsTheRuntimeNothing(t *testing.T) {
	a := newAgent(t, cgroup.EnforcerConfig{DryRun: true}, 0)
	a.make(podCgroup + "/c1")
	for _, stage := range []abi.Stage{abi.PreCreateContainer, abi.PostStartContainer} {
		got, err := a.handler.Handle(t.Context(), request(stage, "cpu_shares 2"), podCgroup+"/c1")
		if err != nil || got.Fields() != 0 {
			t.Errorf("%s: got %v, error %v", stage, got, err)
		}
	}
	if weight := a.read(podCgroup + "/c1/cpu.weight"); weight != "100" {
		t.Errorf("the weight is %s", weight)
	}
}

func TestTheAnswerComesBeforeTheRuntimeGivesUp(t *testing.T) {
	a := newAgent(t, cgroup.EnforcerConfig{}, 50*time.Millisecond)
	_, err := a.handler.Handle(t.Context(), request(abi.PreCreateContainer, "loop"), podCgroup+"/c1")
	if !errors.Is(err, context.DeadlineExceeded) { // Otherwise it would loop for ever.
		t.Errorf("got error %v", err)
	}
}

// Nobody makes the handler write into a cgroup that is not the pod's own, nor
// forget what is decided on it.
func TestAnothersCgroupIsLeftAlone(t *testing.T) {
	const victim = "kubepods/burstable/podvictim"
	a := newAgent(t, cgroup.EnforcerConfig{}, 0)
	theirs := []string{"system.slice", "system.slice/kubelet.service", "kubepods", "kubepods/burstable", victim, victim + "/v1"}
	for _, cgroup := range append(theirs, podCgroup, podCgroup+"/c1", podCgroup+"/c1/init", "kubepods/podu1") {
		a.make(cgroup)
	}
	kept := cgroup.Target{Cgroup: victim + "/v1", PodUID: "victim", Resources: &hookmsg.Resources{CPUShares: new(int64(1024))}}
	refused := uint64(0)
	for _, c := range []struct {
		name                   string
		uid, id, parent, claim string
	}{
		{"another pod's parent", "u1", "c1", victim, victim + "/c1"},
		{"another pod's parent and container", "u1", "v1", victim, victim + "/v1"},
		{"another pod's container in the own parent", "u1", "c1", podCgroup, victim + "/v1"},
		{"the system's slice", "u1", "c1", "system.slice", "system.slice/c1"},
		{"a service", "u1", "kubelet.service", "system.slice", "system.slice/kubelet.service"},
		{"the kubelet's root", "u1", "c1", "kubepods", "kubepods/c1"},
		{"the class as the pod", "u1", "podvictim", "kubepods/burstable", victim},
		{"the class as a container", "u1", "c1", podCgroup, "kubepods/burstable"},
		{"the pod as its container", "u1", "c1", podCgroup, podCgroup},
		{"a cgroup that the container made", "u1", "c1", podCgroup, podCgroup + "/c1/init"},
		{"a path that climbs", "u1", "c1", podCgroup + "/../podvictim", podCgroup + "/../podvictim/c1"},
		{"a container that climbs", "u1", "c1", podCgroup, podCgroup + "/../podvictim/v1"},
		{"an identifier that climbs", "u1", "../podvictim/v1", podCgroup, podCgroup + "/../podvictim/v1"},
		{"an identifier with a directory", "u1", "c1/init", podCgroup, podCgroup + "/c1/init"},
		{"a UID that climbs", "x/../../podvictim", "c1", victim, victim + "/v1"},
		{"a UID that is empty", "", "c1", "kubepods/burstable/pod", "kubepods/burstable/pod/c1"},
		{"a path that is absolute", "u1", "c1", "/" + victim, "/" + victim + "/v1"},
		{"a path that is not clean", "u1", "c1", "kubepods//burstable/podu1", "kubepods//burstable/podu1/c1"},
		{"another root", "u1", "c1", "other/kubepods/burstable/podu1", "other/kubepods/burstable/podu1/c1"},
		{"another driver's", "u1", "c1", "kubepods.slice/kubepods-podu1.slice", "kubepods.slice/kubepods-podu1.slice/cri-containerd-c1.scope"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a.state.Put(kept)
			for _, stage := range []abi.Stage{abi.PreCreateContainer, abi.PostStartContainer, abi.Reconcile, abi.PostStopContainer} {
				req := request(stage, "cpu_shares 2")
				req.Pod.UID, req.Container.ID, req.CgroupParent = c.uid, c.id, c.parent
				d, err := a.handler.Handle(t.Context(), req, c.claim)
				if err != nil {
					t.Fatal(err)
				}
				// The runtime, which knows its own container, is told all the same.
				if stage == abi.PreCreateContainer && (d.Resources == nil || *d.Resources.CPUShares != 2) {
					t.Errorf("at %s the runtime is told %v", stage, d)
				}
				if refused++; a.handler.Refused() != refused {
					t.Errorf("at %s, %d are refused, want %d", stage, a.handler.Refused(), refused)
				}
			}
			if d, _ := a.state.Get(kept.Cgroup); d.PodUID != kept.PodUID || a.state.Len() != 1 {
				t.Errorf("the state is %v", a.state.All())
			}
			a.state.RemovePod("victim")
			for _, cgroup := range append(theirs, podCgroup, podCgroup+"/c1", podCgroup+"/c1/init") {
				if got := a.read(cgroup + "/cpu.weight"); got != "100" {
					t.Errorf("%s has the weight %s", cgroup, got)
				}
			}
		})
	}
	// The class is what the cgroup says, and the rest goes on.
	req := request(abi.Reconcile, "cpu_shares 2")
	req.QOSClass = abi.QOSGuaranteed
	if _, err := a.handler.Handle(t.Context(), req, podCgroup+"/crio-c1.scope"); err != nil {
		t.Fatal(err)
	}
	if d, ok := a.state.Get(podCgroup + "/crio-c1.scope"); !ok || d.PodUID != "u1" || a.handler.Refused() != refused {
		t.Errorf("the state is %v, refused are %d", a.state.All(), a.handler.Refused())
	}
}
