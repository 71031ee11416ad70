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

// TestConfigureWithoutConfiguration holds that a plugin need not have any.
func TestConfigureWithoutConfiguration(t *testing.T) {
	if code := configure(); code != abi.Success {
		t.Errorf("got %s", code)
	}
}
