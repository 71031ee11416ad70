// Package loading passes settings of a plugin to host.Runtime.Load that no configuration has: those
// of a replay, of a shadow, and of a load that finds out whether there can be one.
package loading

import (
	"context"
	"errors"
	"time"

	"github.com/kubewasm/kubewasm/internal/recording"
)

// Settings are the settings of a plugin beside its host.Config. The zero value changes nothing.
type Settings struct {
	// Recorder records calls in place of Config.Record.
	Recorder recording.Tapes
	// Throttle slows down the calls of a plugin that serves nothing.
	Throttle Throttle
	// Outside answers instead of the machine's clock and its source of random numbers.
	Outside Outside
	// Compiled, unless it is nil, is called when the module is compiled, before any of its code runs. An
	// error ends the load.
	Compiled func() error
	// Unconfigured starts the guest and no more: it is neither configured nor probed.
	Unconfigured bool
	// Domain is the trust domain of a guest in another process. Default: that of the plugin's name.
	Domain string
	// Account is charged for the calls of the plugin. By default it is that of the host.Observer.
	Account Account
}

// Throttle slows down the calls of a plugin.
type Throttle interface {
	// Rest is called about once per 0.1 ms of a guest's work, and may sleep. An error ends the call.
	Rest(ctx context.Context) error
	// Worked receives the time of each compilation and start.
	Worked(d time.Duration)
}

// Outside provides guests with the granted time and random numbers. Its methods are called in host
// functions.
type Outside interface {
	// Time returns the time of a guest's clock in nanoseconds.
	Time() int64
	// Random fills b.
	Random(b []byte)
}

// ErrQuota is the error of a caller that gets no instance since the [Account] of the plugin is empty.
var ErrQuota = errors.New("the quota of fuel is used up")

// Account bounds the fuel that the calls of several plugins use over time. It is safe for use by
// several goroutines.
type Account interface {
	// Err returns nil if a call may begin. Otherwise it returns the reason, which wraps ErrQuota.
	Err() error
	// Charge receives the fuel that a call has used, whatever its result. The start of an instance is
	// charged, too, and always allowed.
	Charge(fuel int64)
}

type key struct{}

// With returns a context for host.Runtime.Load with the settings.
func With(ctx context.Context, s Settings) context.Context { return context.WithValue(ctx, key{}, s) }

// Of returns the settings of a context, by default the zero value.
func Of(ctx context.Context) Settings {
	s, _ := ctx.Value(key{}).(Settings)
	return s
}
