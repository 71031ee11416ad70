package hooks_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
)

func ofPods(pod hookmsg.PodMeta) bool { return pod != hookmsg.PodMeta{} }

// What stands of decisions follows the events of a container.
func TestStandingDecisions(t *testing.T) {
	first, second := plugin(t, "first", scripted), plugin(t, "second", scripted)
	first.Order, second.Order = 1, 2
	second.FailurePolicy = host.KeepLast
	e := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{first, second}})
	// ask decides at a stage by a script for each plugin, and returns what stands, "plugin name value".
	var since map[string]time.Time
	ask := func(stage abi.Stage, id string, scripts ...string) (stands []string, failures []hooks.Failure) {
		t.Helper()
		req := &hookmsg.Request{
			Stage: stage, Level: abi.LevelContainer, QOSClass: abi.QOSBurstable, Pod: hookmsg.PodMeta{Namespace: "shop", Name: "web", UID: "u1"},
			Container: hookmsg.ContainerMeta{Name: "nginx", ID: id}, PodAnnotations: map[string]string{"first": scripts[0], "second": scripts[1]},
			ContainerEnvs: []hookmsg.Env{{Name: "TOKEN", Value: "hunter2hunter2"}},
		}
		e.Decide(t.Context(), req) // A refusal is among the failures.
		since = map[string]time.Time{}
		for _, s := range e.Subjects(ofPods) {
			if s.Container != req.Container {
				t.Errorf("the container is %v", s.Container)
			}
			for _, v := range s.Settings {
				name := v.Field.String()
				if v.Key != "" {
					name += "[" + v.Key + "]"
				}
				stands = append(stands, strings.TrimSpace(v.Plugin+" "+name+" "+v.Value))
				since[name] = v.Since
			}
			failures = append(failures, s.Failures...)
		}
		return stands, failures
	}
	same := func(what string, got, want []string) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	got, _ := ask(abi.PreCreateContainer, "c1", "cpu_shares 300\nenv A hunter2hunter2\nannotation a b", "cpuset_cpus 0-3\nunified io.weight \"100\"")
	begun := since
	same("a creation", got, []string{"first cpu_shares 300", "second cpuset_cpus 0-3", "second unified[io.weight] 100", "first container_annotations[a]", "first container_envs[A]"})
	got, _ = ask(abi.PostStartContainer, "c1", "cpu_shares 300", "cfs_quota_us 5000\nenv B 1")
	same("what a later event adds", got, []string{"first cpu_shares 300", "second cfs_quota_us 5000", "second cpuset_cpus 0-3", "second unified[io.weight] 100", "first container_annotations[a]", "first container_envs[A]"})
	if since["cpu_shares"] != begun["cpu_shares"] || !since["cfs_quota_us"].After(begun["cpu_shares"]) {
		t.Errorf("decided since %v, before since %v", since, begun)
	}
	got, _ = ask(abi.Reconcile, "c1", "cpu_shares 400", "cpuset_cpus 0-3")
	same("a list of what runs", got, []string{"first cpu_shares 400", "second cpuset_cpus 0-3", "first container_annotations[a]", "first container_envs[A]"})
	if since["cpu_shares"] == begun["cpu_shares"] || since["cpuset_cpus"] != begun["cpuset_cpus"] {
		t.Errorf("decided since %v, before since %v", since, begun)
	}
	got, failures := ask(abi.Reconcile, "c1", "cpu_shares 400", "error no hunter2hunter2")
	same("a decision that is kept", got, []string{"first cpu_shares 400", "second cpuset_cpus 0-3", "first container_annotations[a]", "first container_envs[A]"})
	want := []hooks.Failure{{Plugin: "second", Policy: host.KeepLast, Stage: abi.Reconcile, Cause: "status", Message: `plugin "second": hook returned Error: no xxxxxxxxxxxxxx`, Count: 1}}
	if diff := cmp.Diff(want, failures, cmpopts.IgnoreTypes(time.Time{})); diff != "" {
		t.Error(diff)
	}
	got, failures = ask(abi.PreUpdateContainerResources, "c1", "error refused", "")
	same("an update that is refused", got, []string{"first cpu_shares 400", "second cpuset_cpus 0-3", "first container_annotations[a]", "first container_envs[A]"})
	want = append(want, hooks.Failure{Plugin: "first", Policy: host.Fail, Refused: true, Stage: abi.PreUpdateContainerResources, Cause: "status", Message: `plugin "first": hook returned Error: refused`, Count: 1})
	if diff := cmp.Diff(want, failures, cmpopts.IgnoreTypes(time.Time{})); diff != "" {
		t.Error(diff)
	}
	got, failures = ask(abi.PreCreateContainer, "c2", "core_sched_group xhunter2hunter2", "unified cpu.hunter2hunter2 \"hunter2h\"")
	same("the container that replaces it", got, []string{"first core_sched_group xxxxxxxxxxxxxxx", "second unified[cpu.xxxxxxxxxxxxxx] xxxxxxxx"})
	if failures != nil {
		t.Errorf("failures are %v", failures)
	}
	// The other of that name ends.
	e.Decide(t.Context(), &hookmsg.Request{Stage: abi.PostStopContainer, Level: abi.LevelContainer, Pod: hookmsg.PodMeta{UID: "u1"}, Container: hookmsg.ContainerMeta{Name: "nginx", ID: "c1"}})
	if n := len(e.Subjects(ofPods)); n != 1 {
		t.Errorf("there are %d subjects, want 1", n)
	}
	e.Forget("u1")
	if s := e.Subjects(ofPods); s != nil {
		t.Errorf("after its pod has ended, there is %v", s)
	}
}

// A guest that decides much, and a node that is asked about without an end, take bounded memory.
func TestStandingDecisionsAreBounded(t *testing.T) {
	p := plugin(t, "p", scripted)
	e := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{p}})
	req := &hookmsg.Request{Stage: abi.Reconcile, Level: abi.LevelPod, Pod: hookmsg.PodMeta{Namespace: "shop", Name: "web", UID: "u1"}}
	script := "cpu_shares 300\n"
	for i := range 64 {
		script += fmt.Sprintf("unified misc.%d \"%s\"\n", i, strings.Repeat("x", 2000))
	}
	req.PodAnnotations = map[string]string{"p": script}
	for range 2 {
		if _, err := e.Decide(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		s := e.Subjects(ofPods)[0]
		if len(s.Settings) != 64 || s.More != 1 {
			t.Errorf("there are %d settings and %d more, want 64 and 1", len(s.Settings), s.More)
		}
		for _, v := range s.Settings {
			if len(v.Value) > 1<<10 {
				t.Errorf("%s has %d bytes", v.Key, len(v.Value))
			}
		}
	}
	req.PodAnnotations = nil
	e = engine(t, hooks.Config{Plugins: []hooks.PluginConfig{p}}) // Its instances have not grown.
	const most = 16 << 10
	for i := range most + 10 {
		req.Pod.UID = fmt.Sprint(i)
		if _, err := e.Decide(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(e.Subjects(ofPods)); n != most {
		t.Errorf("there are %d subjects, want %d", n, most)
	}
	e.Forget("1")
	req.Pod.UID = "late"
	if _, err := e.Decide(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if s := e.Subjects(func(pod hookmsg.PodMeta) bool { return pod.UID == "late" }); len(s) != 1 {
		t.Errorf("after one has ended, another is not known: %v", s)
	}
}
