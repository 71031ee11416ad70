package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/kubewasm/kubewasm/internal/testkit/fulldisk"
)

// A module that a component may watch is the old one or the new one, also on a full disk.
func TestAFileIsWholeOnAFullDisk(t *testing.T) {
	dir := fulldisk.New(t, "256k")
	name := filepath.Join(dir, "zone.wasm")
	old, fresh := bytes.Repeat([]byte("old"), 1000), bytes.Repeat([]byte("new"), 50_000)
	if err := writeWhole(name, old); err != nil {
		t.Fatal(err)
	}
	empty := fulldisk.Fill(t, dir)
	if err := writeWhole(name, fresh); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got error %v", err)
	}
	if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, old) {
		t.Errorf("the file has %d bytes, error %v", len(got), err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("there are %v, error %v", entries, err)
	}
	empty()
	if err := writeWhole(name, fresh); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, fresh) {
		t.Errorf("the file has %d bytes, error %v", len(got), err)
	}
}

// What is no file is written to as it is.
func TestADeviceStaysOne(t *testing.T) {
	link := filepath.Join(t.TempDir(), "null")
	if err := os.Symlink(os.DevNull, link); err != nil {
		t.Fatal(err)
	}
	if err := writeWhole(link, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("%v, error %v", info, err)
	}
}
