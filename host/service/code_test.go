package service_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/abi/codes"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/service"
	"github.com/kubewasm/kubewasm/host/service/testdata/testservice"
	"github.com/kubewasm/kubewasm/internal/nativehost"
)

// answering returns a plugin that returns each error of the host as its own, with the number and
// the text that it was given.
func answering(t *testing.T, cfg service.Config, err error) *testservice.Test {
	t.Helper()
	return loadAsking(t, cfg, func(context.Context, *testservice.Message) (*testservice.Message, error) { return nil, err })
}

// native returns such a plugin in this process.
func native(t *testing.T, policy host.FailurePolicy, err error) *testservice.Test {
	t.Helper()
	p, loadErr := testservice.LoadTest(t.Context(), nil, service.Config{FailurePolicy: policy, Config: host.Config{Name: "guest", Module: host.ModuleConfig{Source: nativehost.Service{
		Has: func(string) bool { return true },
		Call: func(_ string, request []byte, h nativehost.Objects) ([]byte, codes.Code) {
			return h.Call("kubewasm.test.v1.Host", "Ask", request)
		},
	}}}}, asks(func(context.Context, *testservice.Message) (*testservice.Message, error) { return nil, err }))
	if loadErr != nil {
		t.Fatal(loadErr)
	}
	return p
}

// An error with a code crosses twice: from the host service to the guest, and from there to the
// component. A guest may return any number.
func TestErrorsCarryTheirCodes(t *testing.T) {
	inner := &host.StatusError{Code: codes.AlreadyExists, Reason: "no"}
	tests := []struct {
		name string
		err  error
		want codes.Code
		text string // Of the code.
	}{
		{"no code", errors.New("no"), codes.Unknown, "Error"},
		{"a code", service.Errorf(codes.NotFound, "no"), codes.NotFound, "NotFound"},
		{"the last code", service.Errorf(codes.Unauthenticated, "no"), codes.Unauthenticated, "Unauthenticated"},
		{"unknown, said in words", service.Errorf(codes.Unknown, "no"), codes.Unknown, "Unknown"},
		{"OK, which is an error all the same", service.Errorf(codes.OK, "no"), codes.Unknown, "Error"},
		{"the number of an error without a code", service.Errorf(1, "no"), codes.Unknown, "Error"},
		{"the first number that is no code", service.Errorf(17, "no"), 17, "code(17)"},
		{"a number below zero", service.Errorf(-1, "no"), -1, "code(-1)"},
		{"the largest number", service.Errorf(math.MaxInt32, "no"), math.MaxInt32, "code(2147483647)"},
		{"2^31", service.Errorf(math.MinInt32, "no"), math.MinInt32, "code(-2147483648)"},
		{"a code that is wrapped", fmt.Errorf("%w", service.Errorf(codes.Aborted, "no")), codes.Aborted, "Aborted"},
		{"the outer one of two codes", service.Errorf(codes.Internal, "%w", service.Errorf(codes.NotFound, "no")), codes.Internal, "Internal"},
		{"the code of another plugin", inner, codes.AlreadyExists, "AlreadyExists"},
		{"the trap of another plugin that wraps a code", &host.TrapError{Reason: "no", Err: inner}, codes.Unknown, "Error"},
		{"a trap with a code of the component", service.Errorf(codes.Unavailable, "%w", &host.TrapError{Reason: "no"}), codes.Unavailable, "Unavailable"},
		{"a method that another plugin does not have", service.ErrUnimplemented, codes.Unimplemented, "Unimplemented"},
	}
	for _, test := range tests {
		if got := service.CodeOf(test.err); got != test.want {
			t.Errorf("%s: before it crosses it has the code %s, want %s", test.name, got, test.want)
		}
		for kind, p := range map[string]*testservice.Test{"wasm": answering(t, config(t), test.err), "native": native(t, host.Fail, test.err)} {
			t.Run(test.name+"/"+kind, func(t *testing.T) {
				got, err := p.AskHost(t.Context(), &testservice.Message{})
				if code := service.CodeOf(err); got != nil || code != test.want {
					t.Errorf("got %v, %v with the code %s, want %s", got, err, code, test.want)
				}
				if want := fmt.Sprintf("plugin %q: kubewasm.test.v1.Test/AskHost returned %s: %s", "guest", test.text, test.err); err == nil || err.Error() != want {
					t.Errorf("got the text %v, want %s", err, want)
				}
				if status := new(host.StatusError); !errors.As(err, &status) || status.Reason != test.err.Error() {
					t.Errorf("got %v, want a StatusError with the text of the host", err)
				}
			})
		}
	}
}

// An answer of the plugin with the code of something that the host does is told apart from that,
// and what the host does has no code.
func TestNoCodeImitatesTheHost(t *testing.T) {
	for code := codes.Code(-1); code <= 17; code++ {
		_, err := answering(t, config(t), service.Errorf(code, "plugin is disabled: context deadline exceeded")).AskHost(t.Context(), &testservice.Message{})
		for _, own := range []error{context.DeadlineExceeded, context.Canceled, host.ErrDisabled, host.ErrClosed, host.ErrSaturated, host.ErrFuel, host.ErrHostFault, service.ErrUnimplemented, service.ErrIgnored} {
			if err == nil || errors.Is(err, own) || errors.As(err, new(*host.TrapError)) {
				t.Errorf("code %s: got %v, which counts as %v", code, err, own)
			}
		}
	}
	cfg := config(t)
	cfg.CircuitBreaker = host.CircuitBreaker{After: 1, Backoff: time.Hour}
	tripped := load(t, cfg)
	ended, end := context.WithCancel(t.Context())
	end()
	closed := load(t, config(t))
	if err := closed.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	panics := loadAsking(t, config(t), func(context.Context, *testservice.Message) (*testservice.Message, error) {
		panic(service.Errorf(codes.NotFound, "a panic"))
	})
	p := load(t, config(t))
	for _, test := range []struct {
		name string
		call func(context.Context, *testservice.Message) (*testservice.Message, error)
		ctx  context.Context
		want error // One that errors.Is finds, nil for any.
	}{
		{"a trap", p.Trap, t.Context(), nil},
		{"out of fuel", p.Loop, t.Context(), host.ErrFuel},
		{"a malformed response", p.Malformed, t.Context(), nil},
		{"a context that has ended", p.Echo, ended, context.Canceled},
		{"the first failure of one that is disabled for it", tripped.Trap, t.Context(), nil},
		{"a plugin that is disabled", tripped.Echo, t.Context(), host.ErrDisabled},
		{"a plugin that is closed", closed.Echo, t.Context(), host.ErrClosed},
		{"a panic of the component with a code", panics.AskHost, t.Context(), host.ErrHostFault},
	} {
		_, err := test.call(test.ctx, &testservice.Message{})
		if err == nil || service.CodeOf(err) != codes.Unknown || test.want != nil && !errors.Is(err, test.want) {
			t.Errorf("%s: got %v with the code %s", test.name, err, service.CodeOf(err))
		}
	}
	if _, err := p.Missing(t.Context(), &testservice.Message{}); service.CodeOf(err) != codes.Unimplemented {
		t.Errorf("a method that the module does not have: got the code %s", service.CodeOf(err))
	}
	if code := service.CodeOf(nil); code != codes.OK {
		t.Errorf("no error has the code %s", code)
	}
}

// With the policy Ignore a failure is ignored: an error without a code, or with a code by which the
// plugin says that it failed. An answer about the request is not. No error opens the breaker.
func TestCodesAndTheFailurePolicy(t *testing.T) {
	cfg := config(t)
	cfg.FailurePolicy, cfg.CircuitBreaker = host.Ignore, host.CircuitBreaker{After: 1, Backoff: time.Hour}
	failures := map[codes.Code]bool{
		-1: true, 0: true, 1: true, 17: true,
		codes.Unknown: true, codes.DeadlineExceeded: true, codes.Unimplemented: true,
		codes.Internal: true, codes.Unavailable: true, codes.DataLoss: true,
	}
	for code := codes.Code(-1); code <= 17; code++ {
		answer := service.Errorf(code, "no")
		for kind, p := range map[string]*testservice.Test{"wasm": answering(t, cfg, answer), "native": native(t, host.Ignore, answer)} {
			got, err := p.AskHost(t.Context(), &testservice.Message{})
			if err == nil || errors.Is(err, service.ErrIgnored) != failures[code] || (got != nil) != failures[code] {
				t.Errorf("%s, %s: got %v, %v", code, kind, got, err)
			}
			if want := service.CodeOf(answer); service.CodeOf(err) != want {
				t.Errorf("%s, %s: got the code %s, want %s", code, kind, service.CodeOf(err), want)
			}
			if _, err := p.AskHost(t.Context(), &testservice.Message{}); errors.Is(err, host.ErrDisabled) {
				t.Errorf("%s, %s: the next call: %v", code, kind, err)
			}
		}
	}
}

func TestFakesReturnCodes(t *testing.T) {
	fake := &testservice.TestFake{EchoFunc: func(context.Context, *testservice.Message) (*testservice.Message, error) {
		return nil, service.Errorf(codes.PermissionDenied, "not to %s", "you")
	}}
	_, err := fake.Echo(t.Context(), &testservice.Message{})
	if service.CodeOf(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "not to you") {
		t.Errorf("got %v", err)
	}
	if _, err := fake.Fail(t.Context(), &testservice.Message{}); service.CodeOf(err) != codes.Unimplemented {
		t.Errorf("a method without a function: got %v", err)
	}
}
