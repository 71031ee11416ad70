package layout_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// goldenModules are the sets of modules that abi/conformance runs for ever.
const goldenModules = "abi/conformance/testdata/golden"

// changedIn returns the files below dir that a commit or the checkout changes or removes after they were added,
// as far as the history is there.
func changedIn(t *testing.T, repository, dir string) string {
	t.Helper()
	var changes []byte
	for _, args := range [][]string{
		{"log", "--no-renames", "--diff-filter=MDT", "--name-status", "--format=%h %s"},
		{"diff", "--no-renames", "--diff-filter=MDT", "--name-status", "HEAD"},
	} {
		cmd := exec.CommandContext(t.Context(), "git", append(args, "--", dir)...)
		cmd.Dir = repository
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("git %s: %v", args[0], err)
		}
		changes = append(changes, out...)
	}
	return string(changes)
}

// TestGoldenModulesStay fails if a golden module, its list or its cases are changed or removed: a host that
// refuses a module of an earlier SDK breaks its users. A new set lies beside the others.
func TestGoldenModulesStay(t *testing.T) {
	if changes := changedIn(t, "../../..", goldenModules); changes != "" {
		t.Errorf("golden modules were changed; add a set instead, by go test ./abi/conformance -run TestGolden -golden NAME:\n%s", changes)
	}
}

// TestChangesOfGoldenModulesAreFound changes and removes a file in a repository of its own.
func TestChangesOfGoldenModulesAreFound(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "golden", "a.wasm")
	git := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"}, args...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v: %s", args, err, out)
		}
	}
	write := func(text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	changed := func(want bool, what string) {
		t.Helper()
		if got := changedIn(t, dir, "golden"); (got != "") != want {
			t.Errorf("%s: got %q", what, got)
		}
	}
	git("init", "-q")
	write("first")
	git("add", ".")
	git("commit", "-q", "-m", "Add a module")
	changed(false, "a module was added")
	write("second")
	changed(true, "the checkout has another module")
	git("checkout", "-q", "golden")
	changed(false, "the checkout has the module again")
	git("rm", "-q", "-r", "golden")
	git("commit", "-q", "-m", "Remove it")
	changed(true, "a commit removes the module")
}
