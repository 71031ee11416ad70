package host_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
)

func TestAcquireIsLastInFirstOut(t *testing.T) {
	p := load(t, config("noop"))
	a, b := acquire(t, p), acquire(t, p)
	a.Release()
	b.Release()
	if got := acquire(t, p); got != b {
		t.Error("the instance that came back last is not the first to go")
	} else {
		got.Release()
	}
}

func TestAcquireWaits(t *testing.T) {
	p := load(t, config("noop"))
	a, b := acquire(t, p), acquire(t, p)
	defer b.Release()

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := p.Acquire(ctx)
	if !errors.Is(err, host.ErrSaturated) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}

	served := make(chan *host.Instance)
	go func() {
		inst, err := p.Acquire(t.Context())
		if err != nil {
			t.Error(err)
		}
		served <- inst
	}()
	a.Release()
	if inst := <-served; inst != a {
		t.Error("the waiter got another instance than the one that came back")
	} else {
		inst.Release()
	}
}

// TestEveryWaiterIsServed holds that no instance is put back unseen by those who
// wait, which would be for ever.
func TestEveryWaiterIsServed(t *testing.T) {
	p := load(t, config("noop"))
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for range 5000 {
				inst, err := p.Acquire(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := inst.Call(t.Context(), abi.Filter, 0, 0, 0); err != nil {
					t.Error(err)
				}
				inst.Release()
			}
		})
	}
	wg.Wait()
	if s := p.Stats(); s.Waiting != 0 || s.Idle != s.Instances || s.Instances > s.Limit {
		t.Errorf("got %+v", s)
	}
}

// TestTrapServesAWaiter holds that a caller that waits is served after a trap, whether
// the instance is reset or discarded.
func TestTrapServesAWaiter(t *testing.T) {
	for name, how := range map[string]uint64{"reset": 9, "discarded since it grew": 8} {
		t.Run(name, func(t *testing.T) { trapServesAWaiter(t, how) })
	}
}

func trapServesAWaiter(t *testing.T, how uint64) {
	cfg := config("spins")
	cfg.Limits.Instances = 1
	p := load(t, cfg)
	inst := acquire(t, p)
	if _, err := inst.Call(t.Context(), abi.Filter, 0, how, 0); err == nil {
		t.Fatal("no trap")
	}
	served := make(chan *host.Instance)
	go func() {
		inst, err := p.Acquire(t.Context())
		if err != nil {
			t.Error(err)
		}
		served <- inst
	}()
	inst.Release()
	next := <-served
	defer next.Release()
	if _, err := next.Call(t.Context(), abi.Filter, 0, 0, 0); err != nil {
		t.Error(err)
	}
}

func TestCallWithAnEndedContext(t *testing.T) {
	inst := acquire(t, load(t, config("noop")))
	defer inst.Release()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := inst.Call(ctx, abi.Filter); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	// It did not run, so nothing is wrong with it.
	if _, err := inst.Call(t.Context(), abi.Filter, 0, 0, 0); err != nil {
		t.Error(err)
	}
}

func TestCloseWaitsForCalls(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	cfg := config("waits")
	cfg.Imports = []host.Import{{
		Module: "test", Name: "wait", Results: []abi.ValueType{abi.I32},
		Func: func(_ *host.Instance, stack []uint64) {
			close(entered)
			<-leave
			stack[0] = 0
		},
	}}
	p := load(t, cfg)
	called := make(chan error)
	go func() {
		inst, err := p.Acquire(t.Context())
		if err != nil {
			called <- err
			return
		}
		_, err = inst.Call(t.Context(), abi.Filter, 0, 0, 0)
		inst.Release()
		called <- err
	}()
	<-entered

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("close during a call: got %v", err)
	}
	if _, err := p.Acquire(t.Context()); !errors.Is(err, host.ErrClosed) {
		t.Errorf("acquire after close: got %v", err)
	}
	close(leave)
	if err := <-called; err != nil {
		t.Errorf("the call that ran: %v", err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Errorf("close after the call: %v", err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Errorf("close twice: %v", err)
	}
}

func TestCloseTurnsWaitersAway(t *testing.T) {
	p := load(t, config("noop"))
	a, b := acquire(t, p), acquire(t, p)
	turned := make(chan error)
	go func() {
		_, err := p.Acquire(t.Context())
		turned <- err
	}()
	closed := make(chan error)
	go func() { closed <- p.Close(t.Context()) }()
	if err := <-turned; !errors.Is(err, host.ErrClosed) {
		t.Errorf("got %v", err)
	}
	a.Release()
	b.Release()
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

func TestRuntimeCloseClosesPlugins(t *testing.T) {
	rt := newRuntime(t)
	p, err := config("noop").load(t.Context(), rt)
	if err != nil {
		t.Fatal(err)
	}
	if err := rt.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Acquire(t.Context()); !errors.Is(err, host.ErrClosed) {
		t.Errorf("got %v", err)
	}
	if _, err := config("noop").load(t.Context(), rt); err == nil {
		t.Error("a closed runtime loads")
	}
}

// TestHammer calls, traps, gives up waiting and closes from many goroutines at
// once; run it with -race.
func TestHammer(t *testing.T) {
	cfg := config("traps")
	cfg.Limits.Instances = 3
	p := load(t, cfg)
	pin := p.Pin()
	defer pin.Release()
	var calls, traps, gaveUp atomic.Int64
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(n), 7))
			var last *host.Instance
			for range 300 {
				ctx, cancel := context.WithCancel(t.Context())
				if r.IntN(4) == 0 {
					cancel()
				}
				inst, err := last, error(nil)
				if last != nil && n%2 == 0 {
					inst, err = pin.Acquire(ctx, last)
				} else {
					inst, err = p.Acquire(ctx)
				}
				if last = inst; err != nil {
					if !errors.Is(err, host.ErrSaturated) {
						t.Error(err)
					}
					gaveUp.Add(1)
					cancel()
					continue
				}
				var how uint64
				if r.IntN(10) == 0 {
					how = 1
				}
				_, err = inst.Call(t.Context(), abi.Filter, 0, how, 0)
				if (err != nil) != (how == 1) {
					t.Errorf("how %d: got %v", how, err)
				}
				if err != nil {
					traps.Add(1)
				} else {
					calls.Add(1)
				}
				inst.Release()
				cancel()
			}
		})
	}
	wg.Wait()
	t.Logf("%d calls, %d traps, %d gave up waiting", calls.Load(), traps.Load(), gaveUp.Load())
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
