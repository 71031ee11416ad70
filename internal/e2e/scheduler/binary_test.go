package scheduler

import (
	"testing"

	"github.com/kubewasm/kubewasm/internal/e2e/cluster"
	"github.com/kubewasm/kubewasm/internal/e2e/minor"
)

// schedulerBinary builds the scheduler of examples/scheduler for the minor. Its module files
// have the names of this module's.
func schedulerBinary(t *testing.T) string {
	t.Helper()
	return cluster.Build(t, "../../../examples/scheduler", ".", "scheduler", "-modfile="+minor.Modfile)
}
