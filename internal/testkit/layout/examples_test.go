package layout

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// copied are the examples that readers copy into modules of their own. examples/controller has tests
// on a cluster of this repository, and the others are programs.
var copied = []string{"examples/admission", "examples/endpoint-picker", "examples/hooks", "examples/quickstart", "examples/sched"}

// isCopied reports whether a directory, relative to the root, is a part of such an example.
func isCopied(dir string) bool {
	for _, example := range copied {
		if strings.HasPrefix(dir+"/", example+"/") {
			return true
		}
	}
	return false
}

// TestExamplesCanBeCopied copies the examples into another module, and vets them there with their
// tests: a package there cannot import the internal ones of this module.
func TestExamplesCanBeCopied(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: compiles the examples")
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	dir, files := t.TempDir(), 0
	for _, example := range copied {
		err := filepath.WalkDir(filepath.Join(root, example), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || d.Name() == "go.mod" || d.Name() == "go.sum" {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(filepath.Join(root, "examples"), path)
			if err != nil {
				return err
			}
			if strings.HasSuffix(path, ".go") {
				files++
				text = bytes.ReplaceAll(text, []byte(`"`+module+`/examples/`), []byte(`"example.com/copied/`))
			}
			to := filepath.Join(dir, rel)
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				return err
			}
			return os.WriteFile(to, text, 0o644)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 50 {
		t.Fatalf("there are %d files of Go", files)
	}
	// A module that requires this one has its requirements as well.
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if name == "go.mod" {
			text = bytes.Replace(text, []byte("module "+module+"\n"), []byte("module example.com/copied\n\nrequire "+module+" v0.0.0\n\nreplace "+module+" => "+root+"\n"), 1)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	vet := exec.CommandContext(t.Context(), "go", "vet", "-mod=mod", "./...")
	vet.Dir, vet.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	if out, err := vet.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

var (
	slowRE = regexp.MustCompile(`\b(?:languages|toolchains)\.Slow\(`)
	testRE = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	makeRE = regexp.MustCompile(`(?m)^\tKUBEWASM_LANGUAGES=1 go test(?: -C (\S+))? -timeout \S+ -run '([^']+)'(?: \\\n)?(.*)$`)
)

// TestSlowTestsOfLanguagesRun holds that make languages runs each test that only it runs.
func TestSlowTestsOfLanguagesRun(t *testing.T) {
	text, err := os.ReadFile("../../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, target, _ := strings.Cut(string(text), "\nlanguages:")
	target, _, _ = strings.Cut(target, "\n\n")
	lines := makeRE.FindAllStringSubmatch(target, -1)
	if lines == nil {
		t.Fatal("Makefile has no target languages that runs go test")
	}
	// runs reports whether a line runs a test of a directory.
	runs := func(dir, name string) bool {
		return slices.ContainsFunc(lines, func(line []string) bool {
			rest, ok := dir, line[1] == ""
			if !ok {
				if rest, ok = strings.CutPrefix(dir+"/", line[1]+"/"); !ok {
					return false
				}
			}
			rest = "./" + strings.TrimSuffix(rest, "/")
			packages := strings.Fields(line[3])
			return (slices.Contains(packages, rest) || slices.Contains(packages, "./...")) && regexp.MustCompile(line[2]).MatchString(name)
		})
	}
	found := 0
	eachTest(t, func(dir string, source []byte) {
		for _, at := range slowRE.FindAllIndex(source, -1) {
			tests := testRE.FindAllSubmatch(source[:at[0]], -1)
			if tests == nil {
				continue // This file.
			}
			found++
			name := string(tests[len(tests)-1][1])
			if !runs(dir, name) {
				t.Errorf("%s: make languages does not run %s", dir, name)
			}
		}
	})
	if found < 5 {
		t.Errorf("found %d tests", found)
	}
}
