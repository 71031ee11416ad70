package layout_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// golden are the directories of the files that each later version takes, and the commands that add to them.
var golden = map[string]string{
	"abi/conformance/testdata/golden":            "go test ./abi/conformance -run TestGolden -golden NAME",
	"cmd/kubewasm-controller/testdata/golden":    "a file in the set next; see VERSIONING.md",
	"cmd/kubewasm-agent/testdata/golden":         "a file in the set next; see VERSIONING.md",
	"cmd/kubewasm-policy-server/testdata/golden": "a file in the set next; see VERSIONING.md",
	"internal/testkit/schemas/testdata/golden":   "a file in the set next; see VERSIONING.md",
}

// changedIn returns the files below dir that a commit or the checkout changes or removes after they were added,
// as far as the history is there. Those of the set next may change.
func changedIn(t *testing.T, repository, dir string) string {
	t.Helper()
	var changes []byte
	for _, args := range [][]string{
		{"log", "--no-renames", "--diff-filter=MDT", "--name-status", "--format=%h %s"},
		{"diff", "--no-renames", "--diff-filter=MDT", "--name-status", "HEAD"},
	} {
		cmd := exec.CommandContext(t.Context(), "git", append(args, "--", dir, ":(exclude)"+dir+"/next")...)
		cmd.Dir = repository
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("git %s: %v", args[0], err)
		}
		changes = append(changes, out...)
	}
	return string(changes)
}

// TestGoldenFilesStay fails if a golden module, object or configuration is changed or removed, or what it was
// found to be: a version that refuses what an earlier one took breaks its users. A new file lies beside the
// others.
func TestGoldenFilesStay(t *testing.T) {
	for dir, command := range golden {
		if files, err := os.ReadDir("../../../" + dir); err != nil || len(files) == 0 {
			t.Errorf("%s: %d sets, error %v", dir, len(files), err)
		}
		if changes := changedIn(t, "../../..", dir); changes != "" {
			t.Errorf("golden files were changed; add others instead, by %s:\n%s", command, changes)
		}
	}
}

// TestChangesOfGoldenFilesAreFound changes and removes a file in a repository of its own.
func TestChangesOfGoldenFilesAreFound(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "golden", "v0.1", "a.wasm")
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
	file = filepath.Join(dir, "golden", "next", "b.wasm")
	write("first")
	git("add", ".")
	git("commit", "-q", "-m", "Add a file for the next version")
	write("second")
	git("commit", "-q", "-a", "-m", "Change it")
	changed(false, "a file of the next version was changed")
	git("mv", "golden/next", "golden/v0.2")
	git("commit", "-q", "-m", "Release it")
	changed(false, "the next version has a name")
	git("rm", "-q", "-r", "golden/v0.1")
	git("commit", "-q", "-m", "Remove it")
	changed(true, "a commit removes the module")
}
