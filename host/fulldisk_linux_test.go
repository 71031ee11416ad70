package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/testkit/fulldisk"
)

// A cache on a full disk keeps no plugin from serving: it is said once, and nothing is left behind.
func TestACacheOnAFullDiskIsReported(t *testing.T) {
	InProcess(t, "the process of the guest compiles, and its parent keeps the code in memory")
	needsCompiler(t) // The interpreter caches nothing.
	dir := fulldisk.New(t, "1m")
	empty := fulldisk.Fill(t, dir)
	var failures []error
	rt, err := NewRuntime(RuntimeConfig{CacheDir: filepath.Join(dir, "cache"), CacheError: func(err error) { failures = append(failures, err) }})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(t.Context())
	load := func(name, file string) {
		t.Helper()
		p, err := rt.Load(t.Context(), Config{Name: name, Module: ModuleConfig{File: file}}, Adapter{Kind: abi.KindScheduler})
		if err != nil {
			t.Fatal(err)
		}
		inst, err := p.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer inst.Release()
		if _, err := inst.Call(t.Context(), abi.Filter, 0, 0, 0); err != nil {
			t.Error(err)
		}
	}
	load("noop", "testdata/noop.wasm")
	load("trap", "testdata/noop.wasm")
	if len(failures) != 1 || !errors.Is(failures[0], syscall.ENOSPC) {
		t.Errorf("failures are %v, want one of a full disk", failures)
	}
	entries, err := os.ReadDir(filepath.Join(dir, "cache"))
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "new-") {
			t.Errorf("%s is left behind", e.Name())
		}
	}
	if err != nil {
		t.Error(err)
	}
	empty()
}

// A disk without a place for a copy of machine code costs memory, and no plugin.
func TestACopyOfMachineCodeOnAFullDisk(t *testing.T) {
	needsCompiler(t)
	dir := fulldisk.New(t, "1m")
	serve := func(copies bool) {
		t.Helper()
		rt, err := NewRuntime(RuntimeConfig{CacheDir: filepath.Join(dir, "cache"), CacheCopy: copies})
		if err != nil {
			t.Fatal(err)
		}
		defer rt.Close(t.Context())
		p, err := rt.Load(t.Context(), Config{Name: "noop", Module: ModuleConfig{File: "testdata/noop.wasm"}}, Adapter{Kind: abi.KindScheduler})
		if err != nil {
			t.Fatal(err)
		}
		callFilter(t, p)
	}
	serve(false)
	empty := fulldisk.Fill(t, dir)
	serve(true)
	for _, mapping := range mappedCode(t, dir) {
		if strings.Contains(mapping, "(deleted)") {
			t.Errorf("a copy was mapped: %s", mapping)
		}
	}
	empty()
}
