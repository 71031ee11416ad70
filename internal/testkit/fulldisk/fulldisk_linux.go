// Package fulldisk makes small file systems for tests of what happens when a disk is full.
package fulldisk

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// New mounts a file system of so many bytes, which ends with the test, and returns its directory.
// It skips the test where none can be mounted: not as root, or in a container without the right.
// With CI set that is a failure.
func New(t testing.TB, bytes string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "disk")
	err := os.Mkdir(dir, 0o755)
	if err == nil {
		err = syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+bytes)
	}
	if err != nil && os.Getenv("CI") != "" {
		t.Fatalf("no file system for the test: %v", err)
	}
	if err != nil {
		t.Skipf("no file system for the test: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// Fill fills what is left of the file system at dir with a file, and returns what empties it again.
func Fill(t testing.TB, dir string) (empty func()) {
	t.Helper()
	name := filepath.Join(dir, "full")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	page := make([]byte, 4096)
	for err == nil {
		_, err = f.Write(page)
	}
	f.Close()
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("fill the disk: %v", err)
	}
	return func() {
		t.Helper()
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}
