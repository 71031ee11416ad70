package kube137_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/sched"
	"github.com/kubewasm/kubewasm/sched/kube137"
	"github.com/kubewasm/kubewasm/sched/kube137/kube137test"
)

// scripted returns the configuration of a guest with functions that answer with a code.
func scripted(mask abi.Mask, code abi.Code) sched.PluginConfig {
	return sched.PluginConfig{Config: host.Config{
		Name: "scripted", Module: host.ModuleConfig{File: "../testdata/scripted.wasm"}, GuestConfig: script(mask, code, 0), Limits: host.Limits{Instances: 1},
	}}
}

// replaceable loads a plugin that may be replaced.
func replaceable(t *testing.T, cfg sched.PluginConfig, absent error) kube137.Replaceable {
	t.Helper()
	p, err := kube137.LoadReplaceable(t.Context(), shared, cfg, absent, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestAPluginIsReplacedInTheMiddleOfACycle holds that a cycle ends on the guest and the configuration
// on which it began, and that a guest is freed with its last cycle.
func TestAPluginIsReplacedInTheMiddleOfACycle(t *testing.T) {
	before := len(shared.Plugins())
	p := replaceable(t, scripted(all, abi.Unschedulable), nil)
	old := begun(t, p)
	n := node("n", "a")
	if got := text(old.filter(n)); got != "Unschedulable: because" {
		t.Fatalf("got %s", got)
	}
	if err := p.Replace(t.Context(), scripted(all, abi.UnschedulableAndUnresolvable), nil); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if got := text(old.filter(n)); got != "Unschedulable: because" {
			t.Errorf("the cycle that had begun: got %s", got)
		}
		if got := text(begun(t, p).filter(n)); got != "UnschedulableAndUnresolvable: because" {
			t.Errorf("a cycle that began later: got %s", got)
		}
	}
	clone := &cycle{t, p, old.pod, old.state.Clone()}
	if got := text(clone.filter(n)); got != "Unschedulable: because" {
		t.Errorf("a clone of the cycle that had begun: got %s", got)
	}
	runtime.KeepAlive(old)
	old, clone = nil, nil
	for deadline := time.Now().Add(time.Minute); len(shared.Plugins()) != before+1; runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatalf("%d guests are loaded, though no cycle needs the first", len(shared.Plugins()))
		}
	}
}

// begun returns a cycle that has no PreFilter: it begins with its first call.
func begun(t *testing.T, p kube137.Plugin) *cycle {
	return &cycle{t, p, pod("p", ""), kube137test.NewCycleState()}
}

// TestAPluginIsReplaced changes the functions of a guest, and takes it away.
func TestAPluginIsReplaced(t *testing.T) {
	away := errors.New("there is no SchedulerPlugin of this name")
	n := node("n", "a")
	absent := sched.PluginConfig{Config: host.Config{Name: "scripted"}}
	ignored := absent
	ignored.FailurePolicy = host.Ignore
	p := replaceable(t, absent, away)
	// state returns the answers of a cycle.
	state := func() (answers []string) {
		t.Helper()
		c := begun(t, p)
		_, s := c.preFilter()
		answers = append(answers, "PreFilter "+text(s))
		if s.IsSuccess() || s.IsSkip() {
			answers = append(answers, "Filter "+text(c.filter(n)))
			score, s := p.(fwk.ScorePlugin).Score(t.Context(), c.state, c.pod, kube137test.NewNodeInfo(n))
			answers = append(answers, "Score "+text(s))
			if score != 0 {
				answers = append(answers, "a score")
			}
		}
		if p.Name() != "scripted" {
			t.Errorf("the name is %q", p.Name())
		}
		return answers
	}
	for _, step := range []struct {
		name   string
		cfg    sched.PluginConfig
		absent error
		want   []string
	}{
		{"absent, and each Pod fails", absent, away, []string{`PreFilter Error: plugin "scripted": there is no SchedulerPlugin of this name`}},
		{"a guest with Filter", scripted(abi.MaskOf(abi.Filter), abi.Unschedulable), nil, []string{"PreFilter Success", "Filter Unschedulable: because", "Score Success"}},
		{"a guest with Score alone", scripted(abi.MaskOf(abi.Score), abi.Success), nil, []string{"PreFilter Skip", "Filter Success", "Score Success", "a score"}},
		{"absent, and ignored", ignored, away, []string{"PreFilter Skip", "Filter Success", "Score Success"}},
		{"a guest with PreFilter", scripted(abi.MaskOf(abi.PreFilter), abi.Unschedulable), nil, []string{"PreFilter Unschedulable: because"}},
	} {
		if err := p.Replace(t.Context(), step.cfg, step.absent); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if diff := cmp.Diff(step.want, state()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
		if (p.Guest() == nil) != (step.absent != nil) {
			t.Errorf("%s: the guest is %v", step.name, p.Guest())
		}
	}
	if got := state(); len(got) != 1 || got[0] != "PreFilter Unschedulable: because" {
		t.Fatalf("got %s", got)
	}
	for name, cfg := range map[string]sched.PluginConfig{
		"missing module": {Config: host.Config{Name: "scripted", Module: host.ModuleConfig{File: "none.wasm"}}},
		"other name":     {Config: host.Config{Name: "other", Module: host.ModuleConfig{File: "../testdata/scripted.wasm"}}},
		"sorts":          scripted(abi.MaskOf(abi.QueueSort), abi.Success),
	} {
		if err := p.Replace(t.Context(), cfg, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
		if got := state(); len(got) != 1 || got[0] != "PreFilter Unschedulable: because" {
			t.Errorf("%s: the guest before does not serve on: %s", name, got)
		}
	}
}

// TestAGuestThatTheSchedulerWasNotAskedFor is refused.
func TestAGuestThatTheSchedulerWasNotAskedFor(t *testing.T) {
	present := func(module host.ModuleConfig) sched.PluginConfig {
		return sched.PluginConfig{Config: host.Config{Name: "scripted", Module: module, Grants: []string{sched.GrantEvents, sched.GrantWaitingPods}}}
	}
	file := host.ModuleConfig{File: "../testdata/peer/present.wasm"}
	p := replaceable(t, present(file), nil)
	if _, ok := p.(fwk.EnqueueExtensions); !ok {
		t.Fatal("the plugin registers for no event")
	}
	other := changed(t, file.File, "\x01\x00\x00\x00\x09\x00\x00\x00\x00", "\x01\x00\x00\x00\x01\x00\x00\x00\x00")
	for name, tt := range map[string]struct {
		cfg  sched.PluginConfig
		want string
	}{
		"sorts the queue":      {scripted(abi.MaskOf(abi.Score, abi.QueueSort), abi.Success), "the guest sorts the queue"},
		"generates placements": {scripted(abi.MaskOf(abi.Score, abi.GeneratePlacements), abi.Success), "the guest generates placements"},
		"other events":         {present(host.ModuleConfig{Source: other}), "the guest registers for different cluster events"},
		"no events":            {scripted(abi.MaskOf(abi.Filter), abi.Success), "the guest registers for different cluster events"},
		"the same":             {present(file), ""},
		"rejects nothing":      {scripted(abi.MaskOf(abi.Score), abi.Success), ""},
	} {
		err := p.Replace(t.Context(), tt.cfg, nil)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "restart")) {
			t.Errorf("%s: got error %v, want %q", name, err, tt.want)
		}
	}
}

// TestSignaturesOutliveTheirGuest takes the guest away that has signed the queued Pods: the next may
// depend on no more of them than it did.
func TestSignaturesOutliveTheirGuest(t *testing.T) {
	reading := func(label string) sched.PluginConfig {
		cfg := scripted(abi.MaskOf(abi.Filter), abi.Success)
		cfg.Reads = []string{"-pod.metadata.name", "-pod.metadata.uid", "pod.metadata.labels[" + label + "]"}
		return cfg
	}
	p := replaceable(t, reading("rank"), nil)
	if list, s := p.(fwk.SignPlugin).SignPod(t.Context(), pod("p", "")); len(list) == 0 || !s.IsSuccess() {
		t.Fatalf("the host does not sign for the guest: %v, %v", list, text(s))
	}
	absent := sched.PluginConfig{Config: host.Config{Name: "scripted"}, FailurePolicy: host.Ignore}
	if err := p.Replace(t.Context(), absent, errors.New("it was deleted")); err != nil {
		t.Fatal(err)
	}
	if err := p.Replace(t.Context(), reading("tier"), nil); err == nil || !strings.Contains(err.Error(), "without it: restart the scheduler") {
		t.Errorf("a guest that reads another label: error %v", err)
	}
	if err := p.Replace(t.Context(), reading("rank"), nil); err != nil {
		t.Errorf("a guest that reads the same label: %v", err)
	}
}

// TestAnAbsentGuestIsNeutral calls every method of a plugin without a guest.
func TestAnAbsentGuestIsNeutral(t *testing.T) {
	cfg := sched.PluginConfig{Config: host.Config{Name: "none"}, FailurePolicy: host.Ignore}
	why := errors.New("not there")
	p := replaceable(t, cfg, why)
	state, of, n := kube137test.NewCycleState(), pod("p", ""), kube137test.NewNodeInfo(node("n", "a"))
	ctx := t.Context()
	all := p.(interface {
		fwk.PreEnqueuePlugin
		fwk.PreFilterPlugin
		fwk.PreScorePlugin
		fwk.ReservePlugin
		fwk.PermitPlugin
		fwk.PreBindPlugin
		fwk.BindPlugin
		fwk.PostBindPlugin
		fwk.SignPlugin
	})
	_, preFilter := all.PreFilter(ctx, state, of, nil)
	_, post := p.(fwk.PostFilterPlugin).PostFilter(ctx, state, of, nil)
	score := p.(fwk.ScorePlugin)
	_, scored := score.Score(ctx, state, of, n)
	permit, _ := all.Permit(ctx, state, of, "n")
	_, flight := all.PreBindPreFlight(ctx, state, of, "n")
	_, sign := all.SignPod(ctx, of)
	all.Unreserve(ctx, state, of, "n")
	all.PostBind(ctx, state, of, "n")
	got := map[string]string{
		"PreEnqueue": text(all.PreEnqueue(ctx, of)), "PreFilter": text(preFilter), "PostFilter": text(post), "Score": text(scored), "Permit": text(permit),
		"AddPod":    text(all.PreFilterExtensions().AddPod(ctx, state, of, kube137test.PodInfo{Pod: &corev1.Pod{}}, n)),
		"RemovePod": text(all.PreFilterExtensions().RemovePod(ctx, state, of, kube137test.PodInfo{Pod: &corev1.Pod{}}, n)),
		"Filter":    text(p.(fwk.FilterPlugin).Filter(ctx, state, of, n)), "PreScore": text(all.PreScore(ctx, state, of, nil)),
		"NormalizeScore": text(score.ScoreExtensions().NormalizeScore(ctx, state, of, nil)), "Reserve": text(all.Reserve(ctx, state, of, "n")),
		"PreBindPreFlight": text(flight), "PreBind": text(all.PreBind(ctx, state, of, "n")), "Bind": text(all.Bind(ctx, state, of, "n")), "SignPod": text(sign),
	}
	want := map[string]string{}
	for name := range got {
		want[name] = "Success"
	}
	for _, name := range []string{"PreFilter", "PreScore", "PreBindPreFlight", "Bind"} {
		want[name] = "Skip"
	}
	want["PostFilter"] = "Unschedulable"
	want["SignPod"] = "Unschedulable: the plugin has no guest, and the next one may look at all of a Pod" // A later guest relies on signatures.
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, err := range map[string]error{"swap": p.Swap(ctx, nil, ""), "follow": p.Follow(ctx, host.FollowOptions{}), "profile": p.BeginProfile(ctx, 1), "close": p.Close(ctx)} {
		if (name == "close") != (err == nil) || err != nil && !errors.Is(err, why) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
