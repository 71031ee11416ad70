package guestbuild_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// program writes a guest of files, by their names, as a module of its own like that of
// somebody who imports the SDK, and returns its directory.
func program(t *testing.T, files map[string]string) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	all := map[string]string{
		"go.sum": string(sums),
		"go.mod": "module example.com/guest\n\ngo 1.26.0\n\nrequire github.com/kubewasm/kubewasm v0.0.0\n\nreplace github.com/kubewasm/kubewasm => " + root + "\n",
	}
	for name, text := range files {
		all[name] = text + all[name]
	}
	for name, text := range all {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(strings.TrimPrefix(text, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := guestbuild.TrackSources("."); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestCheckMethods holds that a method that would never be called is told with what it
// has and what it should have, by the interfaces that the SDK declares.
func TestCheckMethods(t *testing.T) {
	dir := program(t, map[string]string{
		"main.go": `
package main

import (
	"example.com/guest/shared"
	"github.com/kubewasm/kubewasm/guest/admission"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/hooks"
	"github.com/kubewasm/kubewasm/guest/sched"
)

type good struct{ shared.Base }

func (*good) Filter(sched.CycleState, core.Pod, sched.NodeInfo) *sched.Status { return nil }
func (*good) Configure() error                                                { return nil }
func (*good) Validate() error                                                 { return nil } // Of another kind.

type beside struct{}

func (beside) Filter(sched.CycleState, core.Pod, sched.NodeInfo) *sched.Status { return nil }
func (beside) PreEnqueue(core.Pod) bool { return true }
func (beside) Configure(zone string) error                                     { return nil }

type only struct{}

func (only) Filter(sched.CycleState, core.Pod, core.Node) *sched.Status { return nil }

type pointer struct{}

func (*pointer) Filter(sched.CycleState, core.Pod, sched.NodeInfo) *sched.Status { return nil }

type half struct{}

func (half) Reserve(sched.CycleState, core.Pod, string) *sched.Status { return nil }

type embeds struct{ shared.Wrong }

type twice struct {
	shared.Scorer
	shared.OtherScorer
}

func (twice) PostBind(sched.CycleState, core.Pod, string) {}

type field struct {
	Score func(sched.CycleState, core.Pod, sched.NodeInfo) (int64, *sched.Status)
}

type misnamed struct{}

func (misnamed) Prefilter(sched.CycleState, core.Pod) (*sched.PreFilterResult, *sched.Status) { return nil, nil }
func (misnamed) postBind(sched.CycleState, core.Pod, string)                                  {}
func (misnamed) scores() int                                                                  { return 0 }

type policy struct{}

func (policy) Validate(*admission.Request) *admission.Response       { return nil }
func (policy) Mutate(*admission.Request, *admission.Patch) error     { return nil }
func (policy) Filter()                                               {}

type hook struct{}

func (hook) Decide(*hooks.Request, *hooks.Decision) error { return nil }
func (hook) Configure()                                   {}

func init() {
	sched.Register(&good{})
	sched.Register(beside{})
	sched.Register(only{})
	sched.Register(pointer{})
	sched.Register(half{})
	sched.Register(&embeds{})
	sched.Register(twice{})
	sched.Register(&field{})
	sched.Register(misnamed{})
	admission.Register(policy{})
	hooks.Register(hook{})
	shared.Register()
	register(any(good{}))
}

func register[P any](p P) { sched.Register(p) }

func main() {}
`,
		"shared/shared.go": `
// Package shared has what several plugins share.
package shared

import (
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
)

//kubewasm:reads node.spec

type Base struct{}

func (*Base) Score(sched.CycleState, core.Pod, sched.NodeInfo) (int64, *sched.Status) { return 0, nil }

type Wrong struct{}

func (Wrong) Filter(sched.CycleState, core.Pod, sched.NodeInfo) bool { return true }

type Scorer struct{}

func (Scorer) Score(sched.CycleState, core.Pod, sched.NodeInfo) (int64, *sched.Status) { return 0, nil }

type OtherScorer struct{ Scorer2 }

func (OtherScorer) Score(sched.CycleState, core.Pod, sched.NodeInfo) (int64, *sched.Status) { return 0, nil }

type Scorer2 struct{}

type binder struct{}

func (binder) Bind(pod core.Pod, node string) *sched.Status { return nil }

func Register() { sched.Register(binder{}) }
`,
	})
	warnings, err := guestbuild.Check(t.Context(), dir)
	if diff := cmp.Diff([]string{
		`main.go:50: method Prefilter of misnamed is not called; did you mean PreFilter?`,
		`main.go:51: method postBind of misnamed is not called; did you mean PostBind?`,
		`shared/shared.go:9: //kubewasm:reads counts in the package main only`,
	}, warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	var mistake *guestbuild.SourceError
	if !errors.As(err, &mistake) {
		t.Fatalf("got error %v, want a *SourceError", err)
	}
	const cycle = "state sched.CycleState, pod core.Pod"
	if diff := cmp.Diff([]string{
		"main.go:20: beside does not implement sched.PreEnqueuePlugin (wrong type for method PreEnqueue)",
		"\thas  PreEnqueue(core.Pod) bool",
		"\twant PreEnqueue(pod core.Pod) *sched.Status",
		"main.go:21: beside does not implement Configurer (wrong type for method Configure)",
		"\thas  Configure(zone string) error",
		"\twant Configure() error",
		"main.go:25: only does not implement sched.FilterPlugin (wrong type for method Filter)",
		"\thas  Filter(sched.CycleState, core.Pod, core.Node) *sched.Status",
		"\twant Filter(" + cycle + ", node sched.NodeInfo) *sched.Status",
		"main.go:69: pointer does not implement sched.FilterPlugin (method Filter has a pointer receiver): register a pointer, &pointer",
		"main.go:33: half does not implement sched.ReservePlugin (has Reserve, but not Unreserve)",
		"shared/shared.go:17: *embeds does not implement sched.FilterPlugin (wrong type for method Filter)",
		"\thas  Filter(sched.CycleState, core.Pod, sched.NodeInfo) bool",
		"\twant Filter(" + cycle + ", node sched.NodeInfo) *sched.Status",
		"main.go:72: twice does not implement sched.ScorePlugin (several embedded types have the method Score)",
		"main.go:45: *field does not implement sched.ScorePlugin (Score is a field, not a method)",
		"main.go:74: misnamed implements no interface of package sched; an extension point of the scheduler is a method with its name and type",
		"main.go:57: policy does not implement admission.Mutator (wrong type for method Mutate)",
		"\thas  Mutate(*admission.Request, *admission.Patch) error",
		"\twant Mutate(req *admission.Request, patch *admission.Patch) *admission.Response",
		"main.go:63: hook does not implement Configurer (wrong type for method Configure)",
		"\thas  Configure()",
		"\twant Configure() error",
		"shared/shared.go:31: binder does not implement sched.BindPlugin (wrong type for method Bind)",
		"\thas  Bind(pod core.Pod, node string) *sched.Status",
		"\twant Bind(" + cycle + ", nodeName string) *sched.Status",
	}, strings.Split(err.Error(), "\n")); diff != "" {
		t.Errorf("mistakes (-want +got):\n%s", diff)
	}
}

// TestCheckWarns holds that what compiles, and does something else in a guest, is told with
// the way that leads to it and the grant that changes it.
func TestCheckWarns(t *testing.T) {
	dir := program(t, map[string]string{
		"main.go": `
package main

import (
	"crypto/rand"
	"os"
	"os/exec"
	"time"

	"example.com/guest/shared"
	"github.com/kubewasm/kubewasm/guest/admission"
)

type policy struct{}

func (policy) Validate(*admission.Request) *admission.Response {
	time.Sleep(time.Second)
	for range 2 {
		_, _ = os.ReadFile("/etc/hostname")
		_, _ = os.Open(os.Getenv("HOME") + time.Now().String() + rand.Text())
	}
	_ = exec.Command("ls").Run()
	return shared.Answer()
}

func init() { admission.Register(policy{}) }

func main() {}
`,
		"shared/shared.go": `
package shared

import (
	"net/http"

	"github.com/kubewasm/kubewasm/guest/admission"
	"k8s.io/api/core/v1"
)

func Answer() *admission.Response {
	if _, err := http.Get(v1.Registry); err != nil {
		return admission.Deny(err.Error())
	}
	return nil
}
`,
		"api/go.mod":        "module k8s.io/api\n\ngo 1.26.0\n",
		"api/core/v1/v1.go": "package v1\n\nimport \"net\"\n\nvar Registry = net.ParseIP(\"::1\").String()\n",
		"go.mod":            "",
	})
	module := filepath.Join(dir, "go.mod")
	text, err := os.ReadFile(module)
	if err == nil {
		err = os.WriteFile(module, append(text, "\nrequire k8s.io/api v0.37.1\n\nreplace k8s.io/api => ./api\n"...), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	warnings, err := guestbuild.Check(t.Context(), dir)
	if err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{
		`main.go:16: time.Sleep: it returns at once; with the grant "clock" it is busy until the time has passed`,
		`main.go:18: os.ReadFile: a guest has no files; what it needs comes by its configuration`,
		`main.go:19: os.Getenv: a guest has no environment and no arguments; what it needs comes by its configuration`,
		`main.go:19: time.Now: the clock begins in 2022 in each instance and follows its instructions, unless the grant "clock" is given`,
		`main.go:19: rand.Text: the numbers are the same in each instance, unless the grant "random" is given`,
		`shared/shared.go:11: http.Get: a guest has no network: connections are refused`,
		`the guest links k8s.io/api/core/v1 (example.com/guest/shared imports k8s.io/api/core/v1): its types decode whole objects, those of guest/api read single fields of them`,
		`the guest links net (example.com/guest/shared imports net/http imports net): a guest has no network: connections are refused`,
		`the guest links os/exec: a guest can start no processes`,
	}, warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

// TestEveryInterfaceIsAnExtensionPoint holds what Check goes by: the interfaces that
// package sched exports are those that Register looks for.
func TestEveryInterfaceIsAnExtensionPoint(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../guest/sched/sched.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var interfaces, registered []string
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.TypeSpec:
			if _, ok := n.Type.(*ast.InterfaceType); ok && n.Name.IsExported() {
				interfaces = append(interfaces, n.Name.Name)
			}
		case *ast.ValueSpec:
			if fields, ok := n.Type.(*ast.StructType); ok && n.Names[0].Name == "registered" {
				for _, f := range fields.Fields.List {
					registered = append(registered, f.Type.(*ast.Ident).Name)
				}
			}
		}
		return true
	})
	slices.Sort(interfaces)
	slices.Sort(registered)
	if diff := cmp.Diff(interfaces, registered); diff != "" || len(registered) == 0 {
		t.Errorf("what Register looks for (-exported +registered):\n%s", diff)
	}
}

// TestCheckCalls holds what is said of calls of the SDK that compile and do something else than
// they seem to.
func TestCheckCalls(t *testing.T) {
	dir := program(t, map[string]string{
		"main.go": `
package main

import (
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
)

type plugin struct{}

const format = "node %s is full"

func (*plugin) Filter(_ sched.CycleState, pod core.Pod, node sched.NodeInfo) *sched.Status {
	name := pod.Metadata().Name()
	switch {
	case name == "a":
		return sched.Unschedulable("in %s", name)
	case name == "b":
		return sched.UnschedulableAndUnresolvable(format, name)
	case name == "c":
		return sched.Unschedulable("100% of ", name, " is 5 %")
	case name == "d":
		sched.Eventf("Normal", "Full", "Filter", "%d of ", name)
	}
	return sched.Unschedulable([]string{"%s"}...)
}

func init() { sched.Register((*plugin)(nil)) }

func main() {}
`,
	})
	warnings, err := guestbuild.Check(t.Context(), dir)
	want := []string{
		`main.go:16: sched.Unschedulable joins its texts, so %s stays as it is: name the values among the texts, or use fmt.Sprintf`,
		`main.go:18: sched.UnschedulableAndUnresolvable joins its texts, so %s stays as it is: name the values among the texts, or use fmt.Sprintf`,
		`main.go:22: sched.Eventf joins its texts, so %d stays as it is: name the values among the texts, or use fmt.Sprintf`,
	}
	if diff := cmp.Diff(want, warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	if err == nil || err.Error() != "main.go:27: Register gets a nil pointer, which has no fields for a configuration: register a value, &plugin{}" {
		t.Errorf("error %v", err)
	}
}
