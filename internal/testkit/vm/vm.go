// Package vm runs a test binary on a machine of its own, in QEMU: with cgroup v2 and all its
// controllers, where a build machine may have cgroup v1 or only a container's part of v2, and with a
// clock that a test may set.
package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// Kernel returns a Linux kernel to boot: the file named by KUBEWASM_KERNEL, or a kernel of the
// machine.
func kernel() (string, error) {
	if file := os.Getenv("KUBEWASM_KERNEL"); file != "" {
		return file, nil
	}
	files, err := filepath.Glob("/boot/vmlinuz-*")
	if err == nil && len(files) == 0 {
		err = errors.New("no kernel: neither KUBEWASM_KERNEL nor /boot/vmlinuz-* is there (Debian: linux-image-cloud-amd64)")
	}
	if err != nil {
		return "", err
	}
	return files[len(files)-1], nil
}

// GuestDir is the environment variable that names the directory with the guests and the programs, in
// the virtual machine, which has no tools to build them.
const GuestDir = "KUBEWASM_GUEST_DIR"

// Run builds the tests of the package in dir and runs those that match pattern in a virtual
// machine, with the files guests in GuestDir. The test fails if one of them does, and is skipped without QEMU
// or a kernel; with CI set that is a failure.
func Run(t *testing.T, dir, pattern string, guests ...string) {
	t.Helper()
	no := func(err error) {
		t.Helper()
		if os.Getenv("CI") != "" {
			t.Fatalf("no virtual machine: %v", err)
		}
		t.Skipf("no virtual machine: %v", err)
	}
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		no(err)
	}
	linux, err := kernel()
	if err != nil {
		no(err)
	}
	tmp := t.TempDir()
	build := func(file string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "go", append([]string{args[0], "-ldflags=-s -w", "-o", filepath.Join(tmp, file)}, args[1:]...)...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v: %s", file, err, out)
		}
	}
	build("init", "build", "github.com/kubewasm/kubewasm/internal/testkit/vm/init")
	build("test", "test", "-c", ".")

	var initramfs archive
	for _, name := range []string{"proc", "sys", "tmp", "dev", "bin", "guests"} {
		initramfs.add(name, 0o40755, nil)
	}
	files := map[string]string{"init": filepath.Join(tmp, "init"), "bin/sleep": filepath.Join(tmp, "init"), "test": filepath.Join(tmp, "test")}
	for _, guest := range guests {
		files["guests/"+filepath.Base(guest)] = guest
	}
	for name, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		initramfs.add(name, 0o100755, b)
	}
	initramfs.add("pattern", 0o100644, []byte(pattern))
	initramfs.add("TRAILER!!!", 0, nil)
	image := filepath.Join(tmp, "initramfs")
	if err := os.WriteFile(image, initramfs.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}

	out, err := boot(t, qemu, linux, image)
	for tries := 1; errors.Is(err, errStalled) && tries < 3; tries++ {
		// The kernel occasionally stalls in its timers, if other tests leave the emulated
		// processors too little time. The tests have separate limits.
		t.Logf("%s\nthe virtual machine stalled, once more", out)
		out, err = boot(t, qemu, linux, image)
	}
	// The serial line ends lines as on terminals.
	out = bytes.ReplaceAll(out, []byte("\r\n"), []byte("\n"))
	t.Logf("%s", out)
	if err != nil {
		t.Fatalf("the virtual machine: %v", err)
	}
	switch {
	case !bytes.Contains(out, []byte("\n"+Passed+"\n")):
		t.Error("the tests did not pass")
	case !regexp.MustCompile(`(?m)^--- PASS: `).Match(out):
		t.Error("no test ran")
	}
}

// errStalled reports that a virtual machine has printed nothing for the time of silence. The
// longest silence of a test is that for compiling a guest, which took two minutes on a busy
// machine.
var errStalled = errors.New("it stalled")

const silence = 4 * time.Minute

// boot runs the virtual machine, which takes ten seconds on an idle machine. It ends it shortly
// before the end of the test's time, so that its output is shown.
func boot(t *testing.T, qemu, linux, image string) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	if end, ok := t.Deadline(); ok {
		defer time.AfterFunc(time.Until(end)-10*time.Second, func() { cancel(context.DeadlineExceeded) }).Stop()
	}
	said := &serial{alarm: time.AfterFunc(silence, func() { cancel(errStalled) })}
	defer said.alarm.Stop()
	// KVM is not used, since not every version of QEMU works with nested KVM.
	vm := exec.CommandContext(ctx, qemu, "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "1024", "-nodefaults", "-no-reboot",
		"-display", "none", "-serial", "stdio", "-kernel", linux, "-initrd", image, "-append", "console=ttyS0 quiet panic=-1")
	vm.Stdout, vm.Stderr = said, said
	err := vm.Run()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return said.out.Bytes(), err
}

// serial keeps the output of a virtual machine, and resets the alarm at each output.
type serial struct {
	out   bytes.Buffer
	alarm *time.Timer
}

func (s *serial) Write(b []byte) (int, error) {
	s.alarm.Reset(silence)
	return s.out.Write(b)
}

// Passed is the last line of init after a success.
const Passed = "vm: passed"

// archive is an initramfs: cpio in the format "newc"
// (Documentation/driver-api/early-userspace/buffer-format.rst).
type archive struct {
	bytes.Buffer
	files int
}

func (a *archive) add(name string, mode int, content []byte) {
	a.files++
	fmt.Fprintf(a, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", a.files, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0)
	a.WriteString(name + "\x00")
	a.pad()
	a.Write(content)
	a.pad()
}

func (a *archive) pad() {
	for a.Len()%4 != 0 {
		a.WriteByte(0)
	}
}
