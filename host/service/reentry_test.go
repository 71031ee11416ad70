package service_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/service"
	"github.com/kubewasm/kubewasm/host/service/testdata/testservice"
)

// asks answers guests by a function.
type asks func(ctx context.Context, req *testservice.Message) (*testservice.Message, error)

func (a asks) Ask(ctx context.Context, req *testservice.Message) (*testservice.Message, error) {
	return a(ctx, req)
}

// loadAsking loads the guest beside a host service.
func loadAsking(t *testing.T, cfg service.Config, a asks) *testservice.Test {
	t.Helper()
	p, err := testservice.LoadTest(t.Context(), runtime(t), cfg, a)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A host service that calls the plugin again while all of its instances are in use waits no longer
// than the call may take that it serves.
func TestAHostServiceThatCallsThePluginAgain(t *testing.T) {
	cfg := config(t)
	cfg.Limits.Instances, cfg.Limits.Timeout = 2, time.Second
	inside := make(chan struct{}, 2)
	both := make(chan struct{})
	var p *testservice.Test
	p = loadAsking(t, cfg, func(ctx context.Context, req *testservice.Message) (*testservice.Message, error) {
		inside <- struct{}{}
		<-both
		return p.Echo(ctx, req)
	})
	failed := make(chan error)
	for range 2 {
		go func() {
			_, err := p.AskHost(t.Context(), everything())
			failed <- err
		}()
	}
	<-inside
	<-inside
	close(both)
	for range 2 {
		// The first that is refused gives an instance back, which the other one may get.
		if err := <-failed; err != nil && !strings.Contains(err.Error(), context.DeadlineExceeded.Error()) {
			t.Errorf("got %v", err)
		}
	}
	if _, err := p.Echo(t.Context(), everything()); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// The context of a host service ends with the limit of the call.
func TestAHostServiceHasTheLimitOfTheCall(t *testing.T) {
	cfg := config(t)
	cfg.Limits.Timeout = 100 * time.Millisecond
	var left time.Duration
	p := loadAsking(t, cfg, func(ctx context.Context, _ *testservice.Message) (*testservice.Message, error) {
		deadline, ok := ctx.Deadline()
		if left = time.Until(deadline); !ok {
			return nil, errors.New("there is no deadline")
		}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	_, err := p.AskHost(t.Context(), everything())
	if err == nil || !strings.Contains(err.Error(), context.DeadlineExceeded.Error()) || left > cfg.Limits.Timeout {
		t.Errorf("got %v with %s left", err, left)
	}
}

// The panic of a host service is the component's: it is told with its stack, and the plugin is not
// disabled for it.
func TestAHostServiceThatPanics(t *testing.T) {
	var log bytes.Buffer
	cause, panics := errors.New("a nil map of the controller"), true
	cfg := config(t)
	cfg.FailurePolicy, cfg.CircuitBreaker, cfg.Logger = host.Ignore, host.CircuitBreaker{After: 1}, slog.New(slog.NewTextHandler(&log, nil))
	p := loadAsking(t, cfg, func(_ context.Context, req *testservice.Message) (*testservice.Message, error) {
		if panics {
			panic(cause)
		}
		return req, nil
	})
	_, err := p.AskHost(t.Context(), everything())
	var panicked *service.PanicError
	if !errors.As(err, &panicked) || panicked.Method != "Ask" || !strings.Contains(string(panicked.Stack), "TestAHostServiceThatPanics") {
		t.Fatalf("got %v", err)
	}
	if !errors.Is(err, host.ErrHostFault) || !errors.Is(err, cause) || errors.Is(err, service.ErrIgnored) {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(log.String(), "a host service panicked") || !strings.Contains(log.String(), "TestAHostServiceThatPanics") {
		t.Errorf("the log is %s", &log)
	}
	panics = false
	if _, err := p.AskHost(t.Context(), everything()); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// What another plugin does wrong, which a host service asks, is an error of that service and no
// fault of the plugin that has called it.
func TestTheMistakeOfAnInnerPlugin(t *testing.T) {
	inner := load(t, config(t))
	panicking := loadAsking(t, config(t), func(context.Context, *testservice.Message) (*testservice.Message, error) { panic("inner") })
	for name, ask := range map[string]func(context.Context, *testservice.Message) (*testservice.Message, error){
		"a malformed request":        inner.AskHostMalformed,
		"a trap":                     inner.Trap,
		"a panic of its own service": panicking.AskHost,
	} {
		t.Run(name, func(t *testing.T) {
			var innerErr error
			outer := loadAsking(t, config(t), func(ctx context.Context, req *testservice.Message) (_ *testservice.Message, err error) {
				_, err = ask(ctx, req)
				innerErr = err
				return nil, err
			})
			_, err := outer.AskHost(t.Context(), everything())
			if !errors.As(innerErr, new(*host.TrapError)) {
				t.Fatalf("the inner plugin returned %v", innerErr)
			}
			if errors.As(err, new(*host.TrapError)) || !errors.As(err, new(*host.StatusError)) {
				t.Errorf("got %v, want the status that the guest made of the error", err)
			}
		})
	}
}
