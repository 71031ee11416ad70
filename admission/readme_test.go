package admission_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// TestREADMENamesTests holds that the tests are there by which README.md shows
// what the decision record asks for.
func TestREADMENamesTests(t *testing.T) {
	if err := guestbuild.NoteSources(".."); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "## What ADR 0001 of the Stellar operator asks for\n")
	if !ok {
		t.Fatal("README.md has no such section")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	named := regexp.MustCompile(`([a-z0-9/-]+\.)?(Test[A-Z][A-Za-z0-9]+)`).FindAllStringSubmatch(section, -1)
	if len(named) < 40 {
		t.Fatalf("only %d tests are named", len(named))
	}
	for _, m := range named {
		dir := strings.TrimSuffix(m[1], ".")
		if dir == "" {
			dir = "admission"
		}
		files, err := filepath.Glob(filepath.Join("..", dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(string(source), "\nfunc "+m[2]+"(")
		}
		if !found {
			t.Errorf("there is no %s in %s", m[2], dir)
		}
	}
}
