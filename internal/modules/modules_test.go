// Package modules runs the tests of the modules inside this one. They are
// modules of their own so that nobody who imports kubewasm sees what they need:
// Kubernetes itself, other plugin systems, container runtimes.
package modules

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// nested returns the directories with a go.mod below root, without root's own.
func nested(t *testing.T, root string) []string {
	t.Helper()
	var dirs []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if dir := filepath.Dir(path); d.Name() == "go.mod" && dir != root {
			dirs = append(dirs, dir)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

func TestNestedModules(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the first build of Kubernetes takes minutes")
	}
	if err := guestbuild.NoteSources("."); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join("..", "..")
	dirs := nested(t, root)
	if len(dirs) == 0 {
		t.Fatal("no nested module found")
	}
	for _, dir := range dirs {
		name, err := filepath.Rel(root, dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "go", "test", "-timeout", "25m", "./...")
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "GOWORK=off")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("go test ./... in %s: %v\n%s", name, err, out)
			}
			t.Logf("%s", out)
		})
	}
}
