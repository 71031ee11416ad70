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
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ErrNoGo says that there is no Go toolchain to build with.
var ErrNoGo = errors.New("no Go toolchain: the command go is not in PATH")

// Build compiles the package main in dir to a guest and returns the file. The
// file lies in the user's cache directory under the name of dir, so that an
// unchanged guest is not linked again.
func Build(ctx context.Context, dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
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
