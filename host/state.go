package host

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"
)

// State compares the version of a plugin in service with the declared one: the module of the
// plugin's source under the plugin's configuration.
//
// A plugin begins as Unavailable or Serving. From then on its state changes as follows:
//
//	Unavailable -> Serving      the declared version was loaded
//	Unavailable -> Stale        the version that served last was loaded in its place
//	Serving     -> Stale        the source could not be read, its new module was refused, or
//	                            Plugin.Rollback put an earlier version into service
//	Stale       -> Serving      the declared version was loaded, or is that in service again
type State string

const (
	// Loading is the state of a plugin whose first version is being fetched or loaded.
	Loading State = "Loading"
	// Serving is the state of a plugin that serves as it was declared.
	Serving State = "Serving"
	// Stale is the state of a plugin that an earlier version serves, since the declared one could
	// not be fetched or was refused.
	Stale State = "Stale"
	// Unavailable is the state of a plugin that no version serves: its calls fail, and the failure
	// policy of its component decides.
	Unavailable State = "Unavailable"
	// Disabled is the state of a plugin that is not called, by its configuration or by an operator.
	Disabled State = "Disabled"
)

// States returns all states.
func States() []State { return []State{Loading, Serving, Stale, Unavailable, Disabled} }

// UnavailableError is the error of a call to a plugin that could not be loaded yet, see
// [Adapter.StandIn].
type UnavailableError struct {
	Plugin string
	// Err is the reason.
	Err error
}

func (e *UnavailableError) Error() string {
	return "plugin \"" + e.Plugin + "\" is not available: " + e.Err.Error()
}

func (e *UnavailableError) Unwrap() error { return e.Err }

// standing is the state of a plugin, with the reason unless it is Serving.
type standing struct {
	state State
	err   error
	// digest is that of the module that was refused, and took the time that this took; zero if it
	// could not be fetched.
	digest string
	took   time.Duration
}

// same reports whether two states have the same reason: the first load and the follower word a
// source that is away differently.
func (s *standing) same(o *standing) bool {
	cause := func(err error) string {
		for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
			err = inner
		}
		return err.Error()
	}
	return s.state == o.state && s.digest == o.digest && (s.err == nil || cause(s.err) == cause(o.err))
}

// State returns the state of the plugin: Serving, Stale or Unavailable. err is the reason of the
// others.
func (p *Plugin) State() (state State, err error) {
	s := p.standing.Load()
	return s.state, s.err
}

// became sets the state of the plugin. It logs a change, also of the reason.
func (p *Plugin) became(state State, err error) {
	now := &standing{state: state, err: err}
	if b := p.tried.Load(); b != nil && err != nil && errors.Is(err, b.Err) {
		now.digest, now.took = b.Digest, b.Duration
	}
	was := p.standing.Swap(now)
	if p.cfg.Logger == nil || was != nil && was.same(now) {
		return
	}
	log := func(level slog.Level, text string) {
		attrs := []slog.Attr{slog.String("plugin", p.cfg.Name), slog.String("state", string(state)), slog.String("reference", p.source.String())}
		if err == nil {
			attrs = append(attrs, slog.String("digest", p.Digest()))
		} else {
			attrs = append(attrs, slog.String("serving", p.Digest()), slog.Any("err", err), slog.String("digest", now.digest), slog.Duration("duration", now.took.Round(time.Millisecond)))
		}
		p.cfg.Logger.LogAttrs(context.Background(), level, text, attrs...)
	}
	switch {
	case state == Unavailable:
		log(slog.LevelError, "the plugin is not available")
	case state == Stale:
		log(slog.LevelError, "the declared module is not in service, an earlier one is")
	case was != nil:
		log(slog.LevelInfo, "the declared module is in service")
	}
}

// failed sets the state after an error of the declared module.
func (p *Plugin) failed(err error) {
	state := Stale
	if p.current.Load().unavailable != nil {
		state = Unavailable
	}
	p.became(state, err)
}

// first loads the first version: that of the source or, with RuntimeConfig.KeepModules, the last
// one that was loaded from the source before. Without both it fails, unless the adapter has
// [Adapter.StandIn]. refused is the digest of a module of the source that was refused.
func (p *Plugin) first(ctx context.Context) (refused string, err error) {
	digest, err := p.build(ctx, p.source, p.cfg.Module.SHA256, nil)
	if err == nil {
		p.became(Serving, nil)
		return "", nil
	}
	if ctx.Err() != nil {
		return "", err
	}
	if !errors.Is(err, ErrMemory) {
		refused = digest
		if p.last(ctx, digest) {
			p.became(Stale, err)
			return refused, nil
		}
	}
	if !p.adapter.StandIn {
		e := &LoadError{Plugin: p.cfg.Name, SHA256: refused, Reference: p.source.String(), Err: err}
		if b := p.tried.Load(); b != nil {
			e.Duration = b.Duration
		}
		return "", e
	}
	p.current.Store(p.unavailable(err))
	p.became(Unavailable, err)
	return refused, nil
}

// unavailable returns the version that represents that there is none.
func (p *Plugin) unavailable(reason error) *version {
	v := &version{plugin: p, about: &Module{}, limits: p.cfg.Limits.Or(p.adapter.Defaults).withDefaults(), unavailable: reason}
	v.pool = newPool(v.limits.Instances, false, v.discard)
	v.pool.close()
	return v
}

// Readiness decides whether a program is ready, by the plugins that could not be loaded yet. A
// replica that fails all its calls must not replace one that serves, and one that has served must
// not be taken out of service by its source. The zero value waits for the default time.
type Readiness struct {
	// Timeout is the longest time for which plugins without a version keep the program from being
	// ready, from the first call of Ready. Default 10 minutes.
	Timeout time.Duration

	begun atomic.Pointer[time.Time]
	ready atomic.Bool
}

// defaultReadyTimeout is the default of Readiness.Timeout.
const defaultReadyTimeout = 10 * time.Minute

// Ready returns unavailable, the joined reasons of the plugins without a version in service, until
// it was nil once or the timeout has passed. Then it always returns nil.
func (r *Readiness) Ready(unavailable error) error {
	if r.ready.Load() {
		return nil
	}
	now := time.Now()
	r.begun.CompareAndSwap(nil, &now)
	if unavailable == nil || time.Since(*r.begun.Load()) >= cmp.Or(r.Timeout, defaultReadyTimeout) {
		r.ready.Store(true)
		return nil
	}
	return unavailable
}
