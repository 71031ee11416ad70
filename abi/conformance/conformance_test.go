package conformance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/conformance"
	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/framework"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/json/jsonpatch"
	"github.com/kubewasm/kubewasm/internal/manifest"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
	toolchains "github.com/kubewasm/kubewasm/internal/testkit/languages"
	"github.com/kubewasm/kubewasm/sched"
)

// languages say where a guest comes from, and which there are if not all.
var languages = []struct {
	name   string
	guests []string
	guest  func(t *testing.T, name string) string
}{
	{"Go", nil, func(t *testing.T, name string) string {
		file, err := guestbuild.Build(t.Context(), filepath.Join("testdata", "guests", name))
		if err != nil {
			t.Fatal(err)
		}
		return file
	}},
	{"C", nil, compileC},
	{"Rust", nil, compileRust},
	{"AssemblyScript", nil, compileAssemblyScript},
	{"WebAssembly text", []string{"scheduler", "queue", "admission", "hook"}, func(t *testing.T, name string) string {
		return filepath.Join("testdata", name+".wasm")
	}},
}

// compileAssemblyScript compiles a guest of the package of npm.
func compileAssemblyScript(t *testing.T, name string) string {
	return toolchains.Build(t, filepath.Join("assemblyscript", name))
}

// compileC compiles a guest of the SDK in C.
func compileC(t *testing.T, name string) string { return toolchains.Build(t, filepath.Join("c", name)) }

// rustGuests compiles the guests in Rust, all at once, and returns their directory.
var rustGuests = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "conformance-rust")
	if err != nil {
		return "", err
	}
	cleanUp = append(cleanUp, func() { os.RemoveAll(dir) })
	return dir, guestbuild.RustExamples(context.Background(), "rust", dir)
})

// cleanUp has what is done after all tests.
var cleanUp []func()

func TestMain(m *testing.M) {
	code := m.Run()
	for _, f := range cleanUp {
		f()
	}
	os.Exit(checkTable(code))
}

func compileRust(t *testing.T, name string) string {
	dir, err := rustGuests()
	toolchains.Check(t, err)
	return filepath.Join(dir, name+".wasm")
}

// check makes the calls of a suite on a guest.
type check func(t *testing.T, rt *host.Runtime, guest string, s *Suite)

// onCases makes the calls of cases.yaml.
func onCases(c check) func(t *testing.T, rt *host.Runtime, guest string) {
	return func(t *testing.T, rt *host.Runtime, guest string) { c(t, rt, guest, readCases(t, conformance.Cases())) }
}

// run runs the cases of a guest against it in each language.
func run(t *testing.T, name string, cases func(t *testing.T, rt *host.Runtime, guest string)) {
	if err := guestbuild.TrackSources("."); err != nil {
		t.Fatal(err)
	}
	rt, err := host.NewRuntime(compiled.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rt.Close(context.Background()) })
	for _, language := range languages {
		if language.guests != nil && !slices.Contains(language.guests, name) {
			continue
		}
		record(t, language.name, func(t *testing.T) { cases(t, rt, language.guest(t, name)) })
	}
}

func meta(o Object) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Name: o.Name, Labels: o.Labels, Annotations: maps.Clone(o.Annotations)}
	if o.Pad > 0 {
		if m.Annotations == nil {
			m.Annotations = map[string]string{}
		}
		m.Annotations["pad"] = strings.Repeat("x", o.Pad)
	}
	return m
}

func nodeObject(o Object) *corev1.Node {
	node := &corev1.Node{ObjectMeta: meta(o)}
	for _, key := range o.Taints {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
	}
	return node
}

func TestScheduler(t *testing.T) { run(t, "scheduler", onCases(schedulerCases)) }

func schedulerCases(t *testing.T, rt *host.Runtime, guest string, s *Suite) {
	for _, c := range s.Scheduler {
		t.Run(c.Name, func(t *testing.T) {
			var logged strings.Builder
			p, err := sched.Load(t.Context(), rt, sched.PluginConfig{Config: host.Config{
				Name: "guest", Module: host.ModuleConfig{File: guest}, GuestConfig: []byte(c.Config), Limits: host.Limits{Instances: 1},
				Logger: slog.New(slog.NewTextHandler(&logged, nil)),
			}}, framework.Of(nil))
			schedule(t, p, err, &logged, c)
		})
	}
}

// TestSchedulerThatDeclaresWhatItReads makes the same calls on a host that encodes the fields that
// the guest reads, as soon as an object comes, and cuts parts and entries out of that.
func TestSchedulerThatDeclaresWhatItReads(t *testing.T) { run(t, "scheduler", onCases(declaredCases)) }

func declaredCases(t *testing.T, rt *host.Runtime, guest string, s *Suite) {
	for _, c := range s.Scheduler {
		if c.Refused {
			continue // There is no object.
		}
		t.Run(c.Name, func(t *testing.T) {
			var logged strings.Builder
			args := fmt.Sprintf(`{"module": {"file": %q}, "limits": {"instances": 1}, "guestConfig": %s, "reads": [
				"pod.metadata.labels", "node.metadata.labels", "node.metadata.annotations[closed]", "node.spec.taints"]}`, guest, c.Config)
			p, err := sched.LoadArgs(t.Context(), rt, "guest", &runtime.Unknown{Raw: []byte(args)}, framework.Of(nil),
				func(c *sched.PluginConfig) { c.Logger = slog.New(slog.NewTextHandler(&logged, nil)) })
			schedule(t, p, err, &logged, c)
		})
	}
}

// schedule makes the calls of a case on a plugin that was loaded, or not, and logged
// something meanwhile.
func schedule(t *testing.T, p *sched.Plugin, err error, logged *strings.Builder, c SchedulerCase) {
	if c.Refused {
		var status *host.StatusError
		if !errors.As(err, &status) || c.Reason != "" && status.Reason != c.Reason {
			t.Fatalf("configure: got error %v, want the reason %q", err, c.Reason)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(context.Background())
	if want := "level=INFO msg=configured plugin=guest function=configure guest.label=" + c.Logged + "\n"; c.Logged != "" && !strings.Contains(logged.String(), want) {
		t.Errorf("logged %s, want %s", logged.String(), want)
	}
	var cycle *sched.Cycle
	for n, step := range c.Steps {
		check := func(got *sched.Status, want Status) {
			t.Helper()
			if want.Code == "" {
				want.Code = "Success"
			}
			if diff := cmp.Diff(want, Status{Code: got.Code().String(), Reason: got.Message()}); diff != "" {
				t.Errorf("step %d: status (-want +got):\n%s", n, diff)
			}
		}
		switch {
		case step.PreFilter != nil:
			cycle = p.Begin(&corev1.Pod{ObjectMeta: meta(step.PreFilter.Pod)})
			nodes, status := p.PreFilter(cycle, nil)
			check(status, step.PreFilter.Want)
			if diff := cmp.Diff(step.PreFilter.Nodes, nodes); diff != "" {
				t.Errorf("step %d: nodes (-want +got):\n%s", n, diff)
			}
		case step.Filter != nil:
			for range max(step.Filter.Repeat, 1) {
				status := p.Filter(cycle, framework.NewNodeInfo(nodeObject(step.Filter.Node)))
				if !step.Filter.Traps {
					check(status, step.Filter.Want)
				} else if !errors.As(status.AsError(), new(*host.TrapError)) {
					t.Errorf("step %d: got %v, want a trap", n, status)
				}
			}
		case step.Score != nil:
			score, status := p.Score(cycle, framework.NewNodeInfo(nodeObject(step.Score.Node)))
			if check(status, step.Score.Want); score != step.Score.Score {
				t.Errorf("step %d: score %d, want %d", n, score, step.Score.Score)
			}
		case step.NormalizeScore != nil:
			var scores framework.Scores
			for _, s := range step.NormalizeScore.Scores {
				scores = append(scores, framework.Score{Name: s.Name, Score: s.Score})
			}
			for i := range step.NormalizeScore.More {
				scores = append(scores, framework.Score{Name: fmt.Sprintf("%s-%d", strings.Repeat("node", 20), i)})
			}
			check(p.NormalizeScore(cycle, scores), Status{})
			var got []Score
			for i, s := range scores {
				if i < len(step.NormalizeScore.Scores) {
					got = append(got, Score{Name: s.Name, Score: s.Score})
				} else if s.Score != 100 {
					t.Fatalf("step %d: %s has the score %d, want 100", n, s.Name, s.Score)
				}
			}
			if diff := cmp.Diff(step.NormalizeScore.Want, got); diff != "" {
				t.Errorf("step %d: scores (-want +got):\n%s", n, diff)
			}
		default:
			t.Fatalf("step %d is none", n)
		}
	}
}

func TestAdmission(t *testing.T) { run(t, "admission", onCases(admissionCases)) }

func admissionCases(t *testing.T, rt *host.Runtime, guest string, s *Suite) {
	p, err := admission.Load(t.Context(), rt, admission.PluginConfig{AllowedToMutate: true, Config: host.Config{
		Name: "guest", Module: host.ModuleConfig{File: guest}, Limits: host.Limits{Instances: 1},
	}, Cluster: lookups(t, s), Objects: []host.ObjectGrant{{Resource: "v1/configmaps"}}})
	if err != nil {
		t.Fatal(err)
	}
	engine := admission.NewEngine(p)
	defer engine.Close(context.Background())
	for _, c := range s.Admission {
		t.Run(c.Name, func(t *testing.T) { admit(t, engine, c) })
	}
	if p.Guest().Module().Import(abi.ModuleObjects, "list_objects") == "" {
		return // The guest in text looks nothing up.
	}
	for _, c := range s.Lookup.Cases {
		t.Run(c.Name, func(t *testing.T) { admit(t, engine, c) })
	}
}

func TestConversions(t *testing.T) { run(t, "admission", onCases(conversionCases)) }

func conversionCases(t *testing.T, rt *host.Runtime, guest string, s *Suite) {
	p, err := admission.Load(t.Context(), rt, admission.PluginConfig{
		Config:   host.Config{Name: "guest", Module: host.ModuleConfig{File: guest}, Grants: []string{host.GrantObjects}, Limits: host.Limits{Instances: 1}},
		Converts: []metav1.GroupKind{{Group: "example.com", Kind: "Widget"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	engine := admission.NewEngine(p)
	defer engine.Close(context.Background())
	for _, c := range s.Conversions {
		t.Run(c.Name, func(t *testing.T) {
			desired, err := schema.ParseGroupVersion(c.Desired)
			if err != nil {
				t.Fatal(err)
			}
			converted, err := engine.Convert(t.Context(), &admission.ConversionRequest{
				UID: "1", Desired: desired, Kind: "Widget",
				Objects: [][]byte{[]byte(`{"apiVersion":"example.com/v1alpha1","kind":"Widget","metadata":{"name":"w"},"spec":{"size":1}}`)},
			})
			switch {
			case c.Want == "" && (err == nil || !strings.Contains(err.Error(), c.Message)):
				t.Errorf("converted to %s, %v; want the error %s", converted, err, c.Message)
			case c.Want != "" && (err != nil || !jsonpatch.Equal(converted[0], []byte(c.Want))):
				t.Errorf("converted to %s, %v; want %s", converted, err, c.Want)
			}
		})
	}
}

// lookups is a cluster of what the cases look up.
func lookups(t *testing.T, s *Suite) admission.Cluster {
	t.Helper()
	objects := &manifest.Objects{}
	for _, c := range s.Lookup.ConfigMaps {
		o := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: meta(Object{Name: c.Name, Pad: c.Pad})}
		if o.Namespace = c.Namespace; c.Tier != "" {
			o.Labels = map[string]string{"tier": c.Tier}
		}
		raw, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		objects.All = append(objects.All, manifest.Object{TypeMeta: o.TypeMeta, Namespace: o.Namespace, Name: o.Name, JSON: raw})
	}
	cluster, err := manifest.NewCluster(objects)
	if err != nil {
		t.Fatal(err)
	}
	return cluster
}

func admit(t *testing.T, engine *admission.Engine, c AdmissionCase) {
	request := &admissionv1.AdmissionRequest{
		UID: "1", Name: c.Object.Name, Operation: admissionv1.Create, Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
	}
	object, err := json.Marshal(&corev1.Pod{ObjectMeta: meta(c.Object)})
	if err != nil {
		t.Fatal(err)
	}
	if request.Object = (runtime.RawExtension{Raw: object}); c.Operation == string(admissionv1.Delete) {
		request.Operation, request.OldObject, request.Object = admissionv1.Delete, request.Object, runtime.RawExtension{}
	}
	if c.Old != nil {
		request.Operation = admissionv1.Operation(c.Operation)
		if request.OldObject.Raw, err = json.Marshal(&corev1.Pod{ObjectMeta: meta(*c.Old)}); err != nil {
			t.Fatal(err)
		}
	}
	request.Options.Raw = []byte(c.Options)
	ask := engine.Validate
	if c.Mutate {
		ask = engine.Mutate
	}
	response := ask(t.Context(), request)
	if c.Want == "fail" {
		if response.Allowed || response.Result.Code != 500 || !strings.Contains(response.Result.Message, c.Message) {
			t.Errorf("got %+v, want a failure: %s", response, c.Message)
		}
		return
	}
	got := AdmissionCase{
		Name: c.Name, Operation: c.Operation, Object: c.Object, Old: c.Old, Options: c.Options,
		Mutate: c.Mutate, Want: "allow", Warnings: response.Warnings,
	}
	if len(response.Patch) != 0 {
		changed, err := jsonpatch.Apply(request.Object.Raw, response.Patch)
		if err != nil {
			t.Fatal(err)
		}
		if got.Changed = string(changed); jsonpatch.Equal(changed, []byte(c.Changed)) {
			got.Changed = c.Changed // The order of members is free.
		}
	}
	for key, value := range response.AuditAnnotations {
		got.Annotations = map[string]string{strings.TrimPrefix(key, "guest."): value}
	}
	if !response.Allowed {
		got.Want, got.Code, got.Message = "deny", response.Result.Code, strings.TrimPrefix(response.Result.Message, "guest: ")
	}
	if diff := cmp.Diff(c, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("verdict (-want +got):\n%s", diff)
	}
}

func TestHook(t *testing.T) { run(t, "hook", onCases(hookCases)) }

func hookCases(t *testing.T, rt *host.Runtime, guest string, s *Suite) {
	engine, err := hooks.NewEngine(t.Context(), rt, hooks.Config{Plugins: []hooks.PluginConfig{{Config: host.Config{
		Name: "guest", Module: host.ModuleConfig{File: guest}, Limits: host.Limits{Instances: 1},
	}, Objects: []host.ObjectGrant{{Resource: "v1/nodes"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close(context.Background())
	module, err := os.ReadFile(guest)
	if err != nil {
		t.Fatal(err)
	}
	looksUp := bytes.Contains(module, []byte("get_object"))
	for _, c := range s.Hook {
		if c.Pod.Labels["tier"] == "object" && !looksUp {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			pod := meta(c.Pod)
			var object []byte
			if c.Object != nil {
				object, err = json.Marshal(&corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: meta(*c.Object)})
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := engine.SetObject("v1/nodes", "node-1", object); err != nil {
				t.Fatal(err)
			}
			var node *hookmsg.Node
			if c.Node != nil {
				node = &hookmsg.Node{Name: "node-1", Labels: map[string]string{"tier": "batch"}, Annotations: c.Node}
			}
			decision, err := engine.Decide(t.Context(), &hookmsg.Request{
				Node:  node,
				Stage: abi.PreCreateContainer, Level: abi.LevelContainer,
				Pod: hookmsg.PodMeta{Namespace: "default", Name: pod.Name, UID: "1"}, Container: hookmsg.ContainerMeta{Name: "c"},
				PodLabels: pod.Labels, PodAnnotations: pod.Annotations,
			})
			if c.Error != "" {
				if err == nil || !strings.HasSuffix(err.Error(), "hook returned Error: "+c.Error) {
					t.Errorf("got error %v, want %s", err, c.Error)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := &hookmsg.Resources{}
			if decision != nil && decision.Resources != nil {
				got = decision.Resources
			}
			if diff := cmp.Diff(&hookmsg.Resources{CPUShares: c.CPUShares, CFSQuotaUS: c.CFSQuota}, got); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}
