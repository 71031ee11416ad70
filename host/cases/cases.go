package cases

import (
	"testing"

	"github.com/kubewasm/kubewasm/internal/cases"
)

// Test runs the cases of a file against modules, in a subtest for each of them: files, or
// directories that kubewasm build compiles. If the toolchain of a language is missing, the subtest
// is skipped, or fails if the environment has CI.
func Test(t *testing.T, file string, modules ...string) {
	t.Helper()
	cases.Test(t, file, modules...)
}
