package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/loading"
	"github.com/kubewasm/kubewasm/internal/lograte"
	"github.com/kubewasm/kubewasm/internal/recording"
)

// Plugin is a module that is ready to be called, and that another version may replace during calls.
// It is safe for use by several goroutines.
type Plugin struct {
	cfg     Config
	label   string // See Stats.
	source  Source
	adapter Adapter
	with    loading.Settings
	runtime *Runtime
	// breaker is nil if the plugin is never disabled.
	breaker *breaker
	// lines is the budget for the lines of the guest. calls is the budget of callLogger, which logs
	// the host's lines about calls and is nil without a logger.
	lines, calls *lograte.Budget
	callLogger   *slog.Logger
	// tapes is nil if calls are not recorded; stopRecording ends the use of it.
	tapes         recording.Tapes
	stopRecording func() error

	// unfollow stops following the source, and ends ended.
	unfollow context.CancelFunc
	ended    context.Context
	// standing compares the version in service with the declared one; nil before the first load.
	standing atomic.Pointer[standing]

	// current is the version that serves new calls, which refuses all of them while there is none.
	current atomic.Pointer[version]

	// swapping serialises swaps and the closing, which may take seconds: the goroutine that has put
	// a value there has the turn.
	swapping chan struct{}
	closed   bool

	// reference is the source of the module in service; nil before the first load.
	reference atomic.Pointer[string]
	// tried is the last attempt to load a module.
	tried atomic.Pointer[BuildEvent]

	mu sync.Mutex
	// retired are the versions that still serve calls which began before a swap.
	retired []*version
	// versions are the versions that have served, the newest last.
	versions []Version
}

// Load makes a plugin of a module: fetch, verify, check, compile, instantiate,
// configure. The plugin's user sets cfg; adapter describes the component.
//
// The error of a module that cannot be fetched or is refused is a *[LoadError]. It wraps, for
// errors.As: *[DigestError]; *[ModuleError] for bytes that are not a module for this
// host; *[ExportError] and *[ImportError] for a module that is not a guest for this caller, all of
// them at once; *[TrapError] for a guest that traps while it starts; *[StatusError] for a guest
// that refuses its configuration. For errors.Is: [ErrMemory] if its memory exceeds the rest of
// RuntimeConfig.MemoryBytes.
func (rt *Runtime) Load(ctx context.Context, cfg Config, adapter Adapter) (*Plugin, error) {
	source, err := rt.open(&cfg, &adapter)
	if err != nil {
		return nil, err
	}
	p := &Plugin{cfg: cfg, label: cfg.label(), source: source, adapter: adapter, with: loading.Of(ctx), runtime: rt, swapping: make(chan struct{}, 1)}
	p.with.Account = cmp.Or(p.with.Account, loading.AccountOf(cfg.Observer, p.label))
	logBytes := cfg.Limits.Or(adapter.Defaults).Or(DefaultLimits()).LogBytes
	p.lines, p.calls = lograte.New(logBytes), lograte.New(logBytes)
	p.callLogger = lograte.Logger(cfg.Logger, p.calls)
	if cfg.CircuitBreaker.After != 0 {
		p.breaker = &breaker{cfg: cfg.CircuitBreaker}
	}
	// Until the plugin is registered, Close has only this to wait for.
	if err := rt.begin(cfg.Name); err != nil {
		return nil, err
	}
	defer rt.building.Done()
	p.tapes, p.stopRecording = p.with.Recorder, func() error { return nil }
	if cfg.Record != nil {
		var err error
		if p.tapes, p.stopRecording, err = rt.recordTo(cfg.Record, cfg.Logger); err != nil {
			return nil, fmt.Errorf("plugin %q: %w", cfg.Name, err)
		}
		if err := rt.Recorders()[cfg.Record.Path].Err; err != nil && cfg.Logger != nil {
			cfg.Logger.Error("calls are not recorded", "plugin", cfg.Name, "err", err)
		}
	}
	refused, err := p.first(ctx)
	if err != nil {
		if stopErr := p.stopRecording(); stopErr != nil {
			err = errors.Join(err, stopErr)
		}
		return nil, err // Unwrap returns the error without the plugin's name.
	}
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	p.ended, p.unfollow = following, stop
	if err := rt.add(p); err != nil {
		stop()
		return nil, errors.Join(err, p.current.Load().close(context.WithoutCancel(ctx)), p.stopRecording())
	}
	if state, _ := p.State(); cfg.Module.Follow || state != Serving {
		go p.follow(following, refused)
	}
	return p, nil
}

// isolation returns the level at which the guest runs.
func (p *Plugin) isolation() Isolation {
	return cmp.Or(p.cfg.Isolation, p.runtime.minimum, IsolationNone)
}

// domain returns the trust domain of a plugin whose guest runs in another process: what its label has
// before a slash, unless the program has set it.
func (p *Plugin) domain() string {
	if p.with.Domain != "" {
		return p.with.Domain
	}
	before, _, named := strings.Cut(p.label, "/")
	if !named {
		return ""
	}
	return before + "/"
}

// open returns the source of the module of a plugin, or every mistake of its configuration.
func (rt *Runtime) open(cfg *Config, adapter *Adapter) (Source, error) {
	mistakes := adapter.Validate(cfg)
	if rt.minimum == IsolationProcess {
		if cfg.Isolation == IsolationNone {
			mistakes = errors.Join(mistakes, fmt.Errorf("plugin %q: configuration: isolation is none, and the operator's minimum is process", cfg.Name))
		}
		if cfg.Profiler != nil {
			mistakes = errors.Join(mistakes, fmt.Errorf("plugin %q: configuration: %w", cfg.Name, errProfiled))
		}
	}
	source, err := rt.Source(cfg.Module, "module")
	switch {
	case mistakes == nil && err == nil:
		return source, nil
	case mistakes == nil:
		return nil, fmt.Errorf("plugin %q: configuration: %w", cfg.Name, err)
	case err == nil || len(cfg.Module.Check("module")) != 0: // Validate has reported them.
		return nil, mistakes
	}
	return nil, errors.Join(mistakes, err)
}

// Source returns a source of the module that serves new calls now: of the module that the runtime
// has kept, or of the configured source, which may have another one by then.
func (p *Plugin) Source() Source { return servingSource{p.source, p.runtime, p.Digest()} }

// servingSource is the source of a module that was loaded.
type servingSource struct {
	Source
	runtime *Runtime
	digest  string
}

// Fetch implements [Source].
func (s servingSource) Fetch(ctx context.Context) ([]byte, error) {
	if module, err := s.runtime.KeptModule(ctx, s.digest); err == nil {
		return module, nil
	}
	return s.Source.Fetch(ctx)
}

// Name returns the plugin's name.
func (p *Plugin) Name() string { return p.cfg.Name }

// CallLogger returns a logger for lines about single calls, which users and guests can repeat as
// often as they like: Config.Logger within Limits.LogBytes, nil if that is nil.
func (p *Plugin) CallLogger() *slog.Logger { return p.callLogger }

// Functions returns the functions that the guest implements, none if it is of a
// [Dialect] or unavailable. They are the same for every version.
func (p *Plugin) Functions() abi.Mask { return p.current.Load().functions }

// Digest returns the SHA-256 of the module that serves new calls, in
// hexadecimal; it is empty if the plugin is unavailable.
func (p *Plugin) Digest() string { return p.current.Load().digest }

// Acquire takes an instance for the caller alone, making one if all are in use
// and Limits.Instances allows it, waiting for one otherwise. The caller must
// release it.
//
// Errors, for errors.Is: [ErrClosed]; [ErrSaturated] together with ctx's error
// if ctx ends first; [ErrDisabled]; [ErrMemory] if there is no memory for a new
// instance and no other to wait for. For errors.As: *[UnavailableError]. A new
// instance may also fail as in [Runtime.Load].
func (p *Plugin) Acquire(ctx context.Context) (*Instance, error) { return p.acquire(ctx, nil, nil) }

// acquire takes an instance of the pinned version or, if that is nil, of the one that serves new
// calls. It takes the instance again, unless that is nil or gone.
func (p *Plugin) acquire(ctx context.Context, pinned *version, again *Instance) (inst *Instance, err error) {
	account := p.with.Account
	if account != nil {
		err = account.Err()
	}
	if p.breaker != nil && err == nil {
		err = p.breaker.allow()
	}
	if err != nil {
		err = fmt.Errorf("plugin %q: %w", p.cfg.Name, err)
	}
	for err == nil {
		v := pinned
		if v == nil {
			v = p.current.Load()
		}
		if inst, err = v.pool.acquire(ctx, again); err != nil {
			err = fmt.Errorf("plugin %q: %w", p.cfg.Name, err)
		} else if inst == nil {
			inst, err = v.another(ctx)
		}
		if err == nil && inst.remote != nil && (!inst.remote.alive() || inst != again && inst.remote.moves()) {
			v.discard(inst) // Its process has ended while it was idle, or is to end.
			v.pool.lose(inst)
			continue
		}
		if err == nil {
			inst.swept = false
			if account != nil {
				// Those that had the instance before may have used the quota up.
				if err = account.Err(); err != nil {
					err = fmt.Errorf("plugin %q: %w", p.cfg.Name, err)
					v.pool.put(inst)
					break
				}
			}
			if v.tapes != nil {
				inst.record()
			}
			return inst, nil
		}
		if pinned == nil && p.current.Load() != v && ctx.Err() == nil && (errors.Is(err, ErrClosed) || errors.Is(err, ErrMemory)) {
			err = nil // It was replaced in between.
		} else if v.unavailable != nil && errors.Is(err, ErrClosed) && p.ended.Err() == nil {
			_, reason := p.State()
			err = &UnavailableError{Plugin: p.cfg.Name, Err: cmp.Or(reason, v.unavailable)}
		}
	}
	p.refused(ctx, err)
	return nil, err
}

// refused reports to the observer a caller that got no instance.
func (p *Plugin) refused(ctx context.Context, err error) {
	if p.cfg.Observer != nil {
		p.cfg.Observer.Refused(ctx, p.label, err)
	}
}

// another makes an instance, for which the pool has reserved room. If there is no memory
// for it, it waits for one of another caller.
func (v *version) another(ctx context.Context) (*Instance, error) {
	for {
		inst, full := v.instantiate(ctx)
		switch {
		case full == nil:
			return inst, nil
		case !errors.Is(full, ErrMemory):
			v.pool.forget()
			return nil, full
		}
		// Other instances of the plugin have memory, and will be free.
		inst, err := v.pool.waitInstead(ctx)
		switch {
		case errors.Is(err, errNoOther):
			return nil, full
		case err != nil:
			return nil, fmt.Errorf("plugin %q: %w; %w", v.plugin.cfg.Name, err, full)
		case inst != nil:
			return inst, nil
		}
	}
}

// Pin keeps a version of a plugin: calls through it run that version even after
// [Plugin.Swap]. A scheduling cycle that began on a version ends on it. It is
// safe for use by several goroutines.
type Pin struct{ version *version }

// Pin pins the version that serves new calls. The caller must release it: a
// version that was replaced is freed only after that.
func (p *Plugin) Pin() *Pin {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := p.current.Load()
	v.pins++
	return &Pin{v}
}

// Module returns the module of the version.
func (pin *Pin) Module() *Module { return pin.version.about }

// Current reports whether the version serves new calls.
func (pin *Pin) Current() bool { return pin.version.plugin.current.Load() == pin.version }

// Acquire is [Plugin.Acquire] for the version. The error is [ErrClosed] once the
// plugin is closed.
//
// again is nil for any instance, or one that the caller had before: Acquire then waits
// for that one while others have it, even if another is idle. It takes any if again is of
// another version, is held, or is gone since its guest trapped and could not be reset.
func (pin *Pin) Acquire(ctx context.Context, again *Instance) (*Instance, error) {
	return pin.version.plugin.acquire(ctx, pin.version, again)
}

// Release releases the version. The Pin must not be used afterwards.
func (pin *Pin) Release() {
	v := pin.version
	v.plugin.mu.Lock()
	defer v.plugin.mu.Unlock()
	if v.pins--; v.pins == 0 && v.replaced {
		v.pool.close()
	}
}

// Swap replaces the module by that of another source, whose digest must be sha256 unless that is
// empty. The new version is built and probed beside the running one; if anything about it fails,
// the running one goes on serving and Swap returns the error, as [Runtime.Load] does. A version
// that implements other functions is refused: the functions that a component has registered cannot
// change.
//
// Calls that begin after Swap has returned are served by the new version; those
// that began before end on the old one, which is freed after the last of them.
// A module with the digest of the running one changes nothing.
func (p *Plugin) Swap(ctx context.Context, source Source, sha256 string) error {
	return p.SwapIf(ctx, source, sha256, func() error { return nil })
}

// SwapIf acts as Swap, and calls final when nothing else can fail: the new version serves
// next. If final returns an error, the running version goes on serving, and the error is returned.
func (p *Plugin) SwapIf(ctx context.Context, source Source, sha256 string, final func() error) error {
	return p.swapIf(ctx, source, sha256, final, func() {
		if source.String() == p.source.String() {
			p.became(Serving, nil)
		}
	})
}

// swapIf acts as SwapIf, and calls swapped before the next swap can begin.
func (p *Plugin) swapIf(ctx context.Context, source Source, sha256 string, final func() error, swapped func()) error {
	if err := p.turn(ctx); err != nil {
		return fmt.Errorf("plugin %q: swap: wait for another swap: %w", p.cfg.Name, err)
	}
	defer func() { <-p.swapping }()
	if p.closed {
		return fmt.Errorf("plugin %q: swap: %w", p.cfg.Name, ErrClosed)
	}
	if err := checkSource(source, sha256); err != nil {
		return fmt.Errorf("plugin %q: swap: %w", p.cfg.Name, err)
	}
	_, err := p.build(ctx, source, sha256, final)
	if err == nil {
		swapped()
	}
	return err
}

// turn waits until no swap and no closing is under way, or ctx ends. A goroutine with the turn
// gives it back by a receive from p.swapping.
func (p *Plugin) turn(ctx context.Context) error {
	select {
	case p.swapping <- struct{}{}:
		return nil
	default:
	}
	select {
	case p.swapping <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// build makes the module of a source the current version, unless it is that already or final, which
// a first version does not have, returns an error. It notifies the observer, and returns the digest
// of the module, empty if it was not fetched. The caller has the turn, unless p is not shared yet.
func (p *Plugin) build(ctx context.Context, source Source, sha256 string, final func() error) (digest string, err error) {
	old := p.current.Load()
	b := BuildEvent{Plugin: p.label, Swap: old != nil && old.unavailable == nil, Start: time.Now()}
	module, digest, err := fetch(ctx, p.cfg.Name, source, sha256)
	if err == nil {
		b.Digest = digest
		same := old != nil && digest == old.digest
		if same {
			err = final()
		} else {
			err = p.replace(ctx, old, module, digest, p.shipping(source), final)
		}
		if err == nil {
			p.reference.Store(new(source.String()))
			Keep(source, digest)
			p.keepLast(source, module, digest)
		}
		if same {
			return digest, err
		}
	}
	b.Duration, b.Err = time.Since(b.Start), err
	p.tried.Store(&b)
	if p.cfg.Observer != nil {
		p.cfg.Observer.Built(ctx, b)
	}
	if err == nil {
		p.remember(digest, source)
		p.logBuilt(ctx, b, source)
	}
	return digest, err
}

// logBuilt logs the module that serves from now on. Errors are returned to a caller that logs them.
func (p *Plugin) logBuilt(ctx context.Context, b BuildEvent, source Source) {
	if p.cfg.Logger == nil {
		return
	}
	does := "loaded the module"
	if b.Swap {
		does = "swapped the module"
	}
	attrs := []slog.Attr{
		slog.String("plugin", p.cfg.Name), slog.String("digest", b.Digest),
		slog.String("reference", source.String()), slog.Duration("duration", b.Duration.Round(time.Millisecond)),
	}
	if level := p.isolation(); level != IsolationNone {
		attrs = append(attrs, slog.String("isolation", string(level)))
		if weaker := p.current.Load().compiled.weaker; len(weaker) != 0 {
			attrs = append(attrs, slog.String("weaker", strings.Join(weaker, "; ")))
		}
	}
	p.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, does, attrs...)
}

// replace builds a version and replaces old, which may be nil, by it, unless final returns an error.
func (p *Plugin) replace(ctx context.Context, old *version, module []byte, digest string, ship func(context.Context) ([]byte, error), final func() error) error {
	v, err := p.newVersion(ctx, module, digest, ship)
	if err != nil {
		return err
	}
	if old == nil {
		v.share(nil)
		p.current.Store(v)
		return nil
	}
	if has, had := v.implements(), old.implements(); has != had && old.unavailable == nil {
		return errors.Join(
			fmt.Errorf("plugin %q: swap: the new version implements %s, but the running version %s", p.cfg.Name, has, had),
			v.close(context.WithoutCancel(ctx)))
	}
	if err := final(); err != nil {
		return errors.Join(fmt.Errorf("plugin %q: swap: %w", p.cfg.Name, err), v.close(context.WithoutCancel(ctx)))
	}
	v.share(old)
	p.current.Store(v)
	if old.unavailable != nil {
		p.became(Serving, nil)
	}
	if p.breaker != nil {
		p.breaker.level.Store(0) // The new version has not failed.
	}
	p.retire(old)
	if p.adapter.Swapped != nil {
		p.adapter.Swapped()
	}
	return nil
}

// retire closes a version in the background, since its calls may take as long as
// Limits.Timeout.
func (p *Plugin) retire(v *version) {
	p.mu.Lock()
	p.retired = append(p.retired, v)
	if v.replaced = true; v.pins == 0 {
		v.pool.close()
	}
	p.mu.Unlock()
	go func() {
		<-v.pool.drained
		v.free()
		p.forget(v)
	}()
}

// forget removes a version that is gone from the list.
func (p *Plugin) forget(v *version) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retired = slices.DeleteFunc(p.retired, func(r *version) bool { return r == v })
}

// Close waits until ctx ends for a swap that is under way, turns new calls away with [ErrClosed],
// waits for the instances in use to be released, and frees everything. When ctx ends first, the
// error is that of ctx, and Close may be called again to go on waiting.
func (p *Plugin) Close(ctx context.Context) error {
	p.unfollow()
	if err := p.turn(ctx); err != nil {
		return fmt.Errorf("plugin %q: close: wait for a swap: %w", p.cfg.Name, err)
	}
	defer func() { <-p.swapping }()
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		p.retired = append(p.retired, p.current.Load())
	}
	open := slices.Clone(p.retired)
	p.mu.Unlock()

	for _, v := range open {
		if err := v.close(ctx); err != nil {
			return fmt.Errorf("plugin %q: close: wait for calls: %w", p.cfg.Name, err)
		}
		p.forget(v)
	}
	p.runtime.remove(p)
	stop := p.stopRecording
	p.stopRecording = func() error { return nil } // Close may be called again.
	if err := stop(); err != nil {
		return fmt.Errorf("plugin %q: close: %w", p.cfg.Name, err)
	}
	return nil
}
