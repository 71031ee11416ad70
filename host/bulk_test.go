package host_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
)

// lookedAt counts how often a host looks at a context, which it does whenever it is
// in control, and is cancelled at one of the looks.
type lookedAt struct {
	context.Context
	looks, cancelAt int
}

func (c *lookedAt) Err() error {
	if c.looks++; c.looks == c.cancelAt {
		return context.Canceled
	}
	return nil
}

// TestHostIsInControlDuringALongBulkOperation holds that a guest which moves 256 MiB
// with one instruction gives the host, and with it Go's garbage collector, a turn for
// each megabyte, and can be stopped there.
func TestHostIsInControlDuringALongBulkOperation(t *testing.T) {
	host.InProcess(t, "whoever waits for the process looks at the context too")
	const mib = 1 << 20
	cfg := config("bulk")
	cfg.Limits = host.Limits{Instances: 1, MemoryBytes: 256 * mib, Timeout: time.Minute}
	rt, err := host.NewRuntime(host.RuntimeConfig{MemoryBytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.Background())
	p, err := cfg.load(t.Context(), rt)
	if err != nil {
		t.Fatal(err)
	}
	call := func(ctx *lookedAt, how, n uint64) (uint64, error) {
		t.Helper()
		inst, err := p.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer inst.Release()
		ctx.Context = t.Context()
		return inst.Call(ctx, abi.Filter, how, 0, n)
	}
	for _, test := range []struct {
		name     string
		how      uint64
		mib      uint64
		ones     uint64 // The result: what the calls before have left, too.
		cancelAt int
	}{
		{"a fill of two", 0, 2, 2, 0},
		{"a fill of all", 0, 256, 256, 0},
		{"a copy downwards", 1, 255, 256, 0},
		{"a copy upwards", 2, 255, 256, 0},
		{"a fill that is cancelled", 0, 256, 0, 10},
		{"a fill of one after it", 0, 1, 1, 0},
	} {
		ctx := &lookedAt{cancelAt: test.cancelAt}
		ones, err := call(ctx, test.how, test.mib*mib)
		if test.cancelAt != 0 {
			if !errors.Is(err, context.Canceled) || ctx.looks != test.cancelAt {
				t.Errorf("%s: %d looks, error %v", test.name, ctx.looks, err)
			}
			continue
		}
		if err != nil || ones != test.ones {
			t.Errorf("%s: %d ones, want %d, error %v", test.name, ones, test.ones, err)
		}
		if ctx.looks < int(test.mib) {
			t.Errorf("%s of %d MiB: %d looks", test.name, test.mib, ctx.looks)
		}
	}
}
