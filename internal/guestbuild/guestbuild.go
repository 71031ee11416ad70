// Package guestbuild compiles guests with the machine's Go, for the quick start,
// tests and benchmarks.
package guestbuild

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ErrNoGo says that there is no Go toolchain to build with.
var ErrNoGo = errors.New("no Go toolchain: the command go is not in PATH")

// NoteSources looks at every source file of the module that dir belongs to. go
// test uses an older result again if what the test looked at is unchanged, and
// it does not see what a go command that the test runs looks at.
func NoteSources(dir string) error {
	root, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		parent := filepath.Dir(root)
		if parent == root {
			return nil // No module, nothing to note.
		}
		root = parent
	}
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // What another test removes meanwhile is no source.
		}
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root {
			return filepath.SkipDir
		}
		if _, err := os.Stat(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

// Build compiles the package main in dir to a guest and returns the file. The
// file lies in the user's cache directory under the name of dir, so that an
// unchanged guest is not linked again.
func Build(ctx context.Context, dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := NoteSources(dir); err != nil {
		return "", err
	}
	goCommand, err := exec.LookPath("go")
	if err != nil {
		return "", ErrNoGo
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	sum := sha256.Sum256([]byte(dir))
	file := filepath.Join(cache, "kubewasm", "guests", hex.EncodeToString(sum[:6]), filepath.Base(dir)+".wasm")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return "", err
	}
	// Tests of several packages build the same guest at the same time; one must
	// not read what another is writing.
	unlock, err := lock(file + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	cmd := exec.CommandContext(ctx, goCommand, "build", "-buildmode=c-shared", "-trimpath", "-ldflags=-s -w", "-o", file, ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build guest %s: %w: %s", dir, err, strings.TrimSpace(output.String()))
	}
	return file, nil
}
