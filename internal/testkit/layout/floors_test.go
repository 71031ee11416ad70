package layout

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// internalOfTests are the internal packages that tests of examples import: what builds guests and a
// cluster. A list becomes shorter, and no longer.
var internalOfTests = map[string][]string{
	"examples/controller": {"internal/guestbuild", "internal/testkit/e2e/cluster", "internal/testkit/guarded"},
}

// eachImport calls f with each import of this module's packages by a file of Go, with the file's
// name relative to the root.
func eachImport(t *testing.T, f func(file, dir string)) {
	t.Helper()
	err := filepath.WalkDir("../../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains([]string{".git", "node_modules", "testdata", "target"}, d.Name()) {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		name, err := filepath.Rel("../../..", path)
		if err != nil {
			return err
		}
		for _, i := range parsed.Imports {
			imported, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			if dir, ours := strings.CutPrefix(imported, module+"/"); ours {
				f(filepath.ToSlash(name), dir)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// wings are the dialects of policies that are modules of their own.
var wings = []string{"admission/kubewarden", "admission/rego"}

// TestWingsUseTheSeam holds that the dialects of policies import the adapter by its public packages
// alone, as a dialect in another repository would, and that nothing of the root module imports them.
func TestWingsUseTheSeam(t *testing.T) {
	inWing := func(dir string) bool {
		return slices.ContainsFunc(wings, func(wing string) bool { return within(dir, wing) })
	}
	nested := []string{"charts/render", "cmd/kubewasm", "cmd/kubewasm-policy-server", "cmd/kubewasm-webhook", "host/oci/e2e", "internal/bench", "internal/testkit/e2e", "internal/testkit/rego", "internal/testkit/schemas"}
	found := 0
	eachImport(t, func(file, dir string) {
		from := filepath.ToSlash(filepath.Dir(file))
		switch {
		case inWing(from):
			if within(dir, "admission") {
				found++
			}
			if within(dir, "admission/internal") {
				t.Errorf("%s imports %s", file, dir)
			}
			if within(from, "admission/rego") && within(dir, "admission/kubewarden") {
				t.Errorf("%s imports %s: Kubewarden's policy server needs Rego, and not the other way round", file, dir)
			}
		case inWing(dir) && !slices.ContainsFunc(nested, func(n string) bool { return within(from, n) }):
			t.Errorf("%s imports %s", file, dir)
		}
	})
	if found < 20 {
		t.Errorf("found %d imports of admission", found)
	}
}

// TestProductsImportNoChecks holds that internal has two floors: what products use imports nothing
// of what builds and checks the project, outside of tests.
func TestProductsImportNoChecks(t *testing.T) {
	found := 0
	eachImport(t, func(file, dir string) {
		if roomOf(dir) != checks {
			return
		}
		found++
		if roomOf(filepath.ToSlash(filepath.Dir(file))) != checks && !strings.HasSuffix(file, "_test.go") {
			t.Errorf("%s imports %s", file, dir)
		}
	})
	if found < 100 {
		t.Errorf("found %d imports", found)
	}
}

// TestExamplesImportNothingInternal holds that an example imports no internal package, so that a
// reader can copy it into a module of their own, and that its tests import those that are listed.
func TestExamplesImportNothingInternal(t *testing.T) {
	programs, tests := map[string][]string{}, map[string][]string{}
	note := func(of map[string][]string, example, dir string) {
		if !slices.Contains(of[example], dir) {
			of[example] = append(of[example], dir)
		}
	}
	eachImport(t, func(file, dir string) {
		parts := strings.Split(file, "/")
		if parts[0] != "examples" || !slices.Contains(strings.Split(dir, "/"), "internal") || within(dir, strings.Join(parts[:2], "/")) {
			return
		}
		if example := strings.Join(parts[:2], "/"); strings.HasSuffix(file, "_test.go") {
			note(tests, example, dir)
		} else {
			note(programs, example, dir)
		}
	})
	for _, of := range []map[string][]string{programs, tests} {
		for _, list := range of {
			slices.Sort(list)
		}
	}
	for example, list := range programs {
		t.Errorf("%s imports %q", example, list)
	}
	if diff := cmp.Diff(internalOfTests, tests); diff != "" {
		t.Errorf("tests (-listed +found):\n%s", diff)
	}
}
