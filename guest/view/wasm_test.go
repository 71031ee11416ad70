//go:build !wasip1

package view

import (
	"testing"

	"github.com/kubewasm/kubewasm/internal/testkit/wasmtest"
)

// TestInWebAssembly runs the tests of this package with the functions in assembly.
func TestInWebAssembly(t *testing.T) { wasmtest.Run(t, "^Test") }
