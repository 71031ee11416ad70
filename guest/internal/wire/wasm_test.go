//go:build !wasip1

package wire_test

import (
	"testing"

	"github.com/kubewasm/kubewasm/internal/testkit/wasmtest"
)

// TestInWebAssembly runs the test of Equal, which is in assembly.
func TestInWebAssembly(t *testing.T) { wasmtest.Run(t, "Equal") }
