package readme

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/internal/testkit/languages"
)

// figures returns the numbers of the groups of pattern, which a document has once.
func figures(t *testing.T, document, pattern string) []float64 {
	t.Helper()
	all := regexp.MustCompile(pattern).FindAllStringSubmatch(read(t, document), -1)
	if len(all) != 1 {
		t.Fatalf("%s has %q %d times, want once", document, pattern, len(all))
	}
	var numbers []float64
	for _, group := range all[0][1:] {
		n, err := strconv.ParseFloat(strings.ReplaceAll(group, ",", ""), 64)
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// near fails unless a figure of a document is the one that was found, give or take a share.
func near(t *testing.T, document, what string, said, found, share float64) {
	t.Helper()
	if found < said*(1-share) || found > said*(1+share) {
		t.Errorf("%s: %s is %v, found %.4g", document, what, said, found)
	}
}

// TestSizesOfModules compares the sizes of modules in documents with those of the modules.
func TestSizesOfModules(t *testing.T) {
	size := func(t *testing.T, dir string) float64 {
		t.Helper()
		info, err := os.Stat(languages.Build(t, filepath.Join(root, dir)))
		if err != nil {
			t.Fatal(err)
		}
		return float64(info.Size())
	}
	t.Run("Go", func(t *testing.T) {
		found := size(t, "examples/sched/zone") / 1e6
		for document, pattern := range map[string]string{
			"README.md":               "`build` writes `zone.wasm`, about ([0-9.]+) MB",
			"docs/writing-plugins.md": `compiles with the Go that is installed to about ([0-9.]+) MB`,
			"docs/languages.md":       `That in Go has ([0-9.]+) MB`,
		} {
			near(t, document, "a Go module in MB", figures(t, document, pattern)[0], found, 0.1)
		}
	})
	t.Run("C", func(t *testing.T) {
		near(t, "docs/languages.md", "the module of zone in C in KB", figures(t, "docs/languages.md", `The module of zone in C has (\d+) KB`)[0], size(t, "examples/sched/zone/c")/1e3, 0.1)
	})
	t.Run("C, a new plugin", func(t *testing.T) {
		text, err := os.ReadFile(filepath.Join(root, "cmd/kubewasm/templates/c/scheduler/main.c.tmpl"))
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "main.c"), bytes.ReplaceAll(text, []byte("{{.Name}}"), []byte("zone")), 0o644); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(languages.Build(t, dir))
		if err != nil {
			t.Fatal(err)
		}
		near(t, "docs/c.md", "a new module in KB", figures(t, "docs/c.md", `writes zone\.wasm, some (\d+) KB`)[0], float64(info.Size())/1e3, 0.1)
	})
	t.Run("Rust", func(t *testing.T) {
		languages.Slow(t)
		said := figures(t, "docs/rust.md", `the examples have (\d+) KB \(\[zone\][^,]*, (\d+) KB \(\[required-labels\].* and (\d+) KB \(\[batch-resource`)
		for i, dir := range []string{"examples/sched/zone/rust", "examples/admission/required-labels/rust", "examples/hooks/batch-resource/rust"} {
			near(t, "docs/rust.md", dir+" in KB", said[i], size(t, dir)/1e3, 0.1)
		}
	})
}

// TestPackagesOfAFirstTest counts the packages that the first test of a plugin compiles.
func TestPackagesOfAFirstTest(t *testing.T) {
	const document = "docs/writing-plugins.md"
	said := figures(t, document, `The first test of a plugin compiles some (\d+) packages`)[0]
	for _, dir := range []string{"examples/admission/required-labels", "examples/hooks/batch-resource", "examples/sched/zone"} {
		cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-test", ".")
		cmd.Dir = filepath.Join(root, dir)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		near(t, document, "the number of packages of "+dir, said, float64(bytes.Count(out, []byte("\n"))), 0.15)
	}
}

// TestClangByHand runs the command of docs/c.md that compiles a module without the project's
// command.
func TestClangByHand(t *testing.T) {
	if _, err := exec.LookPath("clang"); err != nil {
		languages.Check(t, err)
		t.Skip(err)
	}
	line := regexp.MustCompile(`(?m)^clang .*-I include .*$`).FindString(read(t, "docs/c.md"))
	if line == "" {
		t.Fatal("docs/c.md has no command of clang with -I include")
	}
	dir := t.TempDir()
	header, err := filepath.Abs(filepath.Join(root, "guest/c"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(header, filepath.Join(dir, "include")); err != nil {
		t.Skip(err)
	}
	sources, err := filepath.Glob(filepath.Join(root, "examples/sched/zone/c/*.c"))
	if err != nil || len(sources) != 1 {
		t.Fatalf("sources are %v, %v", sources, err)
	}
	text, err := os.ReadFile(sources[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "zone.c"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	module, err := os.ReadFile(filepath.Join(dir, "zone.wasm"))
	if err != nil || !bytes.HasPrefix(module, []byte("\x00asm")) {
		t.Errorf("it has made %d bytes: %v", len(module), err)
	}
}
