package host

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/abi"
)

// loadFile loads a guest of testdata.
func loadFile(t *testing.T, name string, limits Limits, reset ResetPolicy) *Plugin {
	t.Helper()
	rt, err := NewRuntime(RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile("testdata/" + name + ".wasm")
	if err != nil {
		t.Fatal(err)
	}
	p, err := rt.Load(t.Context(), Config{Name: name, Module: ModuleConfig{Bytes: module}, Limits: limits, Reset: reset}, Adapter{Kind: abi.KindScheduler})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := rt.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return p
}

// TestStackIsGivenBackAfterADeepCall holds that a recursion which is allowed leaves
// no instance with the stack that it took, whether it returned or trapped.
func TestStackIsGivenBackAfterADeepCall(t *testing.T) {
	const instances = 8
	p := loadFile(t, "deep", Limits{Instances: instances, MemoryBytes: 1 << 20, StackBytes: 4 << 20}, ResetOnError)
	v := p.current.Load()
	handle := func(inst *Instance) int { return v.handles.stackOf(inst.functions[abi.Filter&63].Function) }
	var all []*Instance
	for range instances {
		inst, err := p.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, inst)
	}
	for _, inst := range all {
		fresh := handle(inst)
		if fresh == 0 || fresh > maxIdleStack {
			t.Fatalf("a new handle has %d bytes of stack", fresh)
		}
		call := func(depth uint64) error {
			_, err := inst.Call(t.Context(), abi.Filter, 0, 0, depth)
			return err
		}
		// A call that needs little keeps what it has.
		before := inst.functions[abi.Filter&63].Function
		if err := call(100); err != nil || inst.functions[abi.Filter&63].Function != before {
			t.Errorf("a call 100 deep: error %v, or another handle", err)
		}
		kept := handle(inst)
		// Beside the fix this one shows that the stack of a handle does grow.
		control := inst.module.ExportedFunction("filter")
		inst.meter.set(1 << 40)
		if _, err := control.Call(&inst.ctx, 0, 0, 8_000); err != nil {
			t.Fatal(err)
		}
		if n := v.handles.stackOf(control); n <= maxIdleStack {
			t.Fatalf("8,000 frames take %d bytes of stack", n)
		}
		if err := call(8_000); err != nil || handle(inst) != fresh {
			t.Errorf("a deep call leaves %d bytes of stack, error %v", handle(inst), err)
		}
		if err := call(1 << 30); !errors.Is(err, ErrStack) {
			t.Errorf("a call that is too deep: %v", err)
		}
		inst.Release()
		if n := handle(inst); n > kept {
			t.Errorf("a call that is too deep leaves %d bytes of stack, %d before", n, kept)
		}
	}
}

// TestInstanceAfterATrapBeginsAnew holds that an instance which trapped serves its next
// call from the snapshot, with a Release in between or without, whatever the trap; and that
// one without a snapshot answers none before it is released.
func TestInstanceAfterATrapBeginsAnew(t *testing.T) {
	for _, reset := range []ResetPolicy{ResetOnError, ResetPerCall, ResetNever} {
		p := loadFile(t, "deep", Limits{Instances: 1, MemoryBytes: 1 << 20, StackBytes: 1 << 20}, reset)
		for _, depth := range []uint64{1 << 30, 1<<32 - 1, 1 << 30} {
			inst, err := p.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				// The guest counts its calls in memory and in a global.
				for want := range uint64(3) {
					if got, err := inst.Call(t.Context(), abi.Filter, 0, 0, 0); err != nil || got != 101*(want+1) {
						t.Errorf("reset %q: call %d returns %d, error %v", reset, want, got, err)
					}
				}
				if _, err := inst.Call(t.Context(), abi.Filter, 0, 0, depth); !errors.As(err, new(*TrapError)) {
					t.Errorf("reset %q: got error %v", reset, err)
				}
				if reset == ResetNever {
					break
				}
			}
			if _, err := inst.Call(t.Context(), abi.Filter, 0, 0, 0); (err == nil) != (reset != ResetNever) {
				t.Errorf("reset %q: the next call of the same instance: %v", reset, err)
			}
			_, _ = inst.Call(t.Context(), abi.Filter, 0, 0, depth) // It is released as it trapped.
			inst.Release()
		}
	}
}

// TestTrapWithinASessionCounts holds that an instance whose guest trapped in an
// Invoke is not used again, even if the caller recovered from that.
func TestTrapWithinASessionCounts(t *testing.T) {
	rt, err := NewRuntime(RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	i64 := []abi.ValueType{abi.I64, abi.I64, abi.I64}
	module, err := os.ReadFile("testdata/deep.wasm")
	if err != nil {
		t.Fatal(err)
	}
	// The guest without its marker, whose name becomes another.
	module = bytes.Replace(module, []byte(abi.Marker), bytes.Repeat([]byte{'x'}, len(abi.Marker)), 1)
	p, err := rt.Load(t.Context(), Config{
		Name: "deep", Module: ModuleConfig{Bytes: module}, Limits: Limits{Instances: 1, StackBytes: 1 << 20},
	}, Adapter{
		Kind: abi.KindScheduler,
		Dialects: []Dialect{{
			Name: "test", Detect: func(*Module) bool { return true },
			Exports: []Export{{Name: "filter", Params: i64, Results: []abi.ValueType{abi.I32}}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		inst, err := p.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		err = inst.Dialect().Do(t.Context(), "session", func() error {
			defer func() { _ = recover() }()
			if got := inst.Dialect().Invoke(0, 0, 0, 5); got != 101 {
				t.Errorf("the first call returns %d", got)
			}
			inst.Dialect().Invoke(0, 0, 0, 1<<30)
			return nil
		})
		if !errors.Is(err, ErrStack) {
			t.Errorf("got %v", err)
		}
		inst.Release()
	}
	if err := rt.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
