package host

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
)

// TestIdleInstancesAreClosed holds which instances are there after a while without calls. The
// clock is that of the bubble.
func TestIdleInstancesAreClosed(t *testing.T) {
	for _, test := range []struct {
		name  string
		after time.Duration
		guard string
		reset ResetPolicy
		// want are the instances after one, two and four times the period, with a caller that
		// uses one once in each and another that keeps one for itself.
		want []int
		// last are those without any caller but the one that keeps one.
		last int
	}{
		{name: "after five minutes", want: []int{4, 2, 2}, last: 1},
		{name: "after five minutes, with their memory hidden", guard: "memory", want: []int{4, 2, 2}, last: 1},
		{name: "never", after: -1, want: []int{4, 4, 4}, last: 4},
		{name: "not if their state is needed", reset: ResetNever, want: []int{4, 4, 4}, last: 4},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("KUBEWASM_DEBUG", test.guard)
			synctest.Test(t, func(t *testing.T) {
				rt, err := NewRuntime(RuntimeConfig{IdleAfter: test.after})
				if err != nil {
					t.Fatal(err)
				}
				defer rt.Close(context.WithoutCancel(t.Context()))
				cfg := Config{Name: "noop", Module: ModuleConfig{File: "testdata/noop.wasm"}, Limits: Limits{Instances: 4}, Reset: test.reset}
				p, err := rt.Load(t.Context(), cfg, Adapter{Kind: abi.KindScheduler})
				if err != nil {
					t.Fatal(err)
				}
				acquire := func() *Instance {
					inst, err := p.Acquire(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					return inst
				}
				call := func(inst *Instance) {
					if _, err := inst.Call(t.Context(), abi.Filter, 0, 0, 0); err != nil {
						t.Error(err)
					}
				}
				var all []*Instance
				for range 4 {
					all = append(all, acquire())
				}
				kept := all[0]
				defer kept.Release()
				for _, inst := range all[1:] {
					call(inst)
					inst.Release()
				}
				gone := all[1]
				time.Sleep(time.Second) // After this the sweeps lie between the calls.
				var got []int
				for period := range 4 {
					time.Sleep(defaultIdleAfter)
					synctest.Wait()
					if period != 2 {
						got = append(got, p.Stats().Instances)
					}
					inst := acquire()
					call(inst)
					inst.Release()
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("instances (-want +got)\n%s", diff)
				}
				call(kept)
				// A caller that had an instance before gets another.
				pin := p.Pin()
				defer pin.Release()
				inst, err := pin.Acquire(t.Context(), gone)
				if err != nil {
					t.Fatal(err)
				}
				call(inst)
				inst.Release()
				time.Sleep(2 * defaultIdleAfter)
				synctest.Wait()
				if got := p.Stats().Instances; got != test.last {
					t.Errorf("%d instances without callers, want %d", got, test.last)
				}
				all = nil
				for range 3 {
					all = append(all, acquire())
				}
				for _, inst := range all {
					call(inst)
					inst.Release()
				}
			})
		})
	}
}
