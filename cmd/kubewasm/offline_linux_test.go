package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/kubewasm/kubewasm/internal/testkit/languages"
)

// TestBuildWithoutANetwork builds new plugins in a network namespace that has nothing, as docs/languages.md
// promises: in Go with what the module cache has.
func TestBuildWithoutANetwork(t *testing.T) {
	languages.Slow(t)
	if out, err := exec.CommandContext(t.Context(), "unshare", "--net", "--map-root-user", "true").CombinedOutput(); err != nil {
		t.Skipf("no network namespace: %v: %s", err, out)
	}
	bin, err := installed()
	if err != nil {
		t.Fatal(err)
	}
	for language, tool := range map[string]string{"go": "go", "c": "clang", "rust": "cargo"} {
		t.Run(language, func(t *testing.T) {
			_, err := exec.LookPath(tool)
			languages.Check(t, err)
			scaffolded(t, "--kind", "admission", "--lang", language, "mine")
			if language == "go" {
				tidy := exec.CommandContext(t.Context(), "go", "mod", "tidy")
				tidy.Dir = "mine"
				if out, err := tidy.CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			build := exec.CommandContext(t.Context(), "unshare", "--net", "--map-root-user", filepath.Join(bin, "kubewasm"), "build")
			build.Dir, build.Env = "mine", append(os.Environ(), "GOFLAGS=-buildvcs=false", "GOWORK=off")
			if out, err := build.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
