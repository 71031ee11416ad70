//go:build !wasip1

package core_test

import (
	"testing"

	"github.com/kubewasm/kubewasm/internal/testkit/wasmtest"
)

// TestInWebAssembly runs the tests about tolerations with the functions in assembly.
func TestInWebAssembly(t *testing.T) { wasmtest.Run(t, "Tolerat") }
