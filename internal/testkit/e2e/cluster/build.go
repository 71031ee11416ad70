package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/internal/diskcache"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/e2e/minor"
)

// versionFlag makes a Kubernetes binary tell its version. Without it, it is
// v0.0.0-master, and takes the kubelets of today for newer than itself.
const versionFlag = "-X k8s.io/component-base/version.gitVersion="

// BuildKubernetes compiles a package main of the modules of Kubernetes, as [Build] does, in
// the version of the minor that is tested.
func BuildKubernetes(t testing.TB, pkg, name string) string {
	t.Helper()
	return Build(t, minor.Dir(), pkg, name, minor.Flags()...)
}

// BuildScheduler compiles the scheduler of cmd/kubewasm-scheduler for the minor. Its module files
// have the names of this module's.
func BuildScheduler(t testing.TB) string {
	t.Helper()
	return Build(t, filepath.Join(minor.Dir(), "../../../cmd/kubewasm-scheduler"), ".", "scheduler", "-modfile="+minor.Modfile)
}

// Build compiles the package main pkg, as go build understands it in the directory dir with
// flags, and returns the binary, named name. Binaries stay in the user's cache directory, so
// that unchanged programs are not linked again; tests of several packages may build the same
// one at the same time.
func Build(t testing.TB, dir, pkg, name string, flags ...string) string {
	t.Helper()
	dir, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := guestbuild.TrackSources(dir); err != nil {
		t.Fatal(err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	sum := sha256.Sum256([]byte(strings.Join(append([]string{dir, pkg, minor.Name}, flags...), "\x00")))
	programs := filepath.Join(cache, "kubewasm", "e2e")
	file := filepath.Join(programs, hex.EncodeToString(sum[:6]), name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	diskcache.UseDir(filepath.Dir(file))
	trimOnce.Do(func() { _ = diskcache.TrimDirs(programs, maxCacheBytes, maxCacheAge) })
	unlock, err := lock(file + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	args := append([]string{"build", "-ldflags=-s -w " + versionFlag + minor.Version(t), "-o", file}, flags...)
	cmd := exec.CommandContext(t.Context(), "go", append(args, pkg)...)
	cmd.Dir = dir
	// Flags of compilation would be different from those of go test, and the
	// packages of Kubernetes be compiled twice.
	cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %s in %s: %v\n%s", pkg, dir, err, out)
	}
	return file
}

var trimOnce sync.Once

// The bounds of the cache of programs: those of four minors have 1.5 GB.
const (
	maxCacheBytes = 3 << 30
	maxCacheAge   = 14 * 24 * time.Hour
)

// lock takes the file's lock, waiting for it, and returns how to give it back.
func lock(file string) (unlock func(), err error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", file, err)
	}
	return func() { f.Close() }, nil
}
