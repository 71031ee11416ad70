// Package self starts the test binary that calls it again, as a process of its own.
package self

import (
	"context"
	"os"
	"os/exec"
)

// Emulator is the environment variable with the program that runs binaries for another processor,
// such as qemu-aarch64-static. The kernel executes none of them without it.
const Emulator = "KUBEWASM_TEST_EMULATOR"

// Emulated reports whether another program runs this binary. What it says about time then is
// about that program.
func Emulated() bool { return os.Getenv(Emulator) != "" }

// Command returns the command that runs this test binary with args.
func Command(ctx context.Context, args ...string) *exec.Cmd {
	argv := append([]string{os.Args[0]}, args...)
	if emulator := os.Getenv(Emulator); emulator != "" {
		argv = append([]string{emulator}, argv...)
	}
	return exec.CommandContext(ctx, argv[0], argv[1:]...)
}
