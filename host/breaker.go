package host

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// ErrDisabled says that a plugin is out of service since it failed too often.
var ErrDisabled = errors.New("plugin is disabled")

// Disable says when a plugin that keeps failing is taken out of service, so that
// it does not cost every request its timeout. The zero value is never.
type Disable struct {
	// After is how many calls in a row must trap or be stopped; 0 means that a
	// plugin is never disabled.
	After int
	// Backoff is how long the plugin is disabled at first. Then one call is let
	// through: if it succeeds the plugin is back, otherwise it is disabled for
	// twice as long. Default 1 s.
	Backoff time.Duration
	// MaxBackoff is the longest that it is disabled. Default 5 min.
	MaxBackoff time.Duration
}

const (
	defaultBackoff    = time.Second
	defaultMaxBackoff = 5 * time.Minute
)

// breaker counts the failures of a plugin. A plugin that works costs one load of
// failures for each call.
type breaker struct {
	cfg Disable
	// failures are those in a row.
	failures atomic.Int64
	// until is when the plugin may be tried again, in nanoseconds since 1970.
	until atomic.Int64
}

// allow returns [ErrDisabled] while the plugin is disabled. When its time is up,
// one caller is let through and the others wait for what becomes of it.
func (b *breaker) allow() error {
	if b.cfg.After == 0 || b.failures.Load() < int64(b.cfg.After) {
		return nil
	}
	until, now := b.until.Load(), time.Now()
	if left := until - now.UnixNano(); left > 0 {
		return fmt.Errorf("%w for another %s after %d failures in a row", ErrDisabled, time.Duration(left).Round(time.Millisecond), b.failures.Load())
	}
	if !b.until.CompareAndSwap(until, now.Add(b.backoff(b.failures.Load()+1)).UnixNano()) {
		return fmt.Errorf("%w: it is being tried again", ErrDisabled)
	}
	return nil
}

// open reports whether the plugin is disabled now.
func (b *breaker) open() bool {
	return b.cfg.After != 0 && b.failures.Load() >= int64(b.cfg.After) && time.Now().UnixNano() < b.until.Load()
}

// succeeded notes a call that returned.
func (b *breaker) succeeded() {
	if b.failures.Load() != 0 {
		b.failures.Store(0)
	}
}

// failed notes a call that did not return.
func (b *breaker) failed() {
	if b.cfg.After == 0 {
		return
	}
	if n := b.failures.Add(1); n >= int64(b.cfg.After) {
		b.until.Store(time.Now().Add(b.backoff(n)).UnixNano())
	}
}

// reset brings the plugin back.
func (b *breaker) reset() { b.failures.Store(0) }

// backoff returns how long n failures in a row disable the plugin.
func (b *breaker) backoff(n int64) time.Duration {
	backoff, longest := b.cfg.Backoff, b.cfg.MaxBackoff
	if backoff == 0 {
		backoff = defaultBackoff
	}
	if longest == 0 {
		longest = defaultMaxBackoff
	}
	for i := int64(b.cfg.After); i < n && backoff < longest; i++ {
		backoff *= 2
	}
	return min(backoff, longest)
}
