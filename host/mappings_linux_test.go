package host

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/testkit/self"
)

// childVariable makes a test the process that it starts.
const childVariable = "KUBEWASM_HOST_CHILD"

// runChild runs the test again in a process of its own, which finds role in childVariable.
func runChild(t *testing.T, role string) ([]byte, error) {
	t.Helper()
	child := self.Command(t, []string{childVariable + "=" + role}, "-test.run=^"+t.Name()+"$", "-test.count=1")
	return child.CombinedOutput()
}

// TestAProcessWithoutMappingsLivesOn holds that a process which has nearly all of its mappings
// refuses a module and an instance, says so, and serves on: without mappings for Go's runtime and
// wazero's finalizers it would end. A process of its own maps most of them away.
func TestAProcessWithoutMappingsLivesOn(t *testing.T) {
	InProcess(t, "the mappings of code and memory are in the process of the guest")
	needsCompiler(t) // The interpreter maps nothing.
	if os.Getenv(childVariable) == "" {
		if out, err := runChild(t, "mappings"); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	rt, err := NewRuntime(RuntimeConfig{CacheDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(t.Context())
	rt.mappings.most = min(rt.mappings.most, defaultMappings) // Where a million is possible.
	load := func(name string) (*Plugin, error) {
		return rt.Load(t.Context(), Config{Name: name, Module: ModuleConfig{File: "testdata/" + name + ".wasm"}, Limits: Limits{Instances: 2}}, Adapter{Kind: abi.KindScheduler})
	}
	p, err := load("noop")
	if err != nil {
		t.Fatal(err)
	}
	callFilter(t, p)

	page := os.Getpagesize()
	used, most := rt.Mappings()
	n := (most - int(rt.mappings.reserve()) - used) / 2
	if n <= 0 {
		t.Fatalf("the process has %d of %d mappings", used, most)
	}
	filler, err := unix.Mmap(-1, 0, (2*n+1)*page, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n { // Each splits the mapping around it.
		if err := unix.Mprotect(filler[(2*i+1)*page:(2*i+2)*page], unix.PROT_READ); err != nil {
			t.Fatal(err)
		}
	}
	if now, _ := rt.Mappings(); now < used+2*n {
		t.Fatalf("the process has %d mappings, want %d", now, used+2*n)
	}
	if _, err := load("spins"); !errors.Is(err, errMappings) {
		t.Errorf("another module: %v", err)
	}
	first, err := p.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Fresh(t.Context()); !errors.Is(err, errMappings) {
		t.Errorf("another instance: %v", err)
	}
	first.Release()
	callFilter(t, p)
	if err := unix.Munmap(filler); err != nil {
		t.Fatal(err)
	}
	if _, err := load("spins"); err != nil {
		t.Errorf("after the mappings are gone: %v", err)
	}
}

// TestACopyOfMachineCodeSurvivesItsFile holds what [RuntimeConfig.CacheCopy] is for: a file of
// the cache that is overwritten in place, or cut off, is not what the process executes. Without it
// the process ends, as docs/operating.md says.
func TestACopyOfMachineCodeSurvivesItsFile(t *testing.T) {
	InProcess(t, "the process of the guest compiles, and its parent keeps the code in memory")
	needsCompiler(t)
	const copied, mapped = "copied", "mapped"
	for role, lives := range map[string]bool{copied: true, mapped: false} {
		if os.Getenv(childVariable) == "" {
			if out, err := runChild(t, role); (err == nil) != lives {
				t.Errorf("machine code that is %s: %v: %.1000s", role, err, out)
			}
		}
	}
	role := os.Getenv(childVariable)
	if role == "" {
		return
	}
	dir := t.TempDir()
	rt, err := NewRuntime(RuntimeConfig{CacheDir: dir, CacheCopy: role == copied})
	if err != nil {
		t.Fatal(err)
	}
	p, err := rt.Load(t.Context(), Config{Name: "noop", Module: ModuleConfig{File: "testdata/noop.wasm"}}, Adapter{Kind: abi.KindScheduler})
	if err != nil {
		t.Fatal(err)
	}
	mappings := mappedCode(t, dir)
	named := func(line string) bool { return !strings.Contains(line, "(deleted)") }
	if len(mappings) == 0 || slices.ContainsFunc(mappings, named) != (role == mapped) {
		t.Errorf("the mappings are %q", mappings)
		return
	}
	file := moduleFile(t, dir)
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i := range content {
		content[i] = 0xcc // A breakpoint.
	}
	if _, err := f.WriteAt(content, 0); err != nil {
		t.Fatal(err)
	}
	callFilter(t, p)
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	callFilter(t, p)
}

// TestACacheThatCannotBeUsedIsReported holds that a program can do without its cache.
func TestACacheThatCannotBeUsedIsReported(t *testing.T) {
	file := t.TempDir() + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open := t.TempDir()
	if err := os.Chmod(open, 0o777); err != nil { //nolint:gosec // The fault that is tested.
		t.Fatal(err)
	}
	for name, dir := range map[string]string{"a file": file, "a directory that others can write to": open} {
		t.Run(name, func(t *testing.T) {
			if _, err := NewRuntime(RuntimeConfig{CacheDir: dir}); err == nil {
				t.Error("NewRuntime has returned no error")
			}
			var reported error
			rt, err := NewRuntime(RuntimeConfig{CacheDir: dir, CacheError: func(err error) { reported = err }})
			if err != nil || reported == nil {
				t.Fatalf("the error is %v, reported is %v", err, reported)
			}
			defer rt.Close(t.Context())
			p, err := rt.Load(t.Context(), Config{Name: "noop", Module: ModuleConfig{File: "testdata/noop.wasm"}}, Adapter{Kind: abi.KindScheduler})
			if err != nil {
				t.Fatal(err)
			}
			callFilter(t, p)
		})
	}
}
