package host_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/host"
)

// slow is a small module that takes the compiler long: loops within loops.
func slow() host.Source {
	const loops = 1200
	return host.Bytes(guestOf(slices.Concat(
		[]byte{0}, bytes.Repeat([]byte{0x03, 0x40}, loops), bytes.Repeat([]byte{0x0b}, loops), []byte{0x41, 0x00, 0x0b})...))
}

func TestBuildTimeout(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		ctx     context.Context
		timeout time.Duration
		want    error
	}{
		"of the limits": {t.Context(), time.Millisecond, context.DeadlineExceeded},
		"of the caller": {cancelled, time.Hour, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			rt, err := host.NewRuntime(host.RuntimeConfig{})
			if err != nil {
				t.Fatal(err)
			}
			cfg := config("slow")
			cfg.Module.Source, cfg.Limits.BuildTimeout = slow(), test.timeout
			_, err = cfg.load(test.ctx, rt)
			if !errors.Is(err, test.want) || !errors.As(err, new(*host.ModuleError)) || !strings.Contains(err.Error(), "compile: ") {
				t.Errorf("got %v, want a compilation that ended with %v", err, test.want)
			}
			// Others are served meanwhile, and Close waits for what goes on.
			if _, err := config("noop").load(t.Context(), rt); err != nil {
				t.Error(err)
			}
			if err := rt.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSlowBuildLeavesTheOldVersion holds that a swap gives up too.
func TestSlowBuildLeavesTheOldVersion(t *testing.T) {
	cfg := config("spins")
	cfg.Limits.BuildTimeout = time.Minute
	p := load(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := p.Swap(ctx, slow(), ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if got, err := callFilter(t, p); err != nil || got != 0x10001 {
		t.Errorf("the old version: got %#x, error %v", got, err)
	}
}

func TestCloseOfARuntimeMayBeRepeated(t *testing.T) {
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := config("noop").load(t.Context(), rt)
	if err != nil {
		t.Fatal(err)
	}
	inst := acquire(t, p)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := rt.Close(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("close during a call: got %v", err)
	}
	inst.Release()
	for range 2 {
		if err := rt.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if _, err := config("noop").load(t.Context(), rt); err == nil {
		t.Error("a closed runtime loads")
	}
}
