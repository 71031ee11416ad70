package host_test

import (
	"context"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
)

// TestStateBeginsAnewBehindAProbe holds that what a probe left in an instance's
// state is gone, like what it left in its memory.
func TestStateBeginsAnewBehindAProbe(t *testing.T) {
	cfg := config("spins")
	cfg.Limits.Instances = 1
	cfg.NewState = func() any { return new(int) }
	cfg.Probe = func(ctx context.Context, inst *host.Instance) error {
		*inst.State().(*int)++
		_, err := inst.Call(ctx, abi.Filter, 0, 0, 0)
		return err
	}
	inst := acquire(t, load(t, cfg))
	defer inst.Release()
	if got := *inst.State().(*int); got != 0 {
		t.Errorf("the state is %d, want a new one", got)
	}
	if got, err := inst.Call(t.Context(), abi.Filter, 0, 0, 0); err != nil || got != 0x10001 {
		t.Errorf("the guest counts %#x, error %v", got, err)
	}
}

func TestNamesAreUTF8(t *testing.T) {
	cfg := config("noop")
	cfg.Name = "a\xffb"
	if _, err := cfg.load(t.Context(), newRuntime(t)); err == nil || !strings.Contains(err.Error(), `name "a\xffb" is not UTF-8`) {
		t.Errorf("got %v", err)
	}
}
