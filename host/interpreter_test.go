package host_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
)

// TestInterpreter holds that a guest is the same on both engines: what it answers, what it
// spends, and that it is stopped and begins anew.
func TestInterpreter(t *testing.T) {
	type outcome struct {
		Codes   []uint64
		Reason  string
		Fuel    int64
		Stopped bool
	}
	run := func(engine host.Engine) (o outcome) {
		rt, err := host.NewRuntime(host.RuntimeConfig{CacheDir: t.TempDir(), Engine: engine})
		if err != nil {
			t.Fatal(err)
		}
		defer rt.Close(context.Background())
		good, err := config("good").load(t.Context(), rt)
		if err != nil {
			t.Fatal(err)
		}
		inst := acquire(t, good)
		defer inst.Release()
		for node := range uint64(2) {
			code, err := inst.Call(t.Context(), abi.Filter, 0, 0, node)
			if err != nil {
				t.Fatal(err)
			}
			o.Codes = append(o.Codes, code)
		}
		o.Reason, o.Fuel = inst.Reason(), inst.FuelUsed()

		cfg := config("spins")
		cfg.Limits.Instances, cfg.Limits.Timeout = 1, 20*time.Millisecond
		spins, err := cfg.load(t.Context(), rt)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			inst := acquire(t, spins)
			_, err := inst.Call(t.Context(), abi.Filter, 0, 1, 0)
			o.Stopped = errors.Is(err, context.DeadlineExceeded)
			inst.Release()
		}
		return o
	}
	want := run("")
	if !want.Stopped || want.Reason == "" || want.Fuel == 0 {
		t.Errorf("compiled: %+v", want)
	}
	if diff := cmp.Diff(want, run(host.EngineInterpreter)); diff != "" {
		t.Errorf("compiled -, interpreted +\n%s", diff)
	}
}
