package replay_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/record"
	"github.com/kubewasm/kubewasm/internal/recording"
	"github.com/kubewasm/kubewasm/internal/replay"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
)

func newRuntime(t testing.TB) *host.Runtime {
	t.Helper()
	rt, err := host.NewRuntime(compiled.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return rt
}

func TestTheSameModuleReproducesEverything(t *testing.T) {
	for _, reset := range []host.ResetPolicy{host.ResetOnError, host.ResetPerCall, host.ResetNever} {
		t.Run(string(reset), func(t *testing.T) {
			dir := t.TempDir()
			module, err := os.ReadFile(filepath.Join("..", "..", "host", "testdata", "good.wasm"))
			if err != nil {
				t.Fatal(err)
			}
			p, err := newRuntime(t).Load(t.Context(), host.Config{
				Name: "good", Module: host.ModuleConfig{Bytes: module}, GuestConfig: []byte(`{"zone": "a"}`), Reset: reset,
				Record: &record.Config{Path: dir, SequenceCalls: 7},
			}, host.Adapter{Kind: abi.KindScheduler})
			if err != nil {
				t.Fatal(err)
			}
			const calls = 100
			for n := range uint64(calls) {
				inst, err := p.Acquire(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if _, err := inst.Call(t.Context(), abi.Filter, 0, 0, n); err != nil {
					t.Fatal(err)
				}
				inst.Release()
			}
			if err := p.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			recorded, err := recording.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			got, err := replay.Verify(t.Context(), newRuntime(t), recorded, module, replay.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if got.Exact < calls || got.Exact != got.Calls {
				t.Errorf("%d of %d calls are exact: %v", got.Exact, got.Calls, got.Differences)
			}
		})
	}
}
