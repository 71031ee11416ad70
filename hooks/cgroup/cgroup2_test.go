package cgroup_test

import (
	"os"
	"testing"

	"github.com/kubewasm/kubewasm/internal/testkit/vm"
)

// The tests on cgroups of the kernel, once more on cgroup v2 with all its
// controllers.
func TestOnCgroup2(t *testing.T) {
	if os.Getenv(vm.GuestDir) != "" {
		t.Skip("this is the virtual machine")
	}
	vm.Run(t, ".", "^Test(Enforce|State|AProcess)")
}
