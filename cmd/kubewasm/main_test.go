package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// kubewasm runs the command and returns its exit code and what it prints.
func kubewasm(t *testing.T, args ...string) (code int, out, err string) {
	t.Helper()
	if err := guestbuild.TrackSources("."); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr strings.Builder
	code = dispatch(t.Context(), &tool{out: &stdout, err: &stderr}, args)
	return code, stdout.String(), stderr.String()
}

// modules are the modules of the guests that tests have built, by their directories.
var modules = map[string]string{}

// built returns the module of the guest in a directory, which is built once for all tests
// that are not about building.
func built(t *testing.T, dir string) string {
	t.Helper()
	if modules[dir] == "" {
		file, err := guestbuild.Build(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		modules[dir] = file
	}
	return modules[dir]
}

// file writes text to a file and returns its name.
func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestBuild(t *testing.T) {
	output := filepath.Join(t.TempDir(), "out.wasm")
	code, out, stderr := kubewasm(t, "build", "--output-file", output, "testdata/zone")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	if !strings.HasPrefix(out, output+": scheduler zone 1.2.0, ") || !strings.HasSuffix(out, " bytes, implements filter, configure\n") {
		t.Errorf("printed %s", out)
	}
	module, err := os.ReadFile(output)
	if err != nil {
		t.Fatal(err)
	}
	got, err := metadata.Find(module)
	if err != nil {
		t.Fatal(err)
	}
	got.SDK, _, _ = strings.Cut(got.SDK, " ")
	want := &metadata.Metadata{
		Name: "zone", Version: "1.2.0", Source: "https://example.com/zone", Licenses: "Apache-2.0 OR MIT", Kinds: []string{"scheduler"}, ABI: 1, SDK: "github.com/kubewasm/kubewasm",
		Reads: []string{"node.metadata.labels", "pod.spec.priority"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}

	t.Run("the compiled form is beside the module", func(t *testing.T) {
		if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
			t.Skip("wazero does not compile for " + runtime.GOARCH)
		}
		file := filepath.Join(t.TempDir(), "out.wasm")
		code, out, stderr := kubewasm(t, "build", "--compiled", "--output-file", file, "testdata/zone")
		if code != 0 {
			t.Fatalf("exit code %d: %s", code, stderr)
		}
		form, err := os.ReadFile(host.CompiledFile(file, host.Platform))
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("machine code for %s, sha256 %x\n", host.Platform, sha256.Sum256(form)); !strings.HasSuffix(out, want) {
			t.Errorf("printed %s, want at its end %s", out, want)
		}
	})

	t.Run("flags take the place of directives", func(t *testing.T) {
		t.Chdir(t.TempDir())
		code, out, stderr := kubewasm(t, "build", "--name", "other", "--version", "2", source(t, "zone"))
		if code != 0 || !strings.HasPrefix(out, "other.wasm: scheduler other 2, ") {
			t.Errorf("exit code %d, printed %s%s", code, out, stderr)
		}
	})
}

// root is the directory of this package, whatever the working directory is.
var root, _ = os.Getwd()

func source(t *testing.T, name string) string {
	t.Helper()
	return filepath.Join(root, "testdata", name)
}

func TestMistakes(t *testing.T) {
	empty := t.TempDir()
	tests := map[string]struct {
		args []string
		want []string
	}{
		"no command":        {nil, []string{"Usage:\n\n\tkubewasm COMMAND [arguments]\n", "  build      compile a guest\n"}},
		"unknown command":   {[]string{"bulid"}, []string{`unknown command "bulid"; did you mean "build"?`}},
		"unknown topic":     {[]string{"help", "inspct"}, []string{`unknown command "inspct"; did you mean "inspect"?`}},
		"unknown flag":      {[]string{"inspect", "--confg", "x"}, []string{"inspect: unknown flag: --confg; did you mean --config?\nusage: kubewasm inspect [--config FILE]"}},
		"two directories":   {[]string{"build", "a", "b"}, []string{`build: unexpected argument "b"`}},
		"no such directory": {[]string{"build", "absent"}, []string{"absent: no such file or directory"}},
		"a file":            {[]string{"build", "main.go"}, []string{"build main.go: name the directory of a package, not a file"}},
		"not a Go package":  {[]string{"build", empty}, []string{"there is no source of a guest in it"}},
		"no package main":   {[]string{"build", "testdata/library"}, []string{"package library is not a guest: want a package main with func main() {}"}},
		"does not compile":  {[]string{"build", "testdata/broken"}, []string{"./main.go:4:15: undefined: undefined\n", "kubewasm: testdata/broken does not compile"}},
		"without the SDK":   {[]string{"build", "testdata/nosdk"}, []string{"the program registers no plugin: it imports none of guest/sched, guest/admission and guest/hooks"}},
		"registers nothing": {[]string{"build", "testdata/unregistered"}, []string{"the guest registers no plugin: call Register of guest/sched, guest/admission or guest/hooks in func init"}},
		"registers no plugin": {[]string{"build", "testdata/wrong"}, []string{
			"kubewasm: build testdata/wrong: main.go:11: zone does not implement sched.FilterPlugin (wrong type for method Filter)\n",
			"\thas  Filter(_ core.Pod, _ sched.NodeInfo) *sched.Status\n", "\twant Filter(state sched.CycleState, pod core.Pod, node sched.NodeInfo) *sched.Status\n"}},
		"registers no plugin, and is run":       {[]string{"run", "-f", "testdata/cluster.yaml", "testdata/wrong"}, []string{"zone does not implement sched.FilterPlugin"}},
		"is a plugin of two kinds":              {[]string{"build", "testdata/twokinds"}, []string{"the program imports the SDK of several kinds of plugins, scheduler and admission, and no host takes such a module: build a program for each"}},
		"fields that there are not":             {[]string{"build", "testdata/fields"}, []string{`main.go:9: field path "node.metadata.label": ObjectMeta has no field "label"; did you mean "labels"?`, `main.go:10: field path "pod.spec.containers.imgae": Container has no field "imgae"; did you mean "image"?`}},
		"parts of a request that there are not": {[]string{"build", "testdata/hookfields"}, []string{`main.go:6: reads: "pod_label" is no field of a request; did you mean "pod_labels"?`, `reads: "pod_labels[" is no field of a request`, `main.go:7: decides: "cpu_share" is no field of a decision`, `decides: "cpu_shares[a]" is no field of a decision`}},
		"a decision of a scheduler plugin":      {[]string{"build", "testdata/fields"}, []string{`main.go:11: //kubewasm:decides is for hooks; this one is for scheduler`}},
		"directives without a sense": {[]string{"build", "testdata/directives"}, []string{`main.go:3: //kubewasm:name is one word, not "two words"`, "main.go:4: //kubewasm:version says nothing", `main.go:5: there is no directive //kubewasm:read; did you mean "reads"?`,
			"main.go:13: // kubewasm:reads is a comment, not a directive: write //kubewasm:reads", "main.go:15: //Kubewasm:decides is a comment", "main.go:11: //kubewasm:version is there twice"}},
		"inspect of nothing":             {[]string{"inspect"}, []string{"inspect: an argument is missing\nusage: kubewasm inspect "}},
		"inspect of something else":      {[]string{"inspect", "main.go"}, []string{"inspect main.go: decode wasm"}},
		"run without objects":            {[]string{"run", "testdata/zone"}, []string{"run: name a file of objects with -f"}},
		"objects with mistakes":          {[]string{"run", "-f", file(t, "x.yaml", "kind: Pod"), "testdata/zone"}, []string{"x.yaml: document 1: the Pod has no apiVersion"}},
		"run of a library":               {[]string{"run", "-f", "testdata/cluster.yaml", "../../host/testdata/nomarker.wasm"}, []string{`export "kubewasm_abi_v1" is missing`}},
		"configuration of YAML":          {[]string{"run", "-f", "testdata/cluster.yaml", "--config", file(t, "c.yaml", "zon: a"), "testdata/zone"}, []string{"configure returned Error: zon: unknown field"}},
		"a scheduler without Nodes":      {[]string{"run", "-f", file(t, "p.yaml", "{apiVersion: v1, kind: Pod, metadata: {name: p}}"), "testdata/zone"}, []string{"a scheduler plugin needs Pods without a spec.nodeName and Nodes, and there are 1 and 0"}},
		"requests of a scheduler plugin": {[]string{"build", "testdata/fields"}, []string{`main.go:12: //kubewasm:matches is for admission plugins; this one is for scheduler`}},
		"requests that there are not":    {[]string{"build", "testdata/matches"}, []string{`main.go:7: //kubewasm:matches is operations and resources, as in CREATE,UPDATE pods; "pods" is one of them`}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			code, out, stderr := kubewasm(t, test.args...)
			if code != 1 || out != "" {
				t.Errorf("exit code %d, printed %s", code, out)
			}
			for _, want := range test.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("got  %s\nwant %s", stderr, want)
				}
			}
		})
	}
	t.Run("no Go", func(t *testing.T) {
		t.Setenv("PATH", "/nowhere")
		if code, _, stderr := kubewasm(t, "build", "testdata/zone"); code != 1 || stderr != "kubewasm: no Go toolchain: the command go is not in PATH\n" {
			t.Errorf("exit code %d: %s", code, stderr)
		}
	})
}

func TestInspect(t *testing.T) {
	code, out, stderr := kubewasm(t, "inspect", "-o", "json", "testdata/zone")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	var got examination
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([][]string{{"scheduler"}, {"filter", "configure"}, nil}, [][]string{got.Kinds, got.Functions, got.Problems}); diff != "" {
		t.Errorf("kinds, functions, problems (-want +got):\n%s", diff)
	}
	if got.Memory.Started < got.Memory.Initial || got.Memory.Initial == 0 || got.StartFuel == 0 || len(got.SHA256) != 64 || got.Bytes < 1e6 || got.Metadata.Version != "1.2.0" {
		t.Errorf("got %+v", got)
	}
	code, out, _ = kubewasm(t, "inspect", built(t, "testdata/zone"))
	var lines []string
	for line := range strings.Lines(out) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	for _, want := range []string{"name zone", "version 1.2.0", "reads node.metadata.labels, pod.spec.priority", "functions filter, configure", "k8s.io/api.object (i64, i32, i32) -> i32", "wasi_snapshot_preview1.clock_time_get (i32, i64, i32) -> i32 clock (a fake without it)", "filter (i64, i64, i64, i64) -> i32"} {
		if code != 0 || !slices.Contains(lines, want) {
			t.Errorf("exit code %d, not printed: %s\n%s", code, want, out)
		}
	}
}

// TestInspectTellsMinors holds that inspect prints on which minors of Kubernetes a guest runs.
func TestInspectTellsMinors(t *testing.T) {
	for dir, want := range map[string][]string{
		"testdata/zone": {"kubernetes 1.35, 1.36, 1.37, 1.38 grants"},
		"../../examples/admission/required-labels": {"kubernetes 1.35, 1.36, 1.37, 1.38 grants"},
		"../../examples/hooks/cpu-from-annotation": {"kubernetes 1.35, 1.36, 1.37, 1.38 grants"},
		"testdata/groups": {
			"kubernetes 1.36, 1.37, 1.38 not on 1.35 the guest has podgrouppostfilter, ",
			", which the scheduler of Kubernetes 1.35 does not call on 1.36 not called: podgrouppostfilter grants",
		},
		"../../abi/conformance/testdata/guests/group": {
			"kubernetes 1.35, 1.36, 1.37, 1.38 on 1.35 not called: podgrouppostfilter, generateplacements, ",
		},
	} {
		code, out, stderr := kubewasm(t, "inspect", built(t, dir))
		for _, want := range want {
			if code != 0 || !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
				t.Errorf("%s: exit code %d, not printed: %s\n%s%s", dir, code, want, out, stderr)
			}
		}
	}
}

// TestHookDeclaresWhatItReads holds that build writes the directives of a hook into the
// module.
func TestHookDeclaresWhatItReads(t *testing.T) {
	code, out, stderr := kubewasm(t, "inspect", "-o", "json", "testdata/hook")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	var got examination
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"pod_labels[tier]", "resources"}, got.Metadata.Reads); diff != "" || got.Problems != nil {
		t.Errorf("problems %q, reads (-want +got):\n%s", got.Problems, diff)
	}
	if diff := cmp.Diff([]string{"container_envs[GOGC]", "cpu_shares"}, got.Metadata.Decides); diff != "" {
		t.Errorf("decides (-want +got):\n%s", diff)
	}
}

// TestInspectNamesGrants holds that a guest that needs grants is distinguished from one that
// cannot run.
func TestInspectNamesGrants(t *testing.T) {
	code, out, stderr := kubewasm(t, "inspect", "-o", "json", "testdata/grants")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	var got examination
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(got.Imports, func(i imported) bool { return i.Name == "waiting_pods" })
	if i < 0 || got.Imports[i].Grant != "waiting-pods" || got.Imports[i].Optional || got.Problems != nil {
		t.Errorf("imports %+v, problems %q", got.Imports, got.Problems)
	}
	code, _, stderr = kubewasm(t, "run", "-f", "testdata/cluster.yaml", "testdata/grants")
	for _, want := range []string{`needs the grant "waiting-pods", which the configuration does not give`, "\n\trun gives what is missing by --grant waiting-pods\n"} {
		if code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("run without the grant: exit code %d, %s; want %s", code, stderr, want)
		}
	}
	code, _, stderr = kubewasm(t, "run", "-f", "testdata/cluster.yaml", "--grant", "waiting-pod", "testdata/grants")
	if want := `grant "waiting-pod" is unknown; did you mean "waiting-pods"?`; code != 1 || !strings.Contains(stderr, want) {
		t.Errorf("run with another grant: exit code %d, %s; want %s", code, stderr, want)
	}
}

// TestInspectWhatCannotRun holds that a module is described even if it is no
// plugin.
func TestInspectWhatCannotRun(t *testing.T) {
	for module, want := range map[string]string{
		"badimports":   "import kubewasm.config is (i32) -> i32, want (i32, i32) -> i32",
		"nomarker":     `export "kubewasm_abi_v1" is missing, want () -> i64`,
		"startfails":   "trapped",
		"wrongexports": `want (i64, i64, i64[, i64]) -> i32`,
	} {
		code, out, stderr := kubewasm(t, "inspect", "../../host/testdata/"+module+".wasm")
		if code != 2 || !strings.Contains(out, want) || !strings.Contains(out, "sha256 ") {
			t.Errorf("%s: exit code %d, not printed: %s\n%s%s", module, code, want, out, stderr)
		}
	}
}

func TestRun(t *testing.T) {
	tests := map[string]struct {
		args []string
		code int
		want []string
	}{
		"a scheduler plugin": {
			[]string{"--config", file(t, "c.yaml", "zone: b"), built(t, "testdata/zone")}, 0,
			[]string{"POD       NODE  VERDICT", "shop/web  n1    Unschedulable", "node is in zone a, not in b\n", "shop/web  n2    Success"},
		},
		"a scheduler plugin that no Node pleases": {[]string{"--config", file(t, "c.yaml", "zone: c"), built(t, "testdata/zone")}, 2, []string{"node is in zone b, not in c\n"}},
		"an admission plugin": {
			[]string{"--config", file(t, "c.json", `{"labels": ["owner"]}`), built(t, "../../examples/admission/required-labels")}, 2,
			[]string{"OBJECT ", "Pod shop/web  denied 422", "metadata.labels[owner]: Required value"},
		},
		"an admission plugin that mutates": {
			[]string{"--config", file(t, "c.yaml", "label: owner"), built(t, "../../admission/admissiontest/internal/policy")}, 0,
			[]string{`[{"op":"add","path":"/metadata/labels/owner","value":"none"}]`, "Pod shop/web  allowed"},
		},
		"a hook": {[]string{built(t, "../../examples/hooks/cpu-from-annotation")}, 0, []string{"Pod shop/web container web  decided", "cfs_quota_us=150000"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			code, out, stderr := kubewasm(t, append([]string{"run", "-f", "testdata/cluster.yaml"}, test.args...)...)
			if code != test.code {
				t.Errorf("exit code %d, want %d: %s", code, test.code, stderr)
			}
			for _, want := range test.want {
				if !strings.Contains(out, want) {
					t.Errorf("not printed: %s\n%s", want, out)
				}
			}
		})
	}
	t.Run("a hook that needs grants", func(t *testing.T) {
		script := "env GOGC 50\nmount /models /var/lib/models\ndevice /dev/nvidia0 c 195:0"
		code, out, stderr := kubewasm(t, "run", built(t, "../../hooks/testdata/scripted"), "-f", file(t, "cluster.yaml", fmt.Sprintf(`
{apiVersion: v1, kind: Pod, metadata: {name: a, annotations: {p/Container: %q}}, spec: {containers: [{name: a}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: b, annotations: {p: "annotation cdi.k8s.io/ x"}}}
`, script)))
		if code != 2 {
			t.Errorf("exit code %d: %s", code, stderr)
		}
		for _, want := range []string{
			"envs=map[GOGC:50] mount=bind:/var/lib/models:/models(ro) device=/dev/nvidia0(c 195:0)",
			`container_annotations[cdi.k8s.io/] = "x" is not granted: it is no key of CDI`,
			"\nOn a node these decisions need:\n  decisionGrants: {\"env\":[\"GOGC\"],\"mounts\":[{\"source\":\"/var/lib/models\",\"destination\":\"/models\"}],\"devices\":[\"/dev/nvidia0\"]}\n",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("not printed: %s\n%s", want, out)
			}
		}
	})
	t.Run("in a scheduler with Pods that run", func(t *testing.T) {
		// The flags may follow the module.
		code, out, stderr := kubewasm(t, "run", built(t, "../../sched/schedtest/internal/neighbour"), "-f", file(t, "cluster.yaml", `
{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: 4}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeName: n1, containers: [{name: a, resources: {requests: {cpu: 500m}}}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: b, labels: {loud: ""}}}
---
{apiVersion: example.com/v1, kind: Whatever, metadata: {name: w}}
`), "--grant", "events", "--grant", "waiting-pods", "--grant", "objects", "--grant", "apply")
		if code != 2 || !strings.Contains(out, "n1 cpu 500/500/4000 ") || !strings.Contains(out, " Pod a\n") {
			t.Errorf("exit code %d: %s\n%s", code, out, stderr)
		}
		if !regexp.MustCompile(`(?m)^default/b +\(event\) +Normal +Asked: about n1$`).MatchString(out) {
			t.Errorf("the event is not printed:\n%s", out)
		}
	})
	t.Run("a scheduler plugin that binds", func(t *testing.T) {
		binds := func(node string) string {
			return file(t, "binds.yaml", `
{apiVersion: v1, kind: Node, metadata: {name: `+node+`}}
---
{apiVersion: v1, kind: Pod, metadata: {name: gated, labels: {gated: ""}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web}}
`)
		}
		for name, test := range map[string]struct {
			node string
			want []string
		}{
			"to the end": {"n1", []string{
				"default/gated (PreEnqueue) UnschedulableAndUnresolvable gated", "default/web (PreEnqueue) Success", "default/web (PreScore) Success", "default/web n1 Success 1",
				"default/web (Reserve on n1) Success", "default/web (Permit on n1) Success", "default/web (PreBind on n1) Success", "default/web (Bind on n1) Skip",
			}},
			"until Reserve": {"full", []string{
				"default/gated (PreEnqueue) UnschedulableAndUnresolvable gated", "default/web (PreEnqueue) Success", "default/web (PreScore) Success", "default/web full Success 1",
				"default/web (Reserve on full) Unschedulable full is taken", "default/web (Unreserve on full) Success",
			}},
			"until Permit": {"slow", []string{
				"default/gated (PreEnqueue) UnschedulableAndUnresolvable gated", "default/web (PreEnqueue) Success", "default/web (PreScore) Success", "default/web slow Success 1",
				"default/web (Reserve on slow) Success", "default/web (Permit on slow) Wait later, at most 1.5s",
			}},
		} {
			t.Run(name, func(t *testing.T) {
				_, out, stderr := kubewasm(t, "run", "-f", binds(test.node), built(t, "../../sched/schedtest/internal/binder"))
				if diff := cmp.Diff(test.want, printedVerdicts(out)); diff != "" || stderr != "" {
					t.Errorf("%s(-want +got):\n%s", stderr, diff)
				}
			})
		}
		t.Run("Pods that wait for each other", func(t *testing.T) {
			pod := func(name string) string {
				return `{apiVersion: v1, kind: Pod, metadata: {name: ` + name + `, labels: {kubewasm.dev/gang: g}, annotations: {kubewasm.dev/gang-size: "2"}}}`
			}
			code, out, stderr := kubewasm(t, "run", "--grant", "waiting-pods", "--grant", "events", built(t, "../../examples/sched/gang"),
				"-f", file(t, "gang.yaml", "{apiVersion: v1, kind: Node, metadata: {name: n1}}\n---\n"+pod("a")+"\n---\n"+pod("b")))
			want := []string{
				"default/a (PreFilter) Success", "default/a n1 Success", "default/a (Reserve on n1) Success",
				"default/a (event) Normal WaitingForGang: 1 of 2 Pods of gang g have a node", "default/a (Permit on n1) Wait the gang is not complete, at most 1m0s",
				"default/b (PreFilter) Success", "default/b n1 Success", "default/b (Reserve on n1) Success", "default/b (Permit on n1) Success",
				"default/a (Permit on n1) allowed",
			}
			if diff := cmp.Diff(want, printedVerdicts(out)); diff != "" || code != 0 {
				t.Errorf("exit code %d: %s(-want +got):\n%s", code, stderr, diff)
			}
		})
	})
	t.Run("a Pod that preempts others", func(t *testing.T) {
		objects := ""
		for _, team := range []string{"a", "b"} {
			objects += "{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: ElasticQuota, metadata: {namespace: " + team + ", name: q}, spec: {min: {cpu: 2}, max: {cpu: 4}}}\n---\n"
		}
		for _, pod := range []string{"b, name: b1}, spec: {nodeName: n1,", "b, name: b2}, spec: {nodeName: n1, priority: 1,", "a, name: a1}, spec: {"} {
			objects += "{apiVersion: v1, kind: Pod, metadata: {namespace: " + pod + " containers: [{name: c, resources: {requests: {cpu: 2}}}]}}\n---\n"
		}
		objects += "{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: 4}}}"
		_, out, stderr := kubewasm(t, "run", "--grant", "objects", "--grant", "preempt-any", "--grant", "state", built(t, "../../examples/sched/capacity"), "-f", file(t, "capacity.yaml", objects))
		want := []string{
			"a/a1 (PreFilter) Unschedulable the ElasticQuotas have no room below the sum of their min",
			"a/a1 (PotentialVictims) Success nominates n1", "b/b1 n1 Evicted preempted by a/a1",
		}
		if diff := cmp.Diff(want, printedVerdicts(out)); diff != "" {
			t.Errorf("%s(-want +got):\n%s", stderr, diff)
		}
	})
	t.Run("an admission plugin that looks objects up", func(t *testing.T) {
		ingress := func(name, host string) string {
			return `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: shop, name: ` + name + `}, spec: {rules: [{host: ` + host + `}]}}`
		}
		asked, there := file(t, "asked.yaml", ingress("new", "a.example.com")), file(t, "there.yaml", ingress("old", "a.example.com"))
		for name, test := range map[string]struct {
			args []string
			code int
			want string
		}{
			"of a file":           {[]string{"-f", asked, "--objects", there}, 2, `spec.rules[0].host: Invalid value: "a.example.com": the Ingress shop/old has it`},
			"of which one is new": {[]string{"-f", there, "--objects", there}, 0, "Ingress shop/old  allowed"},
			"that it is asked about": {[]string{"--grant", "objects", "-f", file(t, "all.yaml", ingress("a", "a.example.com")+"\n---\n"+ingress("b", "a.example.com"))}, 2,
				"the Ingress shop/b has it"},
			"without a grant": {[]string{"-f", asked}, 1, `needs the grant "objects"`},
		} {
			t.Run(name, func(t *testing.T) {
				code, out, stderr := kubewasm(t, append([]string{"run", built(t, "../../examples/admission/unique-hosts")}, test.args...)...)
				if code != test.code || !strings.Contains(out+stderr, test.want) {
					t.Errorf("exit code %d, want %d and %s\n%s%s", code, test.code, test.want, out, stderr)
				}
			})
		}
	})
	t.Run("with its log", func(t *testing.T) {
		_, _, stderr := kubewasm(t, "run", "--log", "-f", "testdata/cluster.yaml", built(t, "testdata/zone"))
		if !strings.Contains(stderr, "level=DEBUG msg=filter plugin=zone function=filter guest.zone=") {
			t.Errorf("logged %s", stderr)
		}
	})
}

// costColumns are the columns of time and fuel.
var costColumns = regexp.MustCompile(` [0-9.]+(ns|µs|ms|s) +[0-9]+ `)

// printedVerdicts returns what kubewasm run prints, without the heading, time and fuel.
func printedVerdicts(out string) (lines []string) {
	for line := range strings.Lines(out) {
		line = costColumns.ReplaceAllString(strings.ReplaceAll(line, "\n", " "), " ")
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines[1:]
}

// TestRunTellsWhatFailed holds that a failure is printed with the plugin, the extension
// point, the object and the stack, and that the other objects are asked about after it.
func TestRunTellsWhatFailed(t *testing.T) {
	tests := map[string]struct {
		args        []string
		out, stderr []string
	}{
		"a panic in Go": {
			[]string{"-f", "testdata/cluster.yaml", "testdata/panics"},
			[]string{"shop/web (PreScore) Error 0s 0 filter has failed in this scheduling cycle: ", "shop/web n1 Success ", "shop/web n2 Error "},
			[]string{
				`kubewasm: run testdata/panics: Filter of the Pod shop/web for the Node n2: plugin "panics": filter trapped: `,
				": panic: assignment to entry in nil map\n\tat main.(*counter).count, github.com/kubewasm/kubewasm/cmd/kubewasm/testdata/panics/main.go:43\n" +
					"\tat main.(*counter).Filter, github.com/kubewasm/kubewasm/cmd/kubewasm/testdata/panics/main.go:19\n",
			},
		},
		"an error instead of a score": {
			[]string{"-f", file(t, "odd.yaml", "{apiVersion: v1, kind: Node, metadata: {name: n1}}\n---\n{apiVersion: v1, kind: Node, metadata: {name: n2}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: odd}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: even}}"), "testdata/panics"},
			[]string{"default/odd n1 Error ", "default/odd n2 Error ", "default/even n1 Success 2 ", "default/even n2 Success 2 "},
			[]string{"Score of the Pod default/odd for the Node n1: no score for this one\n"},
		},
		"scores that the scheduler refuses": {
			[]string{"-f", file(t, "scores.yaml", "{apiVersion: v1, kind: Node, metadata: {name: n1}}\n---\n{apiVersion: v1, kind: Node, metadata: {name: n2}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: high}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: low}}"), "testdata/panics"},
			[]string{"default/high n1 Error 1099511627776 ", "default/high n2 Error 1099511627776 ", "default/low n1 Error -5 ", "default/low n2 Error -5 "},
			[]string{
				"Score of the Pod default/high for the Node n1: the scheduler refuses the score 1099511627776: it must lie between 0 and 100, or NormalizeScore must bring it there\n",
				"Score of the Pod default/low for the Node n2: the scheduler refuses the score -5: ",
			},
		},
		"a trap in another language": {
			[]string{"-f", file(t, "trap.yaml", "{apiVersion: v1, kind: Pod, metadata: {name: web, annotations: {mode: mode-trap}}}\n---\n{apiVersion: v1, kind: Service, metadata: {name: web}}"), policy(t, "stellar/validator.c", "")},
			[]string{"Pod default/web failed ", "Service web allowed "},
			[]string{`CREATE of Pod default/web: plugin "validator": validate trapped: wasm error: unreachable` + "\n\tat "},
		},
		"an answer that is none": {
			[]string{"-f", file(t, "bad.yaml", "{apiVersion: v1, kind: Pod, metadata: {name: web, annotations: {mode: mode-bad}}}"), policy(t, "stellar/validator.c", "")},
			[]string{"Pod default/web failed "},
			[]string{`CREATE of Pod default/web: plugin "validator": read its output: allowed is missing` + "\n"},
		},
		"a hook": {
			[]string{"-f", file(t, "hook.yaml", "{apiVersion: v1, kind: Pod, metadata: {name: a, annotations: {p: panic no}}, spec: {containers: [{name: a}]}}"), "../../hooks/testdata/scripted"},
			[]string{"Pod default/a failed ", "Pod default/a container a failed "},
			[]string{`decide PreRunPodSandbox of pod default/a: plugin "scripted": hook trapped: `, "panic: no\n", `decide PreCreateContainer of container default/a/a: `, "\n\tat main.", "hooks/testdata/scripted/main.go:"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			code, out, stderr := kubewasm(t, append([]string{"run"}, test.args...)...)
			if code != 1 {
				t.Errorf("exit code %d", code)
			}
			out = strings.Join(strings.Fields(out), " ") + " "
			for _, want := range test.out {
				if !strings.Contains(out, want) {
					t.Errorf("not printed: %s\n%s", want, out)
				}
			}
			for _, want := range test.stderr {
				if !strings.Contains(stderr, want) {
					t.Errorf("not told: %s\n%s", want, stderr)
				}
			}
		})
	}
}

// TestGuestsHaveWhatTheGuideDescribes holds that a guest has what docs/guests.md describes, and that build warns of
// the differences.
func TestGuestsHaveWhatTheGuideDescribes(t *testing.T) {
	world := filepath.Join(t.TempDir(), "world.wasm")
	code, _, stderr := kubewasm(t, "build", "--output-file", world, "testdata/world")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	for _, want := range []string{
		`main.go:19: time.Now: the clock begins in 2022 in each instance and follows its instructions, unless the grant "clock" is given`,
		`main.go:21: time.Sleep: it returns at once; with the grant "clock" it is busy until the time has passed`,
		`main.go:24: os.ReadFile: a guest has no files`,
		`main.go:25: net.Dial: a guest has no network: connections are refused`,
		`main.go:27: rand.Text: the numbers are the same in each instance, unless the grant "random" is given`,
		`main.go:27: os.Environ: a guest has no environment`,
		`the guest links net: `, `the guest links os/exec: a guest can start no processes`,
	} {
		if !strings.Contains(stderr, "kubewasm: warning: "+want) {
			t.Errorf("not warned: %s\n%s", want, stderr)
		}
	}
	run := func(grants ...string) string {
		args := []string{"run", "-f", "testdata/cluster.yaml", world}
		for _, grant := range grants {
			args = append(args, "--grant", grant)
		}
		code, out, stderr := kubewasm(t, args...)
		if code != 2 {
			t.Fatalf("exit code %d: %s", code, stderr)
		}
		return out
	}
	fake := run()
	const rest = `, 0 variables, arguments ["guest.wasm"], open /etc/hostname: Bad file number, dial tcp 127.0.0.1:80: address 127.0.0.1:80: connect: Connection refused, ls: `
	if !strings.Contains(fake, "year 2022, slept true, random ") || !strings.Contains(fake, rest) {
		t.Errorf("without grants it has: %s", fake)
	}
	random := regexp.MustCompile(`random \w+`)
	if again := run(); random.FindString(again) != random.FindString(fake) {
		t.Errorf("without the grant two runs differ: %s%s", fake, again)
	}
	granted := run("clock", "random")
	if strings.Contains(granted, "year 2022, slept true") || random.FindString(granted) == random.FindString(fake) || !strings.Contains(granted, rest) {
		t.Errorf("with grants it has: %s", granted)
	}
}

// TestACacheIsOptional builds and runs a guest with a home that cannot be written to. A file in
// place of the directory stops root as well.
func TestACacheIsOptional(t *testing.T) {
	cache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	temporary := t.TempDir()
	t.Setenv("GOCACHE", strings.TrimSpace(string(cache)))
	t.Setenv("TMPDIR", temporary)
	zone := source(t, "zone")
	t.Setenv("XDG_CACHE_HOME", file(t, "home", "no directory"))
	for name, args := range map[string][]string{
		"build": {"build", "--output-file", filepath.Join(t.TempDir(), "zone.wasm"), zone},
		"run":   {"run", "-f", "testdata/cluster.yaml", "--config", file(t, "c.yaml", "zone: b"), zone},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, stderr := kubewasm(t, args...)
			if code != 0 || out == "" {
				t.Errorf("exit code %d: %s%s", code, out, stderr)
			}
			for _, want := range []string{"kubewasm: warning: keep compiled modules in a cache: ", "kubewasm: warning: keep guests in a cache: "} {
				if strings.Count(stderr, want) != 1 {
					t.Errorf("printed %q, want once %q", stderr, want)
				}
			}
			if left, err := filepath.Glob(filepath.Join(temporary, "kubewasm-*")); err != nil || len(left) != 0 {
				t.Errorf("left are %v, error %v", left, err)
			}
		})
	}
}

// TestTheSDKIsThatOfTheGuest holds that the metadata do not depend on how the command was built.
func TestTheSDKIsThatOfTheGuest(t *testing.T) {
	module := filepath.Join(t.TempDir(), "zone.wasm")
	if code, _, stderr := kubewasm(t, "build", "--output-file", module, "testdata/zone"); code != 0 {
		t.Fatal(stderr)
	}
	wasm, err := os.ReadFile(module)
	if err != nil {
		t.Fatal(err)
	}
	m, err := metadata.Find(wasm)
	if err != nil || m == nil {
		t.Fatal(err)
	}
	// The SDK of this guest is that of the checkout, which has no version.
	if m.SDK != "github.com/kubewasm/kubewasm" {
		t.Errorf("the SDK is %q", m.SDK)
	}
}

// TestRunSaysWhatDoesNotHappen holds that neither a module that is not asked nor a patch that
// breaks the object looks like a success.
func TestRunSaysWhatDoesNotHappen(t *testing.T) {
	owner := built(t, "../../admission/admissiontest/internal/policy")
	for name, test := range map[string]struct {
		args []string
		code int
		want string
	}{
		"objects that the module is not for": {
			[]string{"-f", file(t, "o.yaml", "{apiVersion: v1, kind: Node, metadata: {name: n1}}"), "--config", file(t, "c.yaml", "labels: [owner]"), built(t, "../../examples/admission/required-labels")},
			exitUnasked, "kubewasm: warning: the module was asked about no object\n",
		},
		"labels that are no strings before the patch": {
			[]string{"-f", file(t, "o.yaml", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, labels: {app: {name: web}}}}"), "--config", file(t, "c.yaml", "label: owner"), owner},
			exitError, "the patch makes an object that the API server cannot decode: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, stderr := kubewasm(t, append([]string{"run"}, test.args...)...)
			if code != test.code || !strings.Contains(stderr, test.want) || strings.Contains(out, "mutated") {
				t.Errorf("exit code %d, want %d: %s%s", code, test.code, out, stderr)
			}
		})
	}
}
