package host_test

import (
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/loading"
)

// account is an account that allows calls while it has no error.
type account struct {
	mu      sync.Mutex
	err     error
	charged int64
}

func (a *account) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

func (a *account) set(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = err
}

func (a *account) Charge(fuel int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.charged += fuel
}

// take returns the fuel since the last take.
func (a *account) take() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	fuel := a.charged
	a.charged = 0
	return fuel
}

// accounts is an observer with an account for each plugin.
type accounts struct {
	host.Observer
	*account
	asked []string
}

func (a *accounts) AccountOf(plugin string) loading.Account {
	a.asked = append(a.asked, plugin)
	return a.account
}

// TestAccountsPayForCalls holds that an account pays for each call, with the fuel that it used.
func TestAccountsPayForCalls(t *testing.T) {
	of := &accounts{Observer: new(recorder), account: new(account)}
	cfg := config("spins")
	cfg.Limits.Fuel, cfg.Limits.Instances = 10_000_000, 1
	cfg.Observer = host.Observers(new(recorder), of)
	p := load(t, cfg)
	if len(of.asked) != 1 || of.asked[0] != "spins" {
		t.Errorf("the account was asked for %q", of.asked)
	}
	inst := acquire(t, p)
	of.take()
	for _, tt := range []struct {
		name        string
		how, rounds uint64
		least, most int64
	}{
		{"a short call", 6, 1, 1, 1000},
		{"a longer one", 6, 1_000_000, 1_000_000, 9_000_000},
		{"one that is stopped", 1, 0, 10_000_000, 12_000_000},
	} {
		_, err := inst.Call(t.Context(), abi.Filter, 0, tt.how, tt.rounds)
		if got := of.take(); got < tt.least || got > tt.most || got != inst.FuelUsed() {
			t.Errorf("%s: the account paid %d, and the call used %d, want %d to %d; error %v", tt.name, got, inst.FuelUsed(), tt.least, tt.most, err)
		}
	}
	inst.Release()
}

// TestEmptyAccountsRefuseCallers holds that a caller gets no instance while the account is empty, also one
// that began to wait before, and that this is no failure of the plugin.
func TestEmptyAccountsRefuseCallers(t *testing.T) {
	empty := new(account)
	cfg := config("noop")
	cfg.Limits.Instances = 1
	cfg.CircuitBreaker = host.CircuitBreaker{After: 1, Backoff: time.Hour}
	p, err := cfg.load(loading.With(t.Context(), loading.Settings{Account: empty}), newRuntime(t))
	if err != nil {
		t.Fatal(err)
	}
	inst := acquire(t, p)
	waiter := make(chan error)
	go func() {
		inst, err := p.Acquire(t.Context())
		if err == nil {
			inst.Release()
		}
		waiter <- err
	}()
	for p.Stats().Waiting == 0 {
		runtime.Gosched()
	}
	empty.set(loading.ErrQuota)
	if _, err := p.Acquire(t.Context()); !errors.Is(err, loading.ErrQuota) {
		t.Errorf("a new caller: error %v", err)
	}
	inst.Release()
	if err := <-waiter; !errors.Is(err, loading.ErrQuota) {
		t.Errorf("a caller that waited: error %v", err)
	}
	empty.set(nil)
	inst = acquire(t, p)
	if _, err := inst.Call(t.Context(), abi.Filter, 0, 0, 0); err != nil {
		t.Error(err)
	}
	inst.Release()
}
