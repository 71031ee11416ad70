package host_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
)

// callFilter calls filter on some instance of p.
func callFilter(t testing.TB, p *host.Plugin, args ...uint64) (uint64, error) {
	t.Helper()
	inst, err := p.Acquire(t.Context())
	if err != nil {
		return 0, err
	}
	defer inst.Release()
	return inst.Call(t.Context(), abi.Filter, append(args, 0, 0, 0)[:3]...)
}

func TestSwap(t *testing.T) {
	p := load(t, config("noop"))
	before := p.Digest()
	if got, err := callFilter(t, p); err != nil || got != 0 {
		t.Fatalf("got %d, error %v", got, err)
	}
	if err := p.Swap(t.Context(), testdata("spins"), ""); err != nil {
		t.Fatal(err)
	}
	// The new version counts its calls.
	if got, err := callFilter(t, p); err != nil || got != 0x10001 {
		t.Fatalf("got %#x, error %v", got, err)
	}
	if p.Digest() == before {
		t.Error("the digest is that of the old version")
	}
	// The same module again changes nothing: the count goes on.
	if err := p.Swap(t.Context(), testdata("spins"), p.Digest()); err != nil {
		t.Fatal(err)
	}
	if got, err := callFilter(t, p); err != nil || got != 0x20002 {
		t.Fatalf("got %#x, error %v", got, err)
	}
}

func TestSwapThatFailsLeavesTheOldVersion(t *testing.T) {
	probed := errors.New("the probe does not like it")
	tests := map[string]struct {
		source host.Source
		sha256 string
		probe  error
		want   string
	}{
		"missing file":     {source: host.File("absent"), want: "no such file"},
		"wrong digest":     {source: testdata("noop"), sha256: strings.Repeat("0", 64), want: "sha256 of the module is "},
		"no guest":         {source: testdata("nomarker"), want: `export "kubewasm_abi_v1" is missing`},
		"no module":        {source: host.Bytes([]byte("junk")), want: "decode wasm"},
		"never starts":     {source: testdata("initloops"), want: "out of fuel"},
		"other functions":  {source: testdata("good"), want: "the new version implements filter, configure, but the running version filter"},
		"refused by probe": {source: testdata("noop"), probe: probed, want: probed.Error()},
		"too much memory":  {source: testdata("bigmemory"), want: "16384"},
		"start that traps": {source: testdata("startsection"), want: "unreachable"},
		"reserved names":   {source: testdata("reserved"), want: "reserved"},
		"import not there": {source: testdata("badimports"), want: "import env.system is not provided"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var probe error
			cfg := config("spins")
			cfg.Limits.Fuel = 10_000_000
			cfg.Limits.Timeout = time.Minute // An interpreter on a busy machine takes seconds.
			cfg.Probe = func(ctx context.Context, inst *host.Instance) error {
				if _, err := inst.Call(ctx, abi.Filter, 0, 0, 0); err != nil {
					return err
				}
				return probe
			}
			p := load(t, cfg)
			if got, err := callFilter(t, p); err != nil || got != 0x10001 {
				t.Fatalf("the call of the probe is seen: got %#x, error %v", got, err)
			}
			probe = test.probe
			err := p.Swap(t.Context(), test.source, test.sha256)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want %s", err, test.want)
			}
			if got, err := callFilter(t, p); err != nil || got != 0x20002 {
				t.Errorf("the old version: got %#x, error %v", got, err)
			}
		})
	}
}

// TestSwapDuringACall holds that a call ends on the version that it began on,
// and that calls which begin meanwhile are served by the new one.
func TestSwapDuringACall(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	cfg := config("waits")
	cfg.Limits.Instances = 1
	cfg.Imports = []host.Import{{
		Module: "test", Name: "wait", Results: []abi.ValueType{abi.I32},
		Func: func(_ *host.Instance, stack []uint64) {
			close(entered)
			<-leave
			stack[0] = 7
		},
	}}
	p := load(t, cfg)
	old, waiter := make(chan uint64), make(chan uint64)
	go func() {
		got, err := callFilter(t, p)
		if err != nil {
			t.Error(err)
		}
		old <- got
	}()
	<-entered
	go func() { // It may wait for the only instance, or come after the swap.
		got, err := callFilter(t, p)
		if err != nil {
			t.Error(err)
		}
		waiter <- got
	}()
	if err := p.Swap(t.Context(), testdata("spins"), ""); err != nil {
		t.Fatal(err)
	}
	if got := <-waiter; got != 0x10001 {
		t.Errorf("the call that waited got %#x, want the new version", got)
	}
	close(leave)
	if got := <-old; got != 7 {
		t.Errorf("the call that ran got %#x, want the old version", got)
	}
}

func TestSwapAfterClose(t *testing.T) {
	p := load(t, config("noop"))
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Swap(t.Context(), testdata("spins"), ""); !errors.Is(err, host.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

// TestSwapHammer swaps while calls, traps and timeouts go on; no call may see a
// version that is gone. Run it with -race.
// held is a source that answers when its channel is closed, whatever its context says.
type held chan struct{}

func (h held) Fetch(context.Context) ([]byte, error) { <-h; return nil, errors.New("it was held") }
func (h held) String() string                        { return "held" }

// TestASwapHoldsNobodyUp holds that Close and another Swap wait for one that is under way as long as
// their contexts say.
func TestASwapHoldsNobodyUp(t *testing.T) {
	p := load(t, config("good"))
	source, swapped := make(held), make(chan error)
	go func() { swapped <- p.Swap(context.Background(), source, "") }()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for {
		err := p.Swap(ended, testdata("good"), "")
		if errors.Is(err, context.Canceled) && strings.Contains(err.Error(), "wait for another swap") {
			break // The first one has its turn.
		}
		time.Sleep(time.Millisecond)
	}
	if err := p.Close(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Close returned %v", err)
	}
	close(source)
	if err := <-swapped; err == nil || !strings.Contains(err.Error(), "it was held") {
		t.Errorf("the swap returned %v", err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestSwapHammer(t *testing.T) {
	cfg := config("spins")
	cfg.Limits = host.Limits{Instances: 2, Fuel: 100_000}
	p := load(t, cfg)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				how := uint64(0)
				if (g+i)%50 == 0 {
					how = uint64(1 + i%9)
				}
				_, err := callFilter(t, p, 0, how)
				var trap *host.TrapError
				if err != nil && !errors.As(err, &trap) {
					t.Error(err)
				}
			}
		})
	}
	for i := range 100 {
		if err := p.Swap(t.Context(), testdata([]string{"noop", "spins"}[i%2]), ""); err != nil {
			t.Error(err)
		}
	}
	close(done)
	wg.Wait()
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestResetPerCall(t *testing.T) {
	cfg := config("spins")
	cfg.Reset = host.ResetPerCall
	p := load(t, cfg)
	for range 3 {
		if got, err := callFilter(t, p); err != nil || got != 0x10001 {
			t.Errorf("the guest counts %#x, error %v", got, err)
		}
	}
}

func TestResetNever(t *testing.T) {
	cfg := config("spins")
	cfg.Reset = host.ResetNever
	cfg.Limits.Instances = 1
	p := load(t, cfg)
	for _, want := range []uint64{0x10001, 0x20002} {
		if got, err := callFilter(t, p); err != nil || got != want {
			t.Errorf("the guest counts %#x, want %#x, error %v", got, want, err)
		}
	}
	if _, err := callFilter(t, p, 0, 9); err == nil {
		t.Error("no trap")
	}
	if got, err := callFilter(t, p); err != nil || got != 0x10001 {
		t.Errorf("after a trap the guest counts %#x, error %v", got, err)
	}
}

func TestDisable(t *testing.T) {
	cfg := config("spins")
	cfg.CircuitBreaker = host.CircuitBreaker{After: 3, Backoff: time.Hour}
	p := load(t, cfg)
	for i := range 3 {
		if _, err := callFilter(t, p, 0, 9); !errors.As(err, new(*host.TrapError)) {
			t.Fatalf("call %d: got %v", i, err)
		}
	}
	_, err := callFilter(t, p)
	if !errors.Is(err, host.ErrDisabled) || !strings.Contains(err.Error(), "after 3 failures in a row") {
		t.Errorf("got %v", err)
	}
	// A new version brings it back.
	if err := p.Swap(t.Context(), testdata("noop"), ""); err != nil {
		t.Fatal(err)
	}
	if _, err := callFilter(t, p); err != nil {
		t.Error(err)
	}
}

// TestDisableByRatio holds that a plugin that fails now and then for ever is
// disabled if it does so more often than it may, and only then.
func TestDisableByRatio(t *testing.T) {
	for name, test := range map[string]struct {
		every    int // Which calls fail.
		disabled bool
	}{
		"every other call":  {2, true},
		"every fourth call": {4, true},
		"every tenth call":  {10, false},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config("spins")
			cfg.CircuitBreaker = host.CircuitBreaker{After: 3, Ratio: 0.1, Backoff: time.Hour}
			p := load(t, cfg)
			var err error
			for i := 0; i < 200 && !errors.Is(err, host.ErrDisabled); i++ {
				how := uint64(0)
				if i%test.every == 0 {
					how = 9
				}
				_, err = callFilter(t, p, 0, how)
			}
			if errors.Is(err, host.ErrDisabled) != test.disabled {
				t.Errorf("disabled is %v, want %v", !test.disabled, test.disabled)
			}
			if test.disabled && !strings.Contains(err.Error(), "after 3 failures, more than 10 % of its calls") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestDisabledPluginComesBack(t *testing.T) {
	cfg := config("spins")
	cfg.CircuitBreaker = host.CircuitBreaker{After: 2, Backoff: time.Nanosecond, MaxBackoff: time.Nanosecond}
	p := load(t, cfg)
	for i, how := range []uint64{9, 0, 9, 9, 9, 0, 9, 0} {
		// The time is up at once, so each call is let through; a success in
		// between begins the count anew.
		_, err := callFilter(t, p, 0, how)
		if (err != nil) != (how == 9) || errors.Is(err, host.ErrDisabled) {
			t.Errorf("call %d: got %v", i, err)
		}
	}
}
