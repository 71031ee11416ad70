package host

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/abi"
)

// TestCompilationsAreFew holds that a load waits while as many modules are compiled
// as may be, and that each compilation makes room for the next. A load gives up with
// its context or its BuildTimeout, and leaves nothing.
func TestCompilationsAreFew(t *testing.T) {
	rt, err := NewRuntime(RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	load := func(ctx context.Context, timeout time.Duration) error {
		p, err := rt.Load(ctx, Config{
			Name: "noop", Module: ModuleConfig{File: "testdata/noop.wasm"}, Limits: Limits{BuildTimeout: timeout},
		}, Adapter{Kind: abi.KindScheduler})
		if err == nil {
			err = p.Close(ctx)
		}
		return err
	}
	slots := cap(rt.compiling)
	if slots < 1 || slots > maxCompilations {
		t.Fatalf("%d modules may be compiled at a time", slots)
	}
	for range slots {
		rt.compiling <- struct{}{}
	}
	if err := load(t.Context(), time.Nanosecond); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "compile: wait for other modules") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	loaded := make(chan error)
	go func() { loaded <- load(ctx, 0) }()
	cancel()
	if err := <-loaded; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	go func() { loaded <- load(t.Context(), 0) }()
	select {
	case err := <-loaded:
		t.Errorf("a load did not wait: %v", err)
	case <-rt.compiling: // One is done.
	}
	if err := <-loaded; err != nil {
		t.Error(err)
	}
	for range slots - 1 {
		<-rt.compiling
	}
	for range 2 * slots {
		if err := load(t.Context(), 0); err != nil {
			t.Error(err)
		}
	}
	if err := rt.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if len(rt.compiling) != 0 {
		t.Errorf("%d compilations are left", len(rt.compiling))
	}
}

// TestErrorsOfACompilationAreShort holds that a module cannot make its own rejection
// fill a log.
func TestErrorsOfACompilationAreShort(t *testing.T) {
	long := errors.New(strings.Repeat("i32, ", 1_000_000))
	if n := len(shorten(long).Error()); n > maxErrorBytes+10 {
		t.Errorf("%d bytes are left", n)
	}
	if err := errors.New("short"); shorten(err) != err || shorten(nil) != nil {
		t.Error("a short error was changed")
	}
	for range maxImportErrors {
		err := &ImportError{Plugin: "p", Module: strings.Repeat("m", 100_000), Name: strings.Repeat("n", 100_000)}
		if n := len(err.Error()); n > 500 {
			t.Fatalf("an import error has %d bytes", n)
		}
	}
}
