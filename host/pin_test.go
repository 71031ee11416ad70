package host_test

import (
	"errors"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
)

// callPinned calls filter on some instance of the version that pin holds.
func callPinned(t *testing.T, pin *host.Pin) (uint64, error) {
	t.Helper()
	inst, err := pin.Acquire(t.Context())
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
	for deadline := time.Now().Add(10 * time.Second); p.Stats().Retired != 0; {
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
