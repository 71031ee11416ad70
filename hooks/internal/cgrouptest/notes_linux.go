package cgrouptest

import (
	"syscall"
	"testing"
)

// KeepsNotes skips the test if the file system of a directory has no attributes of the kind in which
// notes are kept, or only root may set them.
func KeepsNotes(t testing.TB, dir string) {
	t.Helper()
	if err := syscall.Setxattr(dir, "trusted.kubewasm-test", []byte("1"), 0); err != nil {
		t.Skipf("set an attribute of %s: %v", dir, err)
	}
	if err := syscall.Removexattr(dir, "trusted.kubewasm-test"); err != nil {
		t.Fatal(err)
	}
}
