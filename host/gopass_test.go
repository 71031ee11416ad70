package host_test

import (
	"testing"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
)

// TestDisableGoPass holds that the filter of a guest in Go's form returns the same with the
// pass and without, on less fuel with it, and that the cache keeps the two apart.
func TestDisableGoPass(t *testing.T) {
	dir := t.TempDir()
	fuel := map[bool]int64{}
	for _, disabled := range []bool{false, true, false} {
		rt, err := host.NewRuntime(host.RuntimeConfig{CacheDir: dir, DisableGoPass: disabled})
		if err != nil {
			t.Fatal(err)
		}
		p, err := rt.Load(t.Context(), host.Config{Name: "goform", Module: host.ModuleConfig{File: "testdata/goform.wasm"}}, host.Adapter{Kind: abi.KindScheduler})
		if err != nil {
			t.Fatal(err)
		}
		inst := acquire(t, p)
		code, err := inst.Call(t.Context(), abi.Filter, 0, 0, 0)
		if code != 42 || err != nil {
			t.Errorf("disabled %v: filter returns %d, %v", disabled, code, err)
		}
		if before, ok := fuel[disabled]; ok && before != inst.FuelUsed() {
			t.Errorf("disabled %v: %d fuel, and %d before", disabled, inst.FuelUsed(), before)
		}
		fuel[disabled] = inst.FuelUsed()
		inst.Release()
		if err := rt.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if fuel[false] <= 0 || fuel[false] >= fuel[true] {
		t.Errorf("the filter takes %d fuel with the pass, %d without", fuel[false], fuel[true])
	}
}
