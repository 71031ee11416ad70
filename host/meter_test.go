package host_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
)

// spins calls testdata/spins.wat.
func spins(t testing.TB, p *host.Plugin, ctx context.Context, how, n uint64) (result uint64, used int64, err error) {
	t.Helper()
	inst := acquire(t, p)
	defer inst.Release()
	result, err = inst.Call(ctx, abi.Filter, 0, how, n)
	return result, inst.FuelUsed(), err
}

func TestStopsWhatDoesNotEnd(t *testing.T) {
	ways := map[string]uint64{"loop": 1, "recursion": 2, "loop of host calls": 4, "loop that fills memory": 5, "loop that grows memory": 7}
	cancelled := errors.New("the caller's own reason")
	for name, how := range ways {
		t.Run(name, func(t *testing.T) {
			for limit, test := range map[string]struct {
				limits  host.Limits
				context func() (context.Context, context.CancelFunc)
				want    error
			}{
				"fuel":    {limits: host.Limits{Fuel: 5_000_001, Timeout: time.Hour}, want: host.ErrFuel},
				"timeout": {limits: host.Limits{Timeout: 30 * time.Millisecond, Fuel: math.MaxInt64}, want: context.DeadlineExceeded},
				"deadline of the caller": {
					limits: host.Limits{Fuel: math.MaxInt64},
					context: func() (context.Context, context.CancelFunc) {
						return context.WithTimeout(t.Context(), 30*time.Millisecond)
					},
					want: context.DeadlineExceeded,
				},
				"cancellation by the caller": {
					limits: host.Limits{Fuel: math.MaxInt64},
					context: func() (context.Context, context.CancelFunc) {
						ctx, cancel := context.WithCancelCause(t.Context())
						time.AfterFunc(30*time.Millisecond, func() { cancel(cancelled) })
						return ctx, func() { cancel(nil) }
					},
					want: context.Canceled,
				},
			} {
				t.Run(limit, func(t *testing.T) {
					cfg := config("spins")
					cfg.Limits = test.limits
					cfg.Limits.Instances = 1
					p := load(t, cfg)
					if test.context == nil {
						test.context = func() (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) }
					}
					for attempt := 1; ; attempt++ {
						ctx, cancel := test.context()
						_, _, err := spins(t, p, ctx, how, 0)
						cancel()
						var trap *host.TrapError
						if errors.Is(err, test.want) && errors.As(err, &trap) {
							break
						}
						// On a busy machine the context may end before the call begins.
						if !errors.Is(err, test.want) || attempt == 10 {
							t.Fatalf("got %v, want a trap for %v", err, test.want)
						}
					}
					// And the next call is served.
					if _, _, err := spins(t, p, t.Context(), 0, 0); err != nil {
						t.Errorf("the next call: %v", err)
					}
				})
			}
		})
	}
}

// TestFuelIsExact holds that a call costs the same each time, more rounds cost
// so much more, and the last unit of a budget counts.
func TestFuelIsExact(t *testing.T) {
	for name, test := range map[string]struct {
		how  uint64
		most uint64 // Several slices of fuel.
	}{"rounds of a loop": {6, 3_000_000}, "host calls": {10, 50_000}} {
		t.Run(name, func(t *testing.T) {
			p := load(t, config("spins"))
			cost := func(rounds uint64) int64 {
				_, used, err := spins(t, p, t.Context(), test.how, rounds)
				if err != nil {
					t.Fatal(err)
				}
				return used
			}
			base, more := cost(1), cost(2)
			perRound := more - base
			if perRound <= 0 {
				t.Fatalf("a round costs %d", perRound)
			}
			for _, rounds := range []uint64{1, 2, 39, 1000, test.most / 8, test.most} {
				want := base + int64(rounds-1)*perRound
				for range 2 {
					if got := cost(rounds); got != want {
						t.Errorf("%d rounds cost %d, want %d", rounds, got, want)
					}
				}
				for short := range int64(2) {
					cfg := config("spins")
					cfg.Limits.Fuel = want - short
					_, _, err := spins(t, load(t, cfg), t.Context(), test.how, rounds)
					if errors.Is(err, host.ErrFuel) != (short == 1) {
						t.Errorf("%d rounds with %d less than they cost: %v", rounds, short, err)
					}
				}
			}
		})
	}
}

// TestReset holds that a guest that trapped begins anew, with memory, globals
// and tables as they were after its start.
func TestReset(t *testing.T) {
	for name, how := range map[string]uint64{"trap": 9, "trap after growth": 8, "stack overflow": 3} {
		t.Run(name, func(t *testing.T) {
			cfg := config("spins")
			cfg.Limits.Instances = 1
			p := load(t, cfg)
			for range 3 {
				for i := range uint64(2) {
					if got, _, err := spins(t, p, t.Context(), 0, 0); err != nil || got != (i+1)<<16|(i+1) {
						t.Fatalf("call %d: the guest counts %#x, error %v", i, got, err)
					}
				}
				if _, _, err := spins(t, p, t.Context(), how, math.MaxInt32); err == nil {
					t.Fatal("no trap")
				}
			}
		})
	}
	t.Run("changed table", func(t *testing.T) {
		cfg := config("tables")
		cfg.Limits.Instances = 1
		p := load(t, cfg)
		for range 2 {
			if got, _, err := spins(t, p, t.Context(), 0, 0); err != nil || got != 0 {
				t.Errorf("got %d, error %v", got, err)
			}
			if _, _, err := spins(t, p, t.Context(), 1, 0); err == nil {
				t.Fatal("no trap")
			}
		}
	})
}

// TestLoopDoesNotStopOthers holds that the process goes on while a guest loops:
// Go's garbage collector, which stops the world, waits for running guests.
func TestLoopDoesNotStopOthers(t *testing.T) {
	cfg := config("spins")
	cfg.Limits = host.Limits{Fuel: math.MaxInt64, Timeout: time.Minute}
	p := load(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	called := make(chan error)
	go func() {
		_, _, err := spins(t, p, ctx, 1, 0)
		called <- err
	}()
	// Each of these needs every processor to leave the guest.
	for range 50 {
		runtime.GC()
	}
	cancel()
	if err := <-called; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
