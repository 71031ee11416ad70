package layout_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// commands are the files of programs and libraries that run other programs, and where their
// arguments come from. Names and texts of others are checked, and follow a -- or a path.
var commands = map[string]string{
	"cmd/kubewasm/gen.go":               "imports of .proto files, checked by bindgen.CheckImportPath, after a --",
	"cmd/kubewasm/new.go":               "constants",
	"examples/quickstart/guests.go":     "constants and absolute paths",
	"internal/guestbuild/build_as.go":   "absolute paths",
	"internal/guestbuild/build_c.go":    "names of files, which argument keeps from being flags, and compile_flags.txt, whose lines are flags",
	"internal/guestbuild/build_rust.go": "constants and absolute paths",
	"internal/guestbuild/guestbuild.go": "constants and absolute paths",
	"internal/wall/process_linux.go":    "the program itself, with a constant name",
}

// TestProgramsAreRunInKnownPlaces fails for a file that runs a program and is not known: a text of
// somebody else must not become a flag.
func TestProgramsAreRunInKnownPlaces(t *testing.T) {
	list := exec.CommandContext(t.Context(), "git", "grep", "-lE", `exec\.Command(Context)?\(|os\.StartProcess\(|syscall\.Exec\(`, "--", "*.go",
		":!*_test.go", ":!internal/bench", ":!internal/testkit", ":!hooks/internal", ":!hooks/runtime/internal", ":!**/testdata/**")
	list.Dir = "../../.."
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Fields(string(out))
	if diff := cmp.Diff(slices.Sorted(maps.Keys(commands)), got); diff != "" {
		t.Errorf("files that run programs (-known +found):\n%s", diff)
	}
}

// TestFilesAreSmall fails for a file of more than 300 KB in git: a program that was built beside its
// source, for instance.
func TestFilesAreSmall(t *testing.T) {
	list := exec.CommandContext(t.Context(), "git", "ls-files", "-z")
	list.Dir = "../../.."
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	files := strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })
	if len(files) == 0 {
		t.Error("git knows no files")
	}
	for _, name := range files {
		info, err := os.Lstat(filepath.Join(list.Dir, name))
		if err == nil && info.Size() > 300<<10 {
			t.Errorf("%s has %d bytes", name, info.Size())
		}
	}
}

// TestTestsStartThemselvesInOnePlace fails for a test that executes its own binary, which the
// kernel refuses where an emulator runs it. Package self knows the emulator.
func TestTestsStartThemselvesInOnePlace(t *testing.T) {
	list := exec.CommandContext(t.Context(), "git", "grep", "-lE", `os\.Args\[0\]|os\.Executable\(`, "--", "*_test.go", "internal/testkit")
	list.Dir = "../../.."
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	known := []string{
		"hooks/runtime/nri/process_test.go", // A runtime starts it, by a name of the runtime's.
		"internal/testkit/self/self.go",
		"internal/testkit/vm/init/main.go", // The first process of a virtual machine.
	}
	if diff := cmp.Diff(known, strings.Fields(string(out))); diff != "" {
		t.Errorf("files that name their own binary (-known +found):\n%s", diff)
	}
}
