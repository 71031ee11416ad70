// Package readme holds that the plugins in README.md compile, pass the tests
// beside them, and become guests.
package readme

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// goBlocks returns the blocks of Go in README.md.
func goBlocks(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for rest := string(text); ; {
		_, after, ok := strings.Cut(rest, "```go\n")
		if !ok {
			return blocks
		}
		block, after, ok := strings.Cut(after, "```\n")
		if !ok {
			t.Fatal("README.md has an open block")
		}
		blocks, rest = append(blocks, block), after
	}
}

// deleteTest asks the admission plugin about a Pod that goes: a request of that kind has
// no object, and whoever copies the plugin would not get rid of a Pod again.
const deleteTest = `package main

import (
	"testing"

	"github.com/kubewasm/kubewasm/guest/guesttest"
)

func TestDelete(t *testing.T) {
	guesttest.Each(t, owner{}, func(t *testing.T, p *guesttest.Admission) {
		got := p.Review(t, "{\"apiVersion\": \"admission.k8s.io/v1\", \"kind\": \"AdmissionReview\", \"request\": {\"uid\": \"1\", \"operation\": \"DELETE\", \"object\": null, \"oldObject\": {\"metadata\": {\"name\": \"web\"}}}}")
		if !got.Allowed {
			t.Errorf("got %+v", got)
		}
	})
}
`

func TestPlugins(t *testing.T) {
	blocks := goBlocks(t)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if err := guestbuild.NoteSources(root); err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile("../../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	imports := func(paths ...string) string {
		text := "import (\n"
		for _, path := range paths {
			if path != "testing" {
				path = "github.com/kubewasm/kubewasm/guest/" + path
			}
			text += "\t\"" + path + "\"\n"
		}
		return text + ")\n"
	}
	const start, end = "package main\n", "func main() {}\n"
	// The first plugin stands there whole; the others without what it shows.
	for i, test := range []struct{ name, main, test string }{
		{"sched", blocks[0], start + imports("testing", "guesttest") + blocks[1]},
		{"admission", start + imports("admission", "api/core") + blocks[2] + end, start + imports("testing", "guesttest") + blocks[3]},
		{"hooks", start + imports("hooks") + blocks[4] + end, start + imports("testing", "guesttest") + blocks[5]},
	} {
		t.Run(test.name, func(t *testing.T) {
			// A module of its own, as an author's.
			dir := t.TempDir()
			for name, text := range map[string]string{
				"main.go": test.main, "main_test.go": test.test, "go.sum": string(sum),
				"go.mod": "module example.com/plugin\n\ngo 1.26.0\n\n" +
					"require github.com/kubewasm/kubewasm v0.0.0\n\n" +
					"replace github.com/kubewasm/kubewasm => " + root + "\n",
			} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if test.name == "admission" {
				if err := os.WriteFile(filepath.Join(dir, "delete_test.go"), []byte(deleteTest), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			run := func(env []string, args ...string) {
				cmd := exec.CommandContext(t.Context(), "go", args...)
				cmd.Dir = dir
				cmd.Env = append(append(os.Environ(), "GOFLAGS=-mod=mod -buildvcs=false"), env...)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("block %d: go %s: %v\n%s", 2*i, strings.Join(args, " "), err, out)
				}
			}
			run(nil, "test", ".")
			run([]string{"GOOS=wasip1", "GOARCH=wasm"}, "build", "-buildmode=c-shared", "-o", "guest.wasm", ".")
			if i == 0 {
				run(nil, "run", "github.com/kubewasm/kubewasm/guest/kubewasm", "build", ".")
				run(nil, "run", "github.com/kubewasm/kubewasm/guest/kubewasm", "inspect", "zone.wasm")
			}
		})
	}
}
