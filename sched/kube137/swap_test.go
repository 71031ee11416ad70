package kube137_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/shadow"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/sched"
	"github.com/kubewasm/kubewasm/sched/kube137"
	"github.com/kubewasm/kubewasm/sched/kube137/kube137test"
)

// changed returns a module with other bytes in place of some.
func changed(t *testing.T, file, old, replacement string) host.Source {
	t.Helper()
	module, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(old) != len(replacement) || !bytes.Contains(module, []byte(old)) {
		t.Fatalf("%q cannot become %q", old, replacement)
	}
	return host.Bytes(bytes.ReplaceAll(module, []byte(old), []byte(replacement)))
}

// TestACycleEndsOnItsVersion swaps the module in the middle of a cycle.
func TestACycleEndsOnItsVersion(t *testing.T) {
	p := loadScripted(t, all, abi.Unschedulable, 0)
	old := &cycle{t, p, pod("p", ""), kube137test.NewCycleState()}
	n := node("n", "a")
	if got := text(old.filter(n)); got != "Unschedulable: because" {
		t.Fatalf("got %s", got)
	}
	if err := p.Swap(t.Context(), changed(t, "../testdata/scripted.wasm", "because", "renewed"), ""); err != nil {
		t.Fatal(err)
	}
	fresh := &cycle{t, p, pod("q", ""), kube137test.NewCycleState()}
	for range 3 {
		if got := text(old.filter(n)); got != "Unschedulable: because" {
			t.Errorf("the cycle that had begun: got %s", got)
		}
		if got := text(fresh.filter(n)); got != "Unschedulable: renewed" {
			t.Errorf("the cycle that began after the swap: got %s", got)
		}
	}
	if got := kube137.Stats(p).Retired; got != 1 {
		t.Errorf("%d versions are retired, want 1", got)
	}
	// The version goes with its last cycle.
	runtime.KeepAlive(old)
	old = nil
	for deadline := time.Now().Add(time.Minute); kube137.Stats(p).Retired != 0; runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatal("the old version stays, though no cycle needs it")
		}
	}
}

// TestACandidateIsPromoted asks a candidate, and a profile, beside a plugin as a factory returns it.
func TestACandidateIsPromoted(t *testing.T) {
	p := loadScripted(t, all, abi.Unschedulable, 0)
	candidate, err := changed(t, "../testdata/scripted.wasm", "because", "renewed").Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "candidate.wasm")
	if err := os.WriteFile(file, candidate, 0o600); err != nil {
		t.Fatal(err)
	}
	if p.Shadow() != nil || p.Profile() != nil {
		t.Error("there is a shadow or a profile that nobody began")
	}
	if err := errors.Join(p.BeginShadow(t.Context(), shadow.Config{Module: host.ModuleConfig{File: file}, Rate: 1, CPU: 1}), p.BeginProfile(t.Context(), 1)); err != nil {
		t.Fatal(err)
	}
	n := node("n", "a")
	for i := 0; p.Shadow().Status().Compared == 0 || p.Profile().Profile() == nil; i++ {
		c := &cycle{t, p, pod(fmt.Sprint("p", i), ""), kube137test.NewCycleState()}
		c.preFilter()
		c.filter(n)
		select {
		case <-t.Context().Done():
			t.Fatalf("shadow %+v, profile %+v", p.Shadow().Status(), p.Profile().Status())
		case <-time.After(time.Millisecond):
		}
	}
	if got := p.Profile().Profile(); got.Calls == 0 || got.Fuel() == 0 {
		t.Errorf("profile %+v", got)
	}
	if err := p.Shadow().Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := &cycle{t, p, pod("q", ""), kube137test.NewCycleState()}
	if got := text(c.filter(n)); got != "Unschedulable: renewed" {
		t.Errorf("after the promotion: got %s", got)
	}
}

func TestAVersionWithOtherEventsIsRefused(t *testing.T) {
	p := load(t, host.Config{
		Name: "events", Module: host.ModuleConfig{File: "../testdata/peer/present.wasm"}, Grants: []string{sched.GrantEvents, sched.GrantWaitingPods},
	})
	// Add and UpdateNodeLabel becomes Add alone.
	other := changed(t, "../testdata/peer/present.wasm", "\x01\x00\x00\x00\x09\x00\x00\x00\x00", "\x01\x00\x00\x00\x01\x00\x00\x00\x00")
	if err := p.Swap(t.Context(), other, ""); err == nil || !strings.Contains(err.Error(), "registers for different cluster events") {
		t.Errorf("got error %v", err)
	}
}

// TestSideBySide holds that plugins of one module have their own names,
// configurations and logs.
func TestSideBySide(t *testing.T) {
	file := buildZone(t)
	var out bytes.Buffer
	var plugins []kube137.Plugin
	for _, zone := range []string{"a", "b"} {
		args := fmt.Sprintf(`{"module": {"file": %q}, "guestConfig": {"defaultZones": [%q]}}`, file, zone)
		p, err := kube137.New("zone-"+zone, shared, func(c *sched.PluginConfig) { c.Logger = slog.New(slog.NewTextHandler(&out, nil)) })(t.Context(), &apiruntime.Unknown{Raw: []byte(args)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		plugins = append(plugins, p.(kube137.Plugin))
	}
	plain := pod("p", "")
	delete(plain.Annotations, "kubewasm.dev/zones")
	// One CycleState serves both.
	state := kube137test.NewCycleState()
	for i, p := range plugins {
		zone := string("ab"[i])
		if p.Name() != "zone-"+zone {
			t.Errorf("name is %s", p.Name())
		}
		c := &cycle{t, p, plain, state}
		if _, status := c.preFilter(); !status.IsSuccess() {
			t.Fatal(status.AsError())
		}
	}
	for i, p := range plugins {
		c := &cycle{t, p, plain, state}
		for _, zone := range []string{"a", "b"} {
			if got, want := c.filter(node("n-"+zone, zone)).IsSuccess(), zone == string("ab"[i]); got != want {
				t.Errorf("%s: a node in zone %s fits is %v, want %v", p.Name(), zone, got, want)
			}
		}
	}
}

// TestEveryMistakeOfTheArguments holds that a user does not have to correct them
// one by one.
func TestEveryMistakeOfTheArguments(t *testing.T) {
	const args = `{"module": {"file": "x", "https": "https://example.com/x.wasm", "follow": true, "sha256": "xyz"}, "failurePolicy": "Maybe", "grants": ["nope", "clock"],
		"objects": [{"resource": "pods"}], "reads": ["node.metadat"], "circuitBreaker": {"after": 0, "ratio": 1}, "limits": {"fuel": -1, "heldInstances": -2},
		"grant": ["events"], "timeOut": "1s"}`
	_, err := kube137.New("zone", shared)(t.Context(), &apiruntime.Unknown{Raw: []byte(args)}, nil)
	for _, want := range []string{
		"module has file and https, want one of them", "module.follow needs a file", "module.follow and sha256 exclude each other", `failurePolicy is "Maybe"`, `objects: "pods" is not`,
		`field path "node.metadat"`, "circuitBreaker.after must be more than 0", "circuitBreaker.ratio is 1", `module.sha256 "xyz" is not 64`, `grant "nope" is unknown`, "limits.fuel is -1", "limits.heldInstances is -2",
		`unknown field "grant"`, `unknown field "timeOut"`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %s:\n%v", want, err)
		}
	}
}

// TestLimitsOfTheProgram holds that limits that an option sets hold until the
// arguments name others.
func TestLimitsOfTheProgram(t *testing.T) {
	file, err := guestbuild.Build(t.Context(), "../testdata/extensions")
	if err != nil {
		t.Fatal(err)
	}
	grants := `"grants": ["events", "waiting-pods", "objects"]`
	factory := kube137.New("extensions", shared, func(c *sched.PluginConfig) { c.Module.Source, c.Limits = host.File(file), host.Limits{Fuel: 1} })
	if _, err := factory(t.Context(), &apiruntime.Unknown{Raw: []byte("{" + grants + "}")}, nil); !errors.Is(err, host.ErrFuel) {
		t.Errorf("with 1 instruction: error %v, want %v", err, host.ErrFuel)
	}
	if _, err := factory(t.Context(), &apiruntime.Unknown{Raw: []byte(`{"limits": {"fuel": 100000000}, ` + grants + "}")}, nil); err != nil {
		t.Error(err)
	}
}

func TestDisabledPluginAndSource(t *testing.T) {
	file, err := guestbuild.Build(t.Context(), "../testdata/extensions")
	if err != nil {
		t.Fatal(err)
	}
	args := `{"grants": ["events", "waiting-pods", "objects"], "circuitBreaker": {"after": 1, "backoff": "1h"}}`
	p, err := kube137.New("extensions", shared, func(c *sched.PluginConfig) { c.Module.Source = host.File(file) })(t.Context(), &apiruntime.Unknown{Raw: []byte(args)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	bad := noted("bad", "filter", "panic")
	var last string
	for range 4 {
		last = text(p.(fwk.FilterPlugin).Filter(t.Context(), kube137test.NewCycleState(), bad, kube137test.NewNodeInfo(zoned("n", "a"))))
	}
	if !strings.Contains(last, "plugin is disabled for another") {
		t.Errorf("got %s", last)
	}
}

// TestPodsThatAreGoneAreForgotten holds that the slots in use do not grow with the
// Pods that there ever were, whatever the guest implements.
func TestPodsThatAreGoneAreForgotten(t *testing.T) {
	p := loadScripted(t, abi.MaskOf(abi.Score, abi.PreEnqueue, abi.QueueSort), abi.Success, 0)
	// The score of the guest is minus the slot of the node.
	slot := func(name string, pod *corev1.Pod) int64 {
		score, status := p.(fwk.ScorePlugin).Score(t.Context(), kube137test.NewCycleState(), pod, kube137test.NewNodeInfo(node(name, "")))
		if !status.IsSuccess() {
			t.Fatal(status.AsError())
		}
		return -score
	}
	for i := range 10_000 {
		a, b := noted(fmt.Sprint("a", i)), noted(fmt.Sprint("b", i))
		switch i % 3 {
		case 0:
			p.(fwk.PreEnqueuePlugin).PreEnqueue(t.Context(), a)
		case 1:
			p.(fwk.QueueSortPlugin).Less(kube137test.QueuedPod{Pod: a}, kube137test.QueuedPod{Pod: b})
		case 2:
			slot("n", a)
		}
	}
	if got := slot("another", noted("last")); got > 6000 {
		t.Errorf("the slot of a new node is %d", got)
	}
}
