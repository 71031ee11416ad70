package layout

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// unexampled are the public packages without a runnable example: generated code, packages whose
// use another one shows, and those that need a toolchain or a node to run.
var unexampled = []string{
	".", "guest/api", "guest/service", "guest/view", "hooks/nodewatch", "hooks/runtime", "hooks/runtime/runtimehook/runtimehookpb", "host/oci/e2e", "host/service/servicetest",
	"sched/kube135", "sched/kube136", "sched/kube138",
}

var exampleRE = regexp.MustCompile(`(?m)^func Example`)

// TestPublicPackagesHaveExamples holds the sentence of CONTRIBUTING.md about examples: the list
// has all packages without one, and no others.
func TestPublicPackagesHaveExamples(t *testing.T) {
	var without []string
	err := filepath.WalkDir("../../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		dir, err := filepath.Rel("../../..", path)
		if err != nil {
			return err
		}
		dir = filepath.ToSlash(dir)
		if name := d.Name(); dir != "." && (strings.HasPrefix(name, ".") || slices.Contains([]string{"internal", "testdata", "node_modules", "vendor", "target"}, name)) || dir == "examples" || dir == "cmd" {
			return fs.SkipDir
		}
		files, err := filepath.Glob(filepath.Join(path, "*.go"))
		if err != nil {
			return err
		}
		public, example := false, false
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if strings.HasSuffix(file, "_test.go") {
				example = example || exampleRE.Match(text)
				continue
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.PackageClauseOnly)
			if err != nil {
				return err
			}
			public = public || parsed.Name.Name != "main" && !strings.Contains(string(text), "//go:build ignore")
		}
		if public && !example {
			without = append(without, dir)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(unexampled, without); diff != "" {
		t.Errorf("public packages without an example (-listed +found):\n%s", diff)
	}
	text, err := os.ReadFile("../../../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := "Every public package has a doc.go, and a runnable example unless `unexampled` of internal/testkit/layout lists it."; !strings.Contains(string(text), want) {
		t.Errorf("CONTRIBUTING.md does not say: %s", want)
	}
}

// warnedRE matches a function in the first column of the table of guests.md.
var warnedRE = regexp.MustCompile("`((?:time|os|net|net/http|crypto/rand)\\.[A-Z]\\w+)`")

// TestGuestsNamesWhatBuildWarnsOf compares the table of guests.md with the functions of which
// kubewasm build warns.
func TestGuestsNamesWhatBuildWarnsOf(t *testing.T) {
	text, err := os.ReadFile("../../../docs/guests.md")
	if err != nil {
		t.Fatal(err)
	}
	check, err := os.ReadFile("../../guestbuild/check.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, " | ")
		if len(cells) != 3 {
			continue
		}
		for _, m := range warnedRE.FindAllStringSubmatch(cells[0], -1) {
			if slices.Contains([]string{"os.Args", "os.Stderr", "os.Exit"}, m[1]) {
				continue // Variables, and a call that does what it says.
			}
			found++
			if !strings.Contains(string(check), `"`+m[1]+`":`) {
				t.Errorf("docs/guests.md has %s, of which build does not warn", m[1])
			}
		}
	}
	if found < 8 {
		t.Errorf("only %d functions were found", found)
	}
}

// releaseRE matches a release of wazero or Go that a source knows.
var releaseRE = regexp.MustCompile(`\bwazero v?1\.\d+|\bGo 1\.\d+`)

// TestWhatKnowsAReleaseIsListed holds that docs/upstream.md lists each source that names a release
// of Go or wazero, with the test that shows a change and what makes the place go away.
func TestWhatKnowsAReleaseIsListed(t *testing.T) {
	text, err := os.ReadFile("../../../docs/upstream.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Tied to a release\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := 0
	var places []string
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| Place") {
			continue
		}
		rows++
		if len(cells) != 4 || slices.ContainsFunc(cells, func(cell string) bool { return strings.TrimSpace(cell) == "" }) {
			t.Errorf("a row has an empty cell: %s", line)
		}
		places = append(places, strings.TrimSpace(cells[0]))
	}
	if rows < 8 {
		t.Errorf("the table has %d rows", rows)
	}
	err = filepath.WalkDir("../../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains([]string{".git", "node_modules", "testdata", "target"}, d.Name()) {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || d.IsDir() {
			return nil
		}
		source, err := os.ReadFile(path)
		listed := func(place string) bool {
			return strings.Contains(place, d.Name()) || place == strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "../../../")
		}
		if err == nil && releaseRE.Match(source) && !slices.ContainsFunc(places, listed) {
			t.Errorf("%s knows %s, and docs/upstream.md does not list it", path, releaseRE.Find(source))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
