// Package languages compiles guests in all languages for tests. A test is skipped where a
// toolchain is missing, and fails there if the environment has CI.
package languages

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// Slow skips a test that compiles so many guests that make languages alone runs it.
func Slow(t testing.TB) {
	t.Helper()
	if os.Getenv("KUBEWASM_LANGUAGES") == "" {
		t.Skip("KUBEWASM_LANGUAGES is not set: make languages runs it")
	}
}

// Check ends a test that could not compile a guest.
func Check(t testing.TB, err error) {
	t.Helper()
	if missing := (*guestbuild.MissingToolError)(nil); errors.As(err, &missing) && os.Getenv("CI") == "" {
		t.Skip(missing)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Build compiles the guest in a directory, as [guestbuild.Build] does, and returns the file.
func Build(t testing.TB, dir string) string {
	t.Helper()
	file, err := guestbuild.Build(t.Context(), dir)
	Check(t, err)
	return file
}

// Compile compiles a guest into a directory of the test, and returns the file and the metadata.
func Compile(t testing.TB, cfg guestbuild.Config) (file string, m *metadata.Metadata) {
	t.Helper()
	cfg.Output = filepath.Join(t.TempDir(), "guest.wasm")
	m, err := guestbuild.Compile(t.Context(), cfg)
	Check(t, err)
	return cfg.Output, m
}
