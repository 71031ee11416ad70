package sched_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestAdaptersLieInOtherModules tests the adapter in testdata/outside in a module of its own, which
// cannot import the internal packages of this one.
func TestAdaptersLieInOtherModules(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: compiles a module")
	}
	const module = "github.com/kubewasm/kubewasm"
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/outside")); err != nil {
		t.Fatal(err)
	}
	// A module that requires this one has its requirements as well.
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		text = bytes.Replace(text, []byte("module "+module+"\n"), []byte("module example.com/outside\n\nrequire "+module+" v0.0.0\n\nreplace "+module+" => "+root+"\n"), 1)
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-mod=mod", "-count=1", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "KUBEWASM_GUEST="+filepath.Join(root, "abi/conformance/testdata/scheduler.wasm"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
