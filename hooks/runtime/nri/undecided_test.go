package nri_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/runtime/hookstate"
	"github.com/kubewasm/kubewasm/hooks/runtime/internal/runtimetest"
	"github.com/kubewasm/kubewasm/host"
)

// A runtime goes on without a plugin that is away. What started meanwhile is counted, and said to
// whoever asks; what has what is decided, or was created under the plugin, is not.
func TestContainersThatStartedUndecidedAreCounted(t *testing.T) {
	node := runtimetest.NewRuntime(t)
	agent := runtimetest.NewAgent(t, runtimetest.Scripted, nil)
	socket := filepath.Join(t.TempDir(), "nri.sock")
	runtime := newPeer(t, socket)
	defer runtime.Stop()
	pod := func(name, script string) *api.PodSandbox {
		p := sandbox(node.Pod(abi.QOSBurstable, name), script)
		p.Id, p.Name, p.Uid = name, name, name
		return p
	}
	container := func(p *api.PodSandbox, shares int64) *api.Container {
		parent := p.Linux.CgroupParent[1:]
		c := nginx(parent)
		c.Id, c.PodSandboxId, c.Linux.CgroupsPath = p.Id+"c", p.Id, "/"+parent+"/"+p.Id+"c"
		node.Create(parent, c.Id, &hookmsg.Resources{CPUShares: &shares})
		return c
	}
	undecided, decided, nothing, created := pod("undecided", "cpu_shares 300"), pod("decided", "cpu_shares 300"), pod("nothing", ""), pod("created", "cpu_shares 300")
	runtime.pods = []*api.PodSandbox{undecided, decided, nothing}
	runtime.containers = []*api.Container{container(undecided, 2), container(decided, 300), container(nothing, 2)}
	run(t, agent, socket, node.Layout)
	runtime.wait(t)
	// This one is made with what the plugin decides, and written to before it starts.
	c := container(created, 2)
	if _, err := runtime.CreateContainer(t.Context(), &api.CreateContainerRequest{Pod: created, Container: c}); err != nil {
		t.Fatal(err)
	}
	if err := runtime.StartContainer(t.Context(), &api.StartContainerRequest{Pod: created, Container: c}); err != nil {
		t.Fatal(err)
	}
	state, err := hookstate.New(hookstate.Config{Engine: agent.Engine, State: agent.State, Enforcer: agent.Enforcer, Layout: node.Layout})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, p := range state.Node(hookstate.Query{}).Pods {
		for _, c := range p.Containers {
			got[p.Name] = c.StartedUndecided
		}
	}
	want := map[string]bool{"undecided": true, "decided": false, "nothing": false, "created": false}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if n := agent.State.StartedUndecided(); n != 1 {
		t.Errorf("%d containers started undecided, want 1", n)
	}
	// It ends.
	if _, err := runtime.StopContainer(t.Context(), &api.StopContainerRequest{Pod: undecided, Container: runtime.containers[0]}); err != nil {
		t.Fatal(err)
	}
	if n := agent.State.StartedUndecided(); n != 0 {
		t.Errorf("%d containers started undecided, want none", n)
	}
}

// A container that was refused has no cgroup; why is known until its pod ends.
func TestARefusalIsKnown(t *testing.T) {
	node := runtimetest.NewRuntime(t)
	agent := runtimetest.NewAgent(t, runtimetest.Scripted, nil)
	socket := filepath.Join(t.TempDir(), "nri.sock")
	runtime := newPeer(t, socket)
	defer runtime.Stop()
	run(t, agent, socket, node.Layout)
	runtime.wait(t)
	path := node.Pod(abi.QOSBurstable, "u1")
	state, err := hookstate.New(hookstate.Config{Engine: agent.Engine, State: agent.State, Enforcer: agent.Enforcer, Layout: node.Layout})
	if err != nil {
		t.Fatal(err)
	}
	query := hookstate.Query{Namespace: "shop", Pod: "web", Container: "nginx"}
	for range 2 {
		if _, err := runtime.CreateContainer(t.Context(), &api.CreateContainerRequest{Pod: sandbox(path, "error B is 2=3 there"), Container: nginx(path)}); err == nil {
			t.Fatal("the container is not refused")
		}
	}
	want := []hookstate.Failure{{Plugin: "p", FailurePolicy: host.Fail, Refused: true, Stage: "PreCreateContainer", Cause: "status", Message: `plugin "p": hook returned Error: B is 2=3 there`, Count: 2}}
	got := state.Node(query)
	if len(got.Pods) != 1 || len(got.Pods[0].Containers) != 1 {
		t.Fatalf("got %+v", got)
	}
	if diff := cmp.Diff(want, got.Pods[0].Containers[0].Failures, cmpopts.IgnoreTypes(time.Time{})); diff != "" {
		t.Error(diff)
	}
	// It is created now, with a variable that a plugin sets.
	if _, err := runtime.CreateContainer(t.Context(), &api.CreateContainerRequest{Pod: sandbox(path, "cpu_shares 300\nenv A hunter2hunter2"), Container: nginx(path)}); err != nil {
		t.Fatal(err)
	}
	c := state.Node(query).Pods[0].Containers[0]
	var names []string
	for _, f := range c.Fields {
		if f.Plugin == "p" {
			names = append(names, f.Name+" "+f.Decided)
		}
	}
	if diff := cmp.Diff([]string{"cpu_shares 300", "container_envs[A] "}, names); diff != "" || c.Failures != nil {
		t.Errorf("%s\nfailures are %v", diff, c.Failures)
	}
	if err := runtime.StopPodSandbox(t.Context(), &api.StopPodSandboxRequest{Pod: sandbox(path, "")}); err != nil {
		t.Fatal(err)
	}
	if got := state.Node(query); len(got.Pods) != 0 {
		t.Errorf("after the end of the pod there is %+v", got.Pods)
	}
	if left := agent.Engine.Subjects(func(pod hookmsg.PodMeta) bool { return pod != (hookmsg.PodMeta{}) }); len(left) != 0 {
		t.Errorf("after the end of the pod there is %+v", left)
	}
}
