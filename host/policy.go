package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// FailurePolicy decides a request that a plugin fails to answer: its guest trapped, was
// stopped or broke a rule of the ABI, or the plugin is out of service. The values are
// those of the API server's webhooks and KeepLast. Empty means Fail.
type FailurePolicy string

const (
	// Fail fails the request.
	Fail FailurePolicy = "Fail"
	// Ignore goes on as if the plugin had no opinion on the request.
	Ignore FailurePolicy = "Ignore"
	// KeepLast goes on with the plugin's last answer about the same subject, or as Ignore
	// does if there is none. Only package hooks accepts it.
	KeepLast FailurePolicy = "KeepLast"
)

// Check returns an error unless the policy is empty, Fail, Ignore or one of others.
func (p FailurePolicy) Check(others ...FailurePolicy) error {
	known := append([]FailurePolicy{Fail, Ignore}, others...)
	if p == "" || slices.Contains(known, p) {
		return nil
	}
	return fmt.Errorf("failurePolicy is %q, want %s", string(p), list(known))
}

// ResetPolicy is the policy for resetting instances to the snapshot that was taken after the start
// of the first one. Empty means ResetOnError.
type ResetPolicy string

const (
	// ResetOnError resets an instance whose guest trapped or was stopped. An
	// instance that cannot be reset, since its memory is at its limit, is replaced.
	// Where [Adapter.ResetGrown] is set, it also resets one whose memory has grown.
	ResetOnError ResetPolicy = "OnError"
	// ResetPerCall resets an instance whenever it is released: no call sees data that an earlier
	// one left in memory.
	ResetPerCall ResetPolicy = "PerCall"
	// ResetNever replaces an instance whose guest trapped by one that is started
	// from the beginning.
	ResetNever ResetPolicy = "Never"
)

func (p ResetPolicy) check() error {
	known := []ResetPolicy{ResetOnError, ResetPerCall, ResetNever}
	if p == "" || slices.Contains(known, p) {
		return nil
	}
	return fmt.Errorf("reset is %q, want %s", string(p), list(known))
}

// Isolation separates a guest from the process of the component, in addition to the checks of the
// compiled code. Empty means IsolationNone, or RuntimeConfig.MinimumIsolation.
type Isolation string

const (
	// IsolationNone runs the guest in the process of the component.
	IsolationNone Isolation = "none"
	// IsolationProcess compiles and runs the guest in a child process without privileges, files and
	// network: the program itself, executed again. Modules are compiled in one each. Ten seconds after
	// the last load, the plugins of a Runtime whose labels have the same text before the first slash, or
	// no slash, share one: they are a trust domain. It needs Linux on amd64 or arm64. A call takes some microseconds more, and so does each call of the host. The
	// machine code is not cached, compiled forms are not used, and the plugin cannot have a Profiler.
	// The child is shut in by an init function of this package: those of packages that do not import
	// it may run before, without the variables and files of the parent.
	//
	// A process that ends, or does not answer in the time of its call, costs its calls an error, and
	// is replaced, five times within a minute. One that plugins share is replaced once within a minute;
	// after that each module has one of its own for a time.
	IsolationProcess Isolation = "process"
)

// errProfiled is the error of a profile of a guest in another process.
var errProfiled = errors.New("isolation is process, where no profile can be collected")

func (i Isolation) check(path string) error {
	known := []Isolation{IsolationNone, IsolationProcess}
	switch {
	case i == "" || i == IsolationNone:
		return nil
	case i != IsolationProcess:
		return fmt.Errorf("%s is %.80q, want %s", path, string(i), list(known))
	}
	if err := checkWall(); err != nil {
		return fmt.Errorf("%s is %s: %w", path, i, err)
	}
	return nil
}

// Isolation returns the level for the guests of strangers whose configuration has none: that of
// [RuntimeConfig].MinimumIsolation, or, if that is empty, IsolationProcess. On a system that cannot
// run guests in child processes it returns IsolationNone and the reason. The first call finds out: it
// runs two small processes. A program sets Config.Isolation to the level.
func (rt *Runtime) Isolation(ctx context.Context) (Isolation, error) {
	if rt.minimum != "" {
		return rt.minimum, nil
	}
	rt.trying.Do(func() {
		// A program that ends, or a busy machine, must not decide.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if err := rt.tryWall(ctx); err != nil {
			rt.noWall.Store(&err)
		}
	})
	if err := rt.noWall.Load(); err != nil {
		return IsolationNone, *err
	}
	return IsolationProcess, nil
}

// list returns values as "a, b or c".
func list[S ~string](values []S) string {
	s := string(values[0])
	for i, v := range values[1:] {
		if i == len(values)-2 {
			s += " or " + string(v)
		} else {
			s += ", " + string(v)
		}
	}
	return s
}
