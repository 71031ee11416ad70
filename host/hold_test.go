package host_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
)

// hold returns a hold of a plugin's current version.
func hold(t *testing.T, p *host.Plugin) *host.Hold {
	t.Helper()
	pin := p.Pin()
	t.Cleanup(pin.Release)
	h, err := pin.Hold()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func acquireHeld(t *testing.T, h *host.Hold) *host.Instance {
	t.Helper()
	inst, err := h.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return inst
}

func wantStats(t *testing.T, p *host.Plugin, instances, idle, held int) {
	t.Helper()
	if s := p.Stats(); s.Instances != instances || s.Idle != idle || s.Held != held {
		t.Errorf("there are %d instances, %d idle and %d held, want %d, %d and %d", s.Instances, s.Idle, s.Held, instances, idle, held)
	}
}

// TestHoldKeepsItsInstance holds that a hold has the same instance in each call, that it
// is beside those that Limits.Instances counts, and that it serves others in the end.
func TestHoldKeepsItsInstance(t *testing.T) {
	cfg := config("noop")
	cfg.Limits.Instances = 1
	p := load(t, cfg)
	h := hold(t, p)
	wantStats(t, p, 1, 1, 1)
	first := acquireHeld(t, h)
	wantStats(t, p, 0, 0, 1) // The one that there was.
	other := acquire(t, p)
	first.Release()
	if got := acquireHeld(t, h); got != first {
		t.Error("the second call got another instance")
	}
	first.Release()
	other.Release()
	wantStats(t, p, 1, 1, 1)
	h.Release()
	h.Release()
	wantStats(t, p, 1, 1, 0) // The pool has one already.
	if _, err := h.Acquire(t.Context()); !errors.Is(err, host.ErrClosed) {
		t.Errorf("a hold that has ended: got error %v, want ErrClosed", err)
	}
	again := hold(t, p)
	acquireHeld(t, again).Release()
	again.Release()
	wantStats(t, p, 1, 1, 0) // The pool had none.
}

// TestAnInstanceThatIsHeldIsNotWaitedFor holds that a caller who wants the instance that
// it had before gets another one when that is held.
func TestAnInstanceThatIsHeldIsNotWaitedFor(t *testing.T) {
	cfg := config("noop")
	cfg.Limits.Instances = 1
	p := load(t, cfg)
	before := acquire(t, p)
	before.Release()
	h := hold(t, p)
	held := acquireHeld(t, h)
	if held != before {
		t.Fatal("the hold has an instance of its own")
	}
	pin := p.Pin()
	defer pin.Release()
	again, err := pin.Acquire(t.Context(), before)
	if err != nil || again == before {
		t.Fatalf("got the instance that is held: %t, error %v", again == before, err)
	}
	again.Release()
	held.Release()
}

// TestHoldIsOfOneCallAtATime holds that callers wait for each other, and no longer than
// they like.
func TestHoldIsOfOneCallAtATime(t *testing.T) {
	p := load(t, config("noop"))
	h := hold(t, p)
	inst := acquireHeld(t, h)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.Acquire(ended); !errors.Is(err, host.ErrSaturated) || !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v", err)
	}
	var running atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			inst, err := h.Acquire(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			if running.Add(1) != 1 {
				t.Error("two calls have the instance")
			}
			running.Add(-1)
			inst.Release()
		})
	}
	inst.Release()
	wg.Wait()
	// A hold that ends while a call runs lets it end, and turns away who waits.
	inst = acquireHeld(t, h)
	wg.Go(func() {
		if _, err := h.Acquire(t.Context()); !errors.Is(err, host.ErrClosed) {
			t.Errorf("got error %v, want ErrClosed", err)
		}
	})
	h.Release()
	if _, err := inst.Call(t.Context(), abi.Filter, 0, 0, 0); err != nil {
		t.Error(err)
	}
	inst.Release()
	wg.Wait()
	wantStats(t, p, 1, 1, 0)
}

func TestHoldsAreLimited(t *testing.T) {
	cfg := config("noop")
	cfg.Limits.HeldInstances = 2
	p := load(t, cfg)
	pin := p.Pin()
	defer pin.Release()
	first := hold(t, p)
	hold(t, p)
	if _, err := pin.Hold(); !errors.Is(err, host.ErrSaturated) || !strings.Contains(err.Error(), "all 2 of limits.heldInstances are held") {
		t.Errorf("got error %v", err)
	}
	first.Release()
	hold(t, p)

	cfg.Limits.HeldInstances = -1
	if err := cfg.Validate(&cfg.Config); err == nil || !strings.Contains(err.Error(), "limits.heldInstances is -1") {
		t.Errorf("got error %v", err)
	}
}

// TestHeldInstanceThatTraps holds that the next call of a hold finds a guest that has
// begun anew, or another instance where none can.
func TestHeldInstanceThatTraps(t *testing.T) {
	for name, reset := range map[string]host.ResetPolicy{"reset": host.ResetOnError, "replaced": host.ResetNever} {
		t.Run(name, func(t *testing.T) {
			cfg := config("traps")
			cfg.Reset = reset
			cfg.NewState = func() any { return new(int) }
			p := load(t, cfg)
			h := hold(t, p)
			inst := acquireHeld(t, h)
			state := inst.State()
			if _, err := inst.Call(t.Context(), abi.Filter, 0, 1, 0); err == nil {
				t.Error("the guest does not trap")
			}
			inst.Release()
			next := acquireHeld(t, h)
			if same := next == inst; same != (reset == host.ResetOnError) {
				t.Errorf("the same instance: %v", same)
			}
			if next.State() == state {
				t.Error("the state is that of memory that is gone")
			}
			next.Release()
			h.Release()
			if s := p.Stats(); s.Held != 0 || s.Idle != s.Instances {
				t.Errorf("instances leaked: %+v", s)
			}
		})
	}
}

// TestHoldsEndWithTheirVersion holds that neither a swap nor Close waits for holds that
// have no call.
func TestHoldsEndWithTheirVersion(t *testing.T) {
	p := load(t, config("spins"))
	pin := p.Pin()
	old, err := pin.Hold()
	if err != nil {
		t.Fatal(err)
	}
	acquireHeld(t, old).Release()
	if err := p.Swap(t.Context(), testdata("noop"), ""); err != nil {
		t.Fatal(err)
	}
	acquireHeld(t, old).Release() // The pin keeps the version.
	current := hold(t, p)
	pin.Release()
	if _, err := old.Acquire(t.Context()); !errors.Is(err, host.ErrClosed) {
		t.Errorf("after the last pin: got error %v, want ErrClosed", err)
	}
	inst := acquireHeld(t, current)
	done := make(chan error)
	go func() { done <- p.Close(context.WithoutCancel(t.Context())) }()
	inst.Release()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := current.Acquire(t.Context()); !errors.Is(err, host.ErrClosed) {
		t.Errorf("after Close: got error %v, want ErrClosed", err)
	}
	late := p.Pin()
	if _, err := late.Hold(); !errors.Is(err, host.ErrClosed) {
		t.Errorf("a hold after Close: got error %v, want ErrClosed", err)
	}
}

// TestHammerHolds has holds come, run, trap and go beside other calls, and the plugin
// close in the middle.
func TestHammerHolds(t *testing.T) {
	cfg := config("traps")
	cfg.Logger = nil
	cfg.Limits.Instances, cfg.Limits.HeldInstances = 2, 6
	p := load(t, cfg)
	var wg sync.WaitGroup
	for n := range 8 {
		r := rand.New(rand.NewPCG(uint64(n), 8))
		wg.Go(func() {
			for range 100 {
				pin := p.Pin()
				h, err := pin.Hold()
				if err != nil {
					pin.Release()
					continue
				}
				var calls sync.WaitGroup
				for range r.IntN(4) {
					how := uint64(r.IntN(2)) // 1 traps.
					calls.Go(func() {
						inst, err := h.Acquire(context.Background())
						if err != nil {
							return
						}
						_, _ = inst.Call(context.Background(), abi.Filter, 0, how, 0)
						inst.Release()
					})
				}
				if r.IntN(2) == 0 {
					calls.Wait()
				}
				h.Release()
				calls.Wait()
				pin.Release()
				if inst, err := p.Acquire(context.Background()); err == nil {
					inst.Release()
				}
			}
		})
	}
	wg.Go(func() {
		if err := p.Swap(context.Background(), testdata("traps"), ""); err != nil && !errors.Is(err, host.ErrClosed) {
			t.Error(err)
		}
	})
	wg.Wait()
	if s := p.Stats(); s.Held != 0 || s.Idle != s.Instances || s.Waiting != 0 {
		t.Errorf("instances leaked: %+v", s)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
