package host_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/snapmem"
	"github.com/kubewasm/kubewasm/internal/testkit/guarded"
)

// readable reports whether a read of b finds what is there: it does not if it faults,
// or if all of b is poison.
func readable(b []byte) (ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	return !bytes.Equal(b, bytes.Repeat([]byte{snapmem.Poison}, len(b)))
}

// lend calls the guest and returns the instance with a part of its memory, which a host
// function or the caller was lent.
func lend(t *testing.T, p *host.Plugin) (*host.Instance, []byte) {
	t.Helper()
	inst := acquire(t, p)
	if got, err := inst.Call(t.Context(), abi.Filter, 0, 0, 0); err != nil || got>>16 != got&0xffff {
		t.Fatalf("the guest counts %#x, error %v", got, err)
	}
	lent := inst.Dialect().Memory()[:64]
	if !readable(lent) || lent[0] == 0 {
		t.Fatalf("memory is %v while it is lent", lent)
	}
	return inst, lent
}

// TestMemoryIsUnreadableOnceItIsGivenBack holds that a host finds out in debug mode, at
// once and each time, that it reads what it was lent by an instance after that.
func TestMemoryIsUnreadableOnceItIsGivenBack(t *testing.T) {
	trap := func(t *testing.T, inst *host.Instance, how uint64) {
		t.Helper()
		if _, err := inst.Call(t.Context(), abi.Filter, 0, how, 0); err == nil {
			t.Fatal("no trap")
		}
	}
	swap := func(t *testing.T, p *host.Plugin) {
		t.Helper()
		if err := p.Swap(t.Context(), testdata("noop"), ""); err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]struct {
		edit func(*guest)
		// end gives the instance back, the only one that is in use; the plugin serves
		// on unless closed.
		end    func(t *testing.T, p *host.Plugin, inst *host.Instance)
		closed bool
	}{
		"released": {end: func(_ *testing.T, _ *host.Plugin, inst *host.Instance) { inst.Release() }},
		"reset after a call": {
			edit: func(c *guest) { c.Reset = host.ResetPerCall },
			end:  func(_ *testing.T, _ *host.Plugin, inst *host.Instance) { inst.Release() },
		},
		"reset after a trap": {end: func(t *testing.T, _ *host.Plugin, inst *host.Instance) {
			trap(t, inst, 9)
			inst.Release()
		}},
		"reset after growth and a trap": {end: func(t *testing.T, _ *host.Plugin, inst *host.Instance) {
			trap(t, inst, 8)
			inst.Release()
		}},
		"discarded after a trap": {
			edit: func(c *guest) { c.Reset = host.ResetNever },
			end: func(t *testing.T, _ *host.Plugin, inst *host.Instance) {
				trap(t, inst, 9)
				inst.Release()
			},
		},
		"discarded since it has reached its limit": {
			edit: func(c *guest) { c.Limits.MemoryBytes = 2 * page },
			end: func(t *testing.T, _ *host.Plugin, inst *host.Instance) {
				trap(t, inst, 8)
				inst.Release()
			},
		},
		"of a version that was replaced": {end: func(t *testing.T, p *host.Plugin, inst *host.Instance) {
			inst.Release()
			swap(t, p)
		}},
		"of a version that was replaced meanwhile": {end: func(t *testing.T, p *host.Plugin, inst *host.Instance) {
			swap(t, p)
			inst.Release()
		}},
		"of a pinned version that was replaced": {end: func(t *testing.T, p *host.Plugin, inst *host.Instance) {
			pin := p.Pin()
			swap(t, p)
			inst.Release()
			again, err := pin.Acquire(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if !readable(again.Dialect().Memory()) {
				t.Error("the memory of an instance in use is unreadable")
			}
			again.Release()
			pin.Release()
		}},
		"of a plugin that was closed": {closed: true, end: func(t *testing.T, p *host.Plugin, inst *host.Instance) {
			inst.Release()
			if err := p.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}},
		"of a plugin that was closed meanwhile": {closed: true, end: func(t *testing.T, p *host.Plugin, inst *host.Instance) {
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if err := p.Close(ended); err == nil {
				t.Error("a plugin was closed during a call")
			}
			inst.Release()
			if err := p.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			eachMemory(t, func(t *testing.T, plain bool) {
				t.Setenv("KUBEWASM_DEBUG", "memory")
				cfg := config("spins")
				cfg.Limits.Instances = 20
				if test.edit != nil {
					test.edit(&cfg)
				}
				p := loadWith(t, cfg, plain)
				// The second instance begins from the snapshot.
				first, lentFirst := lend(t, p)
				second, lentSecond := lend(t, p)
				first.Release()
				test.end(t, p, second)
				for p.Stats().Retired != 0 && !test.closed { // Closed in the background.
					runtime.Gosched()
				}
				for _, lent := range [][]byte{lentFirst, lentSecond} {
					if readable(lent) {
						t.Errorf("memory can still be read: %v", lent)
					}
				}
				if test.closed {
					return
				}
				for range 2 { // Idle ones and new ones.
					var all []*host.Instance
					for range cfg.Limits.Instances {
						inst := acquire(t, p)
						if _, err := inst.Call(t.Context(), abi.Filter, 0, 0, 0); err != nil {
							t.Error(err)
						}
						if !readable(inst.Dialect().Memory()) {
							t.Error("the memory of an instance in use is unreadable")
						}
						all = append(all, inst)
					}
					for _, inst := range all {
						inst.Release()
					}
				}
			})
		})
	}
}

// TestAddressesAreNotUsedAgain holds that what was lent by an instance that is gone stays
// unreadable, however many others come.
func TestAddressesAreNotUsedAgain(t *testing.T) {
	t.Setenv("KUBEWASM_DEBUG", "memory")
	cfg := config("spins")
	cfg.Reset, cfg.Limits.Instances = host.ResetNever, 1
	p := load(t, cfg)
	var lent [][]byte
	for range 50 {
		inst, b := lend(t, p)
		if _, err := inst.Call(t.Context(), abi.Filter, 0, 9, 0); err == nil {
			t.Fatal("no trap")
		}
		inst.Release()
		lent = append(lent, b)
		inst, _ = lend(t, p)
		for i, b := range lent {
			if readable(b) {
				t.Fatalf("memory %d of %d can be read", i, len(lent))
			}
		}
		inst.Release()
	}
}

// TestResetFindsHiddenMemory holds that what an instance does between two calls goes on
// in debug mode: the guest counts on, or from the start.
func TestResetFindsHiddenMemory(t *testing.T) {
	t.Setenv("KUBEWASM_DEBUG", "memory")
	eachMemory(t, func(t *testing.T, plain bool) {
		cfg := config("spins")
		cfg.Limits.Instances = 1
		p := loadWith(t, cfg, plain)
		for _, want := range []uint64{0x10001, 0x20002, 0x30003} {
			if got, err := callFilter(t, p); err != nil || got != want {
				t.Errorf("the guest counts %#x, error %v, want %#x", got, err, want)
			}
		}
		inst := acquire(t, p)
		if _, err := inst.Call(t.Context(), abi.Filter, 0, 8, 0); err == nil {
			t.Fatal("no trap")
		}
		inst.Release()
		if got, err := callFilter(t, p); err != nil || got != 0x10001 {
			t.Errorf("the guest counts %#x, error %v, want it to begin anew", got, err)
		}
	})
}

func TestReleaseTwiceIsFoundOut(t *testing.T) {
	t.Setenv("KUBEWASM_DEBUG", "memory")
	inst := acquire(t, load(t, config("noop")))
	inst.Release()
	defer func() {
		if r, ok := recover().(string); !ok || !strings.Contains(r, "hidden already") {
			t.Errorf("panic is %v", r)
		}
	}()
	inst.Release()
}

func TestDebugModes(t *testing.T) {
	for mode, want := range map[string]string{
		"": "", "memory": "",
		"memroy": `read KUBEWASM_DEBUG: mode is "memroy", want memory or process`,
	} {
		t.Setenv("KUBEWASM_DEBUG", mode)
		rt, err := host.NewRuntime(host.RuntimeConfig{})
		if got := errorText(err); got != want {
			t.Errorf("%q: error is %q, want %q", mode, got, want)
		}
		if err == nil {
			if err := rt.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestDebuggingIsOff holds that without the variable the memory of an idle instance stays
// as it is: no system call hides it.
func TestDebuggingIsOff(t *testing.T) {
	t.Setenv("KUBEWASM_DEBUG", "")
	eachMemory(t, func(t *testing.T, plain bool) {
		p := loadWith(t, config("spins"), plain)
		inst, lent := lend(t, p)
		before := bytes.Clone(lent)
		inst.Release()
		if !readable(lent) || !bytes.Equal(lent, before) {
			t.Errorf("memory is %v after the release, %v before", lent, before)
		}
	})
}

// TestWhatAGuestSaysOutlivesItsCall holds that reasons, logs and the output of a guest that
// trapped are the host's own.
func TestWhatAGuestSaysOutlivesItsCall(t *testing.T) {
	log := guarded.NewLog()
	cfg := config("good")
	cfg.Logger = slog.New(log)
	p := load(t, cfg)
	inst := acquire(t, p)
	if _, err := inst.Call(t.Context(), abi.Filter, 0, 0, 1); err != nil {
		t.Fatal(err)
	}
	reason := inst.Reason()
	inst.Release()
	if reason != "node is odd" {
		t.Errorf("reason is %q", reason)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, got, _ := strings.Cut(log.String(), "\n"); got != "level=WARN msg=filtering plugin=good function=filter\n" {
		t.Errorf("the log after the line of the load is %s", got)
	}

	p = load(t, config("traps"))
	inst = acquire(t, p)
	_, err := inst.Call(t.Context(), abi.Filter, 0, 1, 0)
	inst.Release()
	var trap *host.TrapError
	if !errors.As(err, &trap) || trap.Output != "panic: about to fail\ngoroutine 1\n" || !strings.Contains(trap.Stack, "fail") {
		t.Errorf("error is %#v", err)
	}
}
