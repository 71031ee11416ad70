package hooks_test

import (
	"testing"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
)

// A container that is late with its end does not take the last decision of the one with
// its name that has taken its place.
func TestKeepLastOfAContainerThatWasReplaced(t *testing.T) {
	p := plugin(t, "p", scripted)
	p.FailurePolicy = host.KeepLast
	e := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{p}})
	decide := func(stage abi.Stage, id, lines string) int64 {
		t.Helper()
		req := script(map[string]string{"p": lines})
		req.Stage, req.Level, req.Pod.UID, req.Container = stage, abi.LevelContainer, "uid", hookmsg.ContainerMeta{Name: "web", ID: id}
		d, err := e.Decide(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if d.Resources == nil {
			return 0
		}
		return *d.Resources.CPUShares
	}
	for _, second := range []string{"", "c2"} { // At its creation, a transport may know no identifier.
		decide(abi.PreCreateContainer, "c1", "cpu_shares 10")
		decide(abi.PreCreateContainer, second, "cpu_shares 20")
		decide(abi.PostStopContainer, "c1", "")
		if got := decide(abi.Reconcile, "c2", "error x"); got != 20 {
			t.Errorf("after the late end, shares are %d, want the last good 20", got)
		}
		decide(abi.Reconcile, "c2", "cpu_shares 20")
		decide(abi.PostStopContainer, "c2", "")
		if got := decide(abi.Reconcile, "c3", "error x"); got != 0 {
			t.Errorf("after the own end, shares are %d", got)
		}
	}
}
