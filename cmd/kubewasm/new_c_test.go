package main

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// TestNewPluginsInC builds and tests what new -lang c writes.
func TestNewPluginsInC(t *testing.T) {
	if _, err := exec.LookPath("clang"); err != nil {
		t.Skip("clang is not installed (Debian: clang, lld)")
	}
	for _, kind := range directories("templates/c") {
		t.Run(kind, func(t *testing.T) {
			scaffolded(t, "-kind", kind, "-lang", "c", "my-plugin")
			t.Chdir("my-plugin")
			for _, args := range [][]string{{"build"}, {"test", "cases.yaml", "my-plugin.wasm"}, {"inspect", "my-plugin.wasm"}} {
				if code, out, stderr := kubewasm(t, args...); code != 0 {
					t.Fatalf("%s: exit code %d: %s%s", args[0], code, out, stderr)
				}
			}
			if files, _ := filepath.Glob("*"); len(files) < 4 {
				t.Errorf("files: %q", files)
			}
		})
	}
}
