// Package refusals holds the table of artifacts that are refused, host/oci/testdata/refusals.md,
// against the tests that make them. The tests of several modules have a section each.
package refusals

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("refusals.update", false, "write the section into host/oci/testdata/refusals.md")

const file = "host/oci/testdata/refusals.md"

// Table are the rows of a section.
type Table struct {
	heading string
	rows    []string
}

// New returns the table below a heading. At the end of the test, unless that failed or was
// told to run in parts, the document must have these rows and no others.
func New(t *testing.T, heading string) *Table {
	t.Helper()
	table := &Table{heading: heading}
	t.Cleanup(func() {
		if run := flag.Lookup("test.run"); !t.Failed() && !strings.Contains(run.Value.String(), "/") {
			table.check(t)
		}
	})
	return table
}

// Add adds an artifact and the error that it is refused with.
func (r *Table) Add(artifact string, err error) {
	r.rows = append(r.rows, fmt.Sprintf("| %s | `%s` |", artifact, text(err)))
}

// What differs from run to run, or is too long to read.
var replacements = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`sha256:[0-9a-f]{64}`), "sha256:…"},
	{regexp.MustCompile(`0{20,}`), "000…"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "ghcr.io"},
	{regexp.MustCompile(`oci-layout:[^: \n]+?(:\w+)?(@|: )`), "oci-layout:plugins$1$2"},
	{regexp.MustCompile(`^fetch \S+: `), ""},
	{regexp.MustCompile(`\n`), "; "},
	{regexp.MustCompile("\u00a0"), " "}, // Errors of protobuf have one or the other.
}

func text(err error) string {
	s := err.Error()
	for _, r := range replacements {
		s = r.pattern.ReplaceAllString(s, r.with)
	}
	return s
}

func (r *Table) check(t *testing.T) {
	root := "."
	for ; ; root = filepath.Join(root, "..") {
		if _, err := os.Stat(filepath.Join(root, file)); err == nil {
			break
		}
		if abs, err := filepath.Abs(root); err != nil || filepath.Dir(abs) == abs {
			t.Fatalf("there is no %s", file)
		}
	}
	data, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), "\n## "+r.heading+"\n")
	if !ok {
		t.Fatalf("%s has no heading %q", file, r.heading)
	}
	section, after, more := strings.Cut(rest, "\n## ")
	if more {
		after = "\n## " + after
	}
	intro, _, _ := strings.Cut(section, "\n|")
	want := intro + "\n| Artifact | Error |\n|---|---|\n" + strings.Join(r.rows, "\n") + "\n"
	if section == want {
		return
	}
	if *update {
		if err := os.WriteFile(filepath.Join(root, file), []byte(before+"\n## "+r.heading+"\n"+want+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	lines := strings.Split(section, "\n")
	for _, row := range r.rows {
		if !slices.Contains(lines, row) {
			t.Errorf("%s lacks the row\n%s", file, row)
		}
	}
	t.Errorf("the section %q of %s is out of date: run the test with -refusals.update", r.heading, file)
}
