// Package self starts the test binary that calls it again, as a process of its own.
package self

import (
	"os"
	"os/exec"
	"slices"
	"testing"
)

// Emulator is the environment variable with the program that runs binaries for another processor,
// such as qemu-aarch64-static. The kernel executes none of them without it.
const Emulator = "KUBEWASM_TEST_EMULATOR"

// Emulated reports whether another program runs this binary. What it says about time then is
// about that program.
func Emulated() bool { return os.Getenv(Emulator) != "" }

// Command returns the command that runs this test binary with more variables in its environment,
// and args. What a child that is killed leaves in its temporary directory goes with the test's.
func Command(t testing.TB, env []string, args ...string) *exec.Cmd {
	t.Helper()
	argv := append([]string{os.Args[0]}, args...)
	if emulator := os.Getenv(Emulator); emulator != "" {
		argv = append([]string{emulator}, argv...)
	}
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Env = slices.Concat(os.Environ(), []string{"TMPDIR=" + t.TempDir()}, env)
	return cmd
}
