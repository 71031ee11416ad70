package host_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
)

// callPinned calls filter on some instance of the version that pin holds.
func callPinned(t *testing.T, pin *host.Pin) (uint64, error) {
	t.Helper()
	inst, err := pin.Acquire(t.Context(), nil)
	if err != nil {
		return 0, err
	}
	defer inst.Release()
	return inst.Call(t.Context(), abi.Filter, 0, 0, 0)
}

// TestPin holds that a version that was replaced serves those who hold it, until
// the last of them lets go.
func TestPin(t *testing.T) {
	p := load(t, config("spins"))
	first, second := p.Pin(), p.Pin()
	if !first.Current() {
		t.Error("the pin of the running version is not current")
	}
	if err := p.Swap(t.Context(), testdata("noop"), ""); err != nil {
		t.Fatal(err)
	}
	if first.Current() {
		t.Error("the pin of a version that was replaced is current")
	}
	for i, pin := range []*host.Pin{first, second} {
		// The old version counts its calls.
		if got, err := callPinned(t, pin); err != nil || got == 0 {
			t.Errorf("pin %d: got %#x, error %v, want the old version", i, got, err)
		}
		if p.Stats().Retired != 1 {
			t.Errorf("%d versions are retired, want 1", p.Stats().Retired)
		}
		pin.Release()
	}
	if got, err := callFilter(t, p); err != nil || got != 0 {
		t.Errorf("got %#x, error %v, want the new version", got, err)
	}
	for deadline := time.Now().Add(time.Minute); p.Stats().Retired != 0; {
		if time.Now().After(deadline) {
			t.Fatal("the old version is never freed")
		}
	}
}

// TestCloseEndsPins holds that closing a plugin waits for calls, not for pins.
func TestCloseEndsPins(t *testing.T) {
	p := load(t, config("spins"))
	old := p.Pin()
	if err := p.Swap(t.Context(), testdata("noop"), ""); err != nil {
		t.Fatal(err)
	}
	current := p.Pin()
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, pin := range map[string]*host.Pin{"old": old, "current": current} {
		if _, err := callPinned(t, pin); !errors.Is(err, host.ErrClosed) {
			t.Errorf("%s: got error %v, want ErrClosed", name, err)
		}
		pin.Release()
	}
}

// TestACallerGetsItsInstanceAgain holds that a caller gets the instance that it had before, waits for it while
// others have it, and takes any if it is gone.
func TestACallerGetsItsInstanceAgain(t *testing.T) {
	p := load(t, config("noop"))
	pin := p.Pin()
	defer pin.Release()
	a, b := acquire(t, p), acquire(t, p)
	a.Release()
	b.Release()
	again := func(inst *host.Instance) *host.Instance {
		t.Helper()
		got, err := pin.Acquire(t.Context(), inst)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for _, inst := range []*host.Instance{a, b, a} {
		got := again(inst)
		if got.Release(); got != inst {
			t.Error("the caller got another instance")
		}
	}

	a = again(a)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := pin.Acquire(ctx, a); !errors.Is(err, host.ErrSaturated) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	served := make(chan *host.Instance)
	go func() {
		inst, _ := pin.Acquire(context.Background(), a)
		served <- inst
	}()
	for p.Stats().Waiting == 0 {
		runtime.Gosched()
	}
	a.Release() // The other instance has been idle all the time.
	if got := <-served; got != a {
		t.Error("the waiter got another instance")
	}

	if err := p.Swap(t.Context(), testdata("spins"), ""); err != nil {
		t.Fatal(err)
	}
	current := p.Pin()
	defer current.Release()
	got, err := current.Acquire(t.Context(), a)
	if err != nil || got == a {
		t.Errorf("a version lends the instance of another: error %v", err)
	}
	got.Release()

	go func() {
		_, err := pin.Acquire(context.Background(), a)
		if !errors.Is(err, host.ErrClosed) {
			t.Errorf("got %v, want ErrClosed", err)
		}
		served <- nil
	}()
	closed := make(chan error)
	go func() { closed <- p.Close(context.Background()) }()
	<-served
	a.Release()
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// TestAnInstanceThatIsGoneIsNotWaitedFor traps a guest while another caller waits for its
// instance, and afterwards.
func TestAnInstanceThatIsGoneIsNotWaitedFor(t *testing.T) {
	for name, test := range map[string]struct {
		reset host.ResetPolicy
		same  bool
	}{"reset": {host.ResetOnError, true}, "replaced": {host.ResetNever, false}} {
		t.Run(name, func(t *testing.T) {
			cfg := config("traps")
			cfg.Reset = test.reset
			p := load(t, cfg)
			pin := p.Pin()
			defer pin.Release()
			inst := acquire(t, p)
			if _, err := inst.Call(t.Context(), abi.Filter, 0, 1, 0); err == nil {
				t.Fatal("no trap")
			}
			served := make(chan *host.Instance)
			go func() {
				got, err := pin.Acquire(context.Background(), inst)
				if err != nil {
					t.Error(err)
				}
				served <- got
			}()
			for p.Stats().Waiting == 0 {
				runtime.Gosched()
			}
			inst.Release()
			got := <-served
			if got.Release(); (got == inst) != test.same {
				t.Errorf("the waiter got the same instance: %v, want %v", !test.same, test.same)
			}
			if got, err := pin.Acquire(t.Context(), inst); err != nil {
				t.Error(err)
			} else {
				got.Release()
			}
			if s := p.Stats(); s.Waiting != 0 || s.Idle != s.Instances {
				t.Errorf("got %+v", s)
			}
		})
	}
}

// TestAFreshInstanceKeepsItsVersion holds that an instance outside of the pool runs the module that
// it is of, also after a swap, and that nothing of it is freed before it is discarded.
func TestAFreshInstanceKeepsItsVersion(t *testing.T) {
	p := load(t, config("spins"))
	inst, err := p.Fresh(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Swap(t.Context(), testdata("noop"), ""); err != nil {
		t.Fatal(err)
	}
	runtime.GC() // The engine frees machine code in finalizers.
	for range 2 {
		// The old version counts its calls.
		if got, err := inst.Call(t.Context(), abi.Filter, 0, 0, 0); err != nil || got == 0 {
			t.Errorf("got %#x, error %v, want the old version", got, err)
		}
		if !inst.Rewind() {
			t.Error("the instance cannot begin anew")
		}
	}
	if got := p.Stats().Retired; got != 1 {
		t.Errorf("%d versions are retired, want the one of the instance", got)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Close(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("close returned %v before the instance was discarded", err)
	}
	inst.Discard()
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := p.Fresh(t.Context()); !errors.Is(err, host.ErrClosed) {
		t.Errorf("an instance of a closed plugin: error %v, want ErrClosed", err)
	}
}

// TestHammerFreshInstances makes, rewinds and discards instances while versions come and go.
func TestHammerFreshInstances(t *testing.T) {
	p := load(t, config("spins"))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				inst, err := p.Fresh(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				for range 3 {
					if _, err := inst.Call(t.Context(), abi.Filter, 0, 0, 0); err != nil {
						t.Error(err)
					}
					inst.Rewind()
				}
				inst.Discard()
			}
		})
	}
	for i := range 20 {
		if err := p.Swap(t.Context(), testdata([]string{"noop", "spins"}[i%2]), ""); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
