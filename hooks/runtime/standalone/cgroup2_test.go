package standalone_test

import (
	"os"
	"testing"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/race"
	"github.com/kubewasm/kubewasm/internal/testkit/vm"
)

// The reconciler on cgroup v2, but for what floods the kernel's queue or compiles
// another guest: in a virtual machine that takes minutes.
func TestOnCgroup2(t *testing.T) {
	if os.Getenv(vm.GuestDir) != "" {
		t.Skip("this is the virtual machine")
	}
	if race.Enabled {
		t.Skip("what runs in the virtual machine is built without the race detector")
	}
	guest, err := guestbuild.Build(t.Context(), scripted)
	if err != nil {
		t.Fatal(err)
	}
	vm.Run(t, ".", "^TestReconciler(Watches|Sees|PutsBack|Brings|Finds|Decides|AfterARestart|Gives|While|Without)", guest)
}
