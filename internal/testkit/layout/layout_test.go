package layout

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// list runs go list with the environment and the arguments.
func list(t *testing.T, env []string, args ...string) []string {
	t.Helper()
	return listIn(t, ".", env, args...)
}

// listIn is list in the module in a directory relative to the root.
func listIn(t *testing.T, dir string, env []string, args ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...)
	cmd.Dir = filepath.Join("../../..", dir)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %v: %v", args, err)
	}
	return strings.Fields(string(out))
}

var wasm = []string{"GOOS=wasip1", "GOARCH=wasm"}

// exampleGuests are the packages of example guests, by their modules.
var exampleGuests = map[string][]string{
	"examples/admission":       {"./..."},
	"examples/endpoint-picker": {"./pickerguest", "./adapter", "./prefix"},
	"examples/hooks":           {"./..."},
	"examples/sched":           {"./..."},
}

func TestDependencies(t *testing.T) {
	if err := guestbuild.TrackSources("."); err != nil {
		t.Fatal(err)
	}
	kubernetes := func(path string) bool {
		return strings.HasPrefix(path, "k8s.io/") || strings.HasPrefix(path, "sigs.k8s.io/")
	}
	ours := func(allowed ...string) func(string) bool {
		return func(path string) bool {
			rest, ok := strings.CutPrefix(path, module+"/")
			return ok && !slices.ContainsFunc(allowed, func(a string) bool { return rest == a || strings.HasPrefix(rest, a+"/") })
		}
	}
	either := func(fs ...func(string) bool) func(string) bool {
		return func(path string) bool {
			return slices.ContainsFunc(fs, func(f func(string) bool) bool { return f(path) })
		}
	}
	tests := []struct {
		name     string
		env      []string
		packages []string
		refused  func(string) bool
	}{
		{"abi needs the standard library only", nil, []string{"./abi"}, func(path string) bool {
			return strings.Contains(path, ".") && !within(path, module+"/abi")
		}},
		{"abi builds for guests without anything else", wasm, []string{"./abi"}, ours("abi")},
		{"host knows no Kubernetes and no adapter", nil, []string{"./host"}, either(kubernetes, ours("abi", "host", "internal"))},
		{"host runs none of wazero's WASI", nil, []string{"./host"}, func(path string) bool {
			return strings.HasPrefix(path, "github.com/tetratelabs/wazero/imports/")
		}},
		// internal/nearest finds the name that was meant, here and in guests. internal/json walks over
		// objects of which parts are left out.
		{"the encoders know the contract only", nil, []string{"./codec/..."}, ours("abi", "codec", "internal/objects", "internal/json", "internal/nearest", "internal/wire")},
		{"internal/objects knows the contract only", nil, []string{"./internal/objects"}, ours("abi", "internal/json", "internal/objects", "internal/nearest", "internal/wire")},
		{"nothing knows the Go interface of a Kubernetes minor", nil, []string{"./..."}, func(path string) bool {
			return strings.HasPrefix(path, "k8s.io/kube-scheduler") || strings.HasPrefix(path, "k8s.io/kubernetes")
		}},
		// Whoever imports the library compiles none of the command.
		{"the library knows no framework for commands", nil, []string{"./abi/...", "./admission/...", "./codec/...", "./guest/...", "./hooks/...", "./host/...", "./internal/...", "./sched/..."}, func(path string) bool {
			return strings.HasPrefix(path, "github.com/spf13/cobra")
		}},
		{"sched knows no other adapter", nil, []string{"./sched"}, ours("abi", "host", "codec", "sched", "internal")},
		{"admission knows no other adapter", nil, []string{"./admission"}, ours("abi", "host", "codec", "admission", "internal")},
		{"admission knows no dialect", nil, []string{"./admission", "./admission/admissiontest"}, func(path string) bool {
			return slices.ContainsFunc(append(wings, "admission/stellar"), func(wing string) bool { return within(path, module+"/"+wing) })
		}},
		{"hooks/cgroup knows no guest, no host and no Kubernetes", nil, []string{"./hooks/cgroup"}, either(kubernetes, ours("abi", "codec", "hooks/cgroup", "hooks/internal/facts", "internal/lograte", "internal/nearest", "internal/wire"), func(path string) bool {
			return strings.HasPrefix(path, "github.com/tetratelabs/wazero")
		})},
		{"hooks knows no other adapter", nil, []string{"./hooks"}, ours("abi", "host", "codec", "hooks", "internal")},
		{"host/service knows no adapter and no guest", nil, []string{"./host/service"}, ours("abi", "host", "codec", "internal")},
		// The first test of a policy compiles what its kit imports: 410 packages, and
		// with a client of Kubernetes more than twice as many.
		{"the kits for policies and hooks know no client of Kubernetes and no scheduler", nil, []string{
			"./admission/admissiontest", "./hooks/hookstest",
		}, func(path string) bool {
			return strings.HasPrefix(path, "k8s.io/client-go") || path == module+"/sched" || path == module+"/internal/framework"
		}},
		// Natively a guest asks the host that a kit sets in internal/nativehost. What it links is below.
		{"guest holds nothing but what guests are written with", nil, []string{"./guest/..."}, either(kubernetes, ours("abi", "guest", "internal/cut", "internal/json", "internal/nativehost", "internal/nearest", "internal/statemap"))},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var found []string
			for _, path := range list(t, test.env, append([]string{"-deps"}, test.packages...)...) {
				if test.refused(path) {
					found = append(found, path)
				}
			}
			if len(found) != 0 {
				t.Errorf("%v depend on %v", test.packages, found)
			}
		})
	}
	// internal/json is shared with the host: it reads the same objects.
	refused := either(kubernetes, ours("abi", "guest", "internal/cut", "internal/json", "internal/nearest", "examples"))
	for dir, packages := range exampleGuests {
		t.Run("guests know no Kubernetes and no host/"+dir, func(t *testing.T) {
			for _, path := range listIn(t, dir, wasm, append([]string{"-deps"}, packages...)...) {
				if refused(path) {
					t.Errorf("%v depend on %s", packages, path)
				}
			}
		})
	}
}

// maxGuestBytes is the size of the largest guest of this repository but for largerGuests. Of Go's
// runtime they are 1.8 MB, of package reflect's types of pointers 84 KB, of which a guest with a
// configuration has use.
const maxGuestBytes = 2_600_000

// largerGuests are guests that take more, for a reason.
var largerGuests = map[string]int64{
	module + "/examples/sched/coscheduling": 2_850_000, // Arithmetic with quantities is 130 KB of it.
	module + "/examples/sched/load-aware":   2_700_000, // The same.
}

func TestGuestsAreSmall(t *testing.T) {
	var paths []string
	for dir, packages := range exampleGuests { // Without the packages of views that they import.
		paths = append(paths, listIn(t, dir, wasm, append([]string{"-f", `{{if eq .Name "main"}}{{.ImportPath}}{{end}}`}, packages...)...)...)
	}
	for _, path := range paths {
		dir := filepath.Join("../../..", strings.TrimPrefix(path, module))
		file, err := guestbuild.Build(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d bytes", path, info.Size())
		if most := max(largerGuests[path], maxGuestBytes); info.Size() > most {
			t.Errorf("%s has %d bytes, more than %d", path, info.Size(), most)
		}
	}
}

// TestAGuestWithPodAndNodeIsSmall holds what the views and the SDK weigh, and the
// decoder of configurations.
func TestAGuestWithPodAndNodeIsSmall(t *testing.T) {
	for _, test := range []struct{ name, dir string }{
		{"without a configuration", "../../bench/guests/filter"},
		{"with a configuration", "../../../examples/sched/zone"},
	} {
		t.Run(test.name, func(t *testing.T) {
			file, err := guestbuild.Build(t.Context(), test.dir)
			if err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d bytes", info.Size())
			if info.Size() > maxGuestBytes {
				t.Errorf("the guest has %d bytes, more than %d", info.Size(), maxGuestBytes)
			}
		})
	}
}

// TestTopLevel holds what a newcomer sees first.
func TestTopLevel(t *testing.T) {
	entries, err := os.ReadDir("../../..")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && e.Name() != "bin" {
			got = append(got, e.Name())
		}
	}
	want := []string{
		"CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "RATIONALE.md", "README.md", "SECURITY.md", "VERSIONING.md",
		"abi", "admission", "charts", "cmd", "codec", "doc.go", "docs", "examples", "go.mod", "go.sum", "guest", "hooks", "host", "internal", "sched",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("top level (-want +got):\n%s", diff)
	}
}

// eachTest calls f with each file of tests, and with its directory relative to the root.
func eachTest(t *testing.T, f func(dir string, source []byte)) {
	t.Helper()
	err := filepath.WalkDir("../../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel("../../..", filepath.Dir(path))
		if err != nil {
			return err
		}
		f(filepath.ToSlash(dir), source)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestTestsReadNoMemoryThatWasGivenBack holds that the tests of a package that make a
// Runtime run in its debug mode, but for those that measure and those of other modules.
func TestTestsReadNoMemoryThatWasGivenBack(t *testing.T) {
	measures := []string{"internal/bench", "internal/testkit/e2e/throughput"}
	makes, guarded := map[string]bool{}, map[string]bool{}
	eachTest(t, func(dir string, source []byte) {
		makes[dir] = makes[dir] || bytes.Contains(source, []byte("host.NewRuntime("))
		guarded[dir] = guarded[dir] || bytes.Contains(source, []byte(`"`+module+`/internal/testkit/guarded"`))
	})
	found := false
	for dir := range makes {
		if makes[dir] && dir != "internal/testkit/layout" && !guarded[dir] && !slices.Contains(measures, dir) && !isCopied(dir) && dir != "sched/testdata/outside" {
			t.Errorf("%s: no test imports internal/testkit/guarded", dir)
		}
		found = found || makes[dir] && guarded[dir]
	}
	if !found {
		t.Error("no tests make a Runtime")
	}
}
