// Package minor says for which Kubernetes minor the tests of this module were built.
//
// There is one source tree. A module file for each minor pins what it is compiled with, and
// a build tag chooses the few lines that differ:
//
//	go test ./...                                         # the newest, by go.mod
//	go test -modfile=go135.mod -tags=kube135 ./...
//
// All of them import the adapter of package sched as sched/kube137, which the module files of
// other minors replace by the directory of their own adapter. So the requirements of one minor
// never reach the build of another.
package minor

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// Dir is the directory of this module.
func Dir() string {
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		panic("minor: no file name of the caller")
	}
	return filepath.Dir(filepath.Dir(file))
}

// Flags are the flags of the go command that choose this minor in this module.
func Flags() []string {
	return []string{"-modfile=" + filepath.Join(Dir(), Modfile), "-tags=" + Tag}
}

// version asks for the version of k8s.io/kubernetes once.
var version = sync.OnceValues(func() (string, error) {
	cmd := exec.Command("go", append(append([]string{"list"}, Flags()...), "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")...)
	cmd.Dir = Dir()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go list -m k8s.io/kubernetes: %w\n%s", err, &stderr)
	}
	return strings.TrimSpace(string(out)), nil
})

// Version is the version of k8s.io/kubernetes that the module file pins, as in "v1.37.1".
func Version(t testing.TB) string {
	t.Helper()
	v, err := version()
	if err != nil {
		t.Fatal(err)
	}
	return v
}
