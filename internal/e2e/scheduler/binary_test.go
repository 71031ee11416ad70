package scheduler

import (
	"testing"

	"github.com/kubewasm/kubewasm/internal/e2e/cluster"
)

// schedulerBinary builds the scheduler of examples/scheduler for the minor.
func schedulerBinary(t *testing.T) string {
	t.Helper()
	return cluster.Build(t, "../../../examples/scheduler", ".", "scheduler")
}
