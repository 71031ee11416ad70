package plugin

import (
	"testing"

	"github.com/kubewasm/kubewasm/abi"
)

func TestRegister(t *testing.T) {
	Register(&struct{}{}, abi.MaskOf(abi.Filter))
	Register(&struct{}{}, abi.MaskOf(abi.Validate))
	if want := abi.MaskOf(abi.Filter, abi.Validate, abi.Configure); mask != want {
		t.Errorf("the guest implements %s, want %s", mask, want)
	}
	defer func() {
		if got := recover(); got != "kubewasm: two plugins implement filter" {
			t.Errorf("panic %v", got)
		}
	}()
	Register(&struct{}{}, abi.MaskOf(abi.Filter, abi.Score))
}

type configured struct{}

func (configured) Configure(zone string) error { return nil }

// TestRegisterChecksConfigure holds that a Configure that would never be called fails the
// plugin's own tests.
func TestRegisterChecksConfigure(t *testing.T) {
	defer func() {
		if got, want := recover(), "kubewasm: method Configure of plugin.configured is a func(string) error, want a func() error"; got != want {
			t.Errorf("panic %v, want %s", got, want)
		}
	}()
	Register(configured{}, abi.MaskOf(abi.Score))
}

// TestConfigureWithoutConfiguration holds that a plugin need not have any.
func TestConfigureWithoutConfiguration(t *testing.T) {
	if code := configure(); code != abi.Success {
		t.Errorf("got %s", code)
	}
}
