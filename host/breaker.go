package host

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// ErrDisabled is returned for a plugin that is out of service because it failed
// too often.
var ErrDisabled = errors.New("plugin is disabled")

// CircuitBreaker disables a plugin that keeps failing, so that requests stop waiting for its
// timeout. The zero value never disables a plugin.
type CircuitBreaker struct {
	// After is the number of consecutive failures that disables a plugin: calls that trap or are
	// stopped. 0 means that a plugin is never disabled.
	After int `json:"after,omitempty"`
	// Ratio is the share of calls that may fail indefinitely. Failures above it add up even if
	// calls succeed in between, and After of them disable the plugin: so a plugin that fails every
	// other call is disabled as well. 0 <= Ratio < 1. With the default of 0, a call that succeeds
	// resets the count.
	Ratio float64 `json:"ratio,omitempty"`
	// Backoff is the time for which the plugin is disabled at first. Then one call is let through:
	// if it succeeds, the plugin serves again; otherwise it is disabled for twice as long. Default
	// 1 s.
	Backoff time.Duration `json:"backoff,omitempty"`
	// MaxBackoff is the longest time for which the plugin is disabled. Default 5 min.
	MaxBackoff time.Duration `json:"maxBackoff,omitempty"`
}

const (
	defaultBackoff    = time.Second
	defaultMaxBackoff = 5 * time.Minute
)

// breaker counts the failures of a plugin that may be disabled. A plugin that works costs one
// load of level for each call.
type breaker struct {
	cfg CircuitBreaker
	// level is the number of failures that count, times failure: those in a row
	// or, with a ratio, those above it.
	level atomic.Int64
	// until is the time from which the plugin may be tried again, by the clock of sinceStart.
	until atomic.Int64
}

// sinceStart returns the time since the process started. It is monotonic: if the clock of the
// machine is set back, a disabled plugin does not stay disabled for longer.
func sinceStart() time.Duration { return time.Since(processStart) }

// failure is the amount that a failure adds to the level.
const failure = 1 << 20

// limit is the level at which the plugin is disabled.
func (b *breaker) limit() int64 { return int64(b.cfg.After) * failure }

// forgiven returns the amount that a success takes from the level. The level stays the same while
// exactly the share Ratio of the calls fails.
func (b *breaker) forgiven() int64 {
	return int64(math.Ceil(failure * b.cfg.Ratio / (1 - b.cfg.Ratio)))
}

// reason returns a text that names the failures which the level counts.
func (b *breaker) reason() string {
	n := b.level.Load() / failure
	if b.cfg.Ratio == 0 {
		return fmt.Sprintf("%d failures in a row", n)
	}
	return fmt.Sprintf("%d failures, more than %g %% of its calls", n, 100*b.cfg.Ratio)
}

// allow returns [ErrDisabled] while the plugin is disabled. When its time is up,
// one caller is let through, and the others are refused until its call has
// ended.
func (b *breaker) allow() error {
	if b.level.Load() < b.limit() {
		return nil
	}
	until, now := time.Duration(b.until.Load()), sinceStart()
	if left := until - now; left > 0 {
		return fmt.Errorf("%w for another %s after %s", ErrDisabled, left.Round(time.Millisecond), b.reason())
	}
	if !b.until.CompareAndSwap(int64(until), int64(now+b.backoff(b.level.Load()+failure))) {
		return fmt.Errorf("%w: it is being retried", ErrDisabled)
	}
	return nil
}

// open reports whether the plugin is disabled now.
func (b *breaker) open() bool {
	return b.level.Load() >= b.limit() && int64(sinceStart()) < b.until.Load()
}

// succeeded records a call that returned.
func (b *breaker) succeeded() {
	for {
		level := b.level.Load()
		if level == 0 {
			return
		}
		left := max(0, level-b.forgiven())
		if b.cfg.Ratio == 0 || level >= b.limit() {
			left = 0 // The plugin was tried again, and works.
		}
		if b.level.CompareAndSwap(level, left) {
			return
		}
	}
}

// failed records a call that did not return.
func (b *breaker) failed() {
	if level := b.level.Add(failure); level >= b.limit() {
		b.until.Store(int64(sinceStart() + b.backoff(level)))
	}
}

// backoff returns the time for which a level disables the plugin.
func (b *breaker) backoff(level int64) time.Duration {
	backoff, longest := b.cfg.Backoff, b.cfg.MaxBackoff
	if backoff == 0 {
		backoff = defaultBackoff
	}
	if longest == 0 {
		longest = defaultMaxBackoff
	}
	for l := b.limit() + failure; l <= level && backoff < longest; l += failure {
		backoff *= 2
	}
	return min(backoff, longest)
}
