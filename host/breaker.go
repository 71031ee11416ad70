package host

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// ErrDisabled says that a plugin is out of service since it failed too often.
var ErrDisabled = errors.New("plugin is disabled")

// CircuitBreaker says when a plugin that keeps failing is taken out of service, so that
// it does not cost every request its timeout. The zero value is never.
type CircuitBreaker struct {
	// After is how many calls in a row must trap or be stopped; 0 means that a
	// plugin is never disabled.
	After int `json:"after,omitempty"`
	// Ratio is the share of calls that may fail for ever. Beyond it failures are
	// counted even if calls succeed in between, until they are After: so a
	// plugin that fails every other call is disabled, too. 0 <= Ratio < 1;
	// default 0, by which a call that succeeds begins the count anew.
	Ratio float64 `json:"ratio,omitempty"`
	// Backoff is how long the plugin is disabled at first. Then one call is let
	// through: if it succeeds the plugin is back, otherwise it is disabled for
	// twice as long. Default 1 s.
	Backoff time.Duration `json:"backoff,omitempty"`
	// MaxBackoff is the longest that it is disabled. Default 5 min.
	MaxBackoff time.Duration `json:"maxBackoff,omitempty"`
}

const (
	defaultBackoff    = time.Second
	defaultMaxBackoff = 5 * time.Minute
)

// breaker counts the failures of a plugin. A plugin that works costs one load of
// level for each call.
type breaker struct {
	cfg CircuitBreaker
	// level is the failures that count, each as much as failure: those in a row
	// or, with a ratio, those beyond it.
	level atomic.Int64
	// until is when the plugin may be tried again, in nanoseconds since 1970.
	until atomic.Int64
}

// failure is what a failure adds to the level.
const failure = 1 << 20

// limit is the level at which the plugin is disabled.
func (b *breaker) limit() int64 { return int64(b.cfg.After) * failure }

// forgiven is what a success takes from the level, so that it stands still while
// as many calls fail as may.
func (b *breaker) forgiven() int64 {
	return int64(math.Ceil(failure * b.cfg.Ratio / (1 - b.cfg.Ratio)))
}

// reason says which failures the level counts.
func (b *breaker) reason() string {
	n := b.level.Load() / failure
	if b.cfg.Ratio == 0 {
		return fmt.Sprintf("%d failures in a row", n)
	}
	return fmt.Sprintf("%d failures beyond %g %% of its calls", n, 100*b.cfg.Ratio)
}

// allow returns [ErrDisabled] while the plugin is disabled. When its time is up,
// one caller is let through and the others wait for what becomes of it.
func (b *breaker) allow() error {
	if b.cfg.After == 0 || b.level.Load() < b.limit() {
		return nil
	}
	until, now := b.until.Load(), time.Now()
	if left := until - now.UnixNano(); left > 0 {
		return fmt.Errorf("%w for another %s after %s", ErrDisabled, time.Duration(left).Round(time.Millisecond), b.reason())
	}
	if !b.until.CompareAndSwap(until, now.Add(b.backoff(b.level.Load()+failure)).UnixNano()) {
		return fmt.Errorf("%w: it is being tried again", ErrDisabled)
	}
	return nil
}

// open reports whether the plugin is disabled now.
func (b *breaker) open() bool {
	return b.cfg.After != 0 && b.level.Load() >= b.limit() && time.Now().UnixNano() < b.until.Load()
}

// succeeded notes a call that returned.
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

// failed notes a call that did not return.
func (b *breaker) failed() {
	if b.cfg.After == 0 {
		return
	}
	if level := b.level.Add(failure); level >= b.limit() {
		b.until.Store(time.Now().Add(b.backoff(level)).UnixNano())
	}
}

// reset brings the plugin back.
func (b *breaker) reset() { b.level.Store(0) }

// backoff returns for how long a level disables the plugin.
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
