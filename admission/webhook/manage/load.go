package manage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
)

// pinned is the source of a module that was chosen by the API. It holds the module only as long as
// neither the directory nor the runtime keeps it.
type pinned struct {
	manager *Manager
	digest  string
	// origin is the source from which the module came, nil if it was sent.
	origin host.Source

	mu     sync.Mutex
	module []byte
}

// pin returns the source of a module by its digest. module and origin may be nil.
func (m *Manager) pin(digest string, module []byte, origin host.Source) *pinned {
	if module != nil && m.cfg.Runtime.KeepModule(module) {
		module = nil
	}
	return &pinned{manager: m, digest: digest, module: module, origin: origin}
}

// String implements [host.Source].
func (p *pinned) String() string {
	if p.origin != nil {
		return p.origin.String()
	}
	return "module " + p.digest
}

// Fetch implements [host.Source].
func (p *pinned) Fetch(ctx context.Context) ([]byte, error) {
	p.mu.Lock()
	module := p.module
	p.mu.Unlock()
	if module != nil {
		return module, nil
	}
	module, err := p.manager.store.module(p.digest)
	if err == nil {
		return module, nil
	}
	kept, keptErr := p.manager.cfg.Runtime.KeptModule(ctx, p.digest)
	if keptErr == nil {
		return kept, nil
	}
	if p.manager.store == nil {
		err = keptErr
	}
	if p.origin == nil {
		return nil, err
	}
	module, err = p.origin.Fetch(ctx)
	if err == nil && digestOf(module) != p.digest {
		err = fmt.Errorf("%s has another module by now than %s, and neither a directory of the server nor its cache has kept that one", p.origin, p.digest)
	}
	return module, err
}

// holds reports whether the module is in memory.
func (p *pinned) holds() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.module != nil
}

// drop frees the module, which is in the store.
func (p *pinned) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.module = nil
}

// built is a loaded version of a policy.
type built struct {
	policy  admission.Policy
	members []*admission.Plugin
	// failed are the modules that could not be loaded, by the names of a group's members or by ""
	// for a plugin.
	failed map[string]*host.LoadError
	// took is the time to load it.
	took time.Duration
}

// logged returns the attributes of a log line about a version: those of its module, unless it is a
// group, whose members have lines of their own.
func (b *built) logged(name string) []any {
	attrs := []any{"policy", name, "duration", b.took.Round(time.Millisecond)}
	if p, ok := b.policy.(*admission.Plugin); ok {
		return append(attrs, "digest", p.Digest(), "reference", p.Guest().Stats().Reference)
	}
	if load := b.failed[""]; load != nil {
		return append(attrs, "digest", load.SHA256, "reference", load.Reference)
	}
	return attrs
}

// build loads a version. b.failed is set if there is an error that may pass.
func (m *Manager) build(ctx context.Context, w *wanted) (b built, err error) {
	begun := time.Now()
	defer func() { b.took = time.Since(begun) }()
	if w.mistake != nil {
		return b, w.mistake
	}
	b.failed = map[string]*host.LoadError{}
	failed := func(alias string, err error) {
		if load, ok := errors.AsType[*host.LoadError](err); ok {
			b.failed[alias] = load
		}
	}
	if w.plugin != nil {
		plugin, err := admission.Load(ctx, m.cfg.Runtime, m.pluginConfig(w.plugin, w.pinned))
		if err != nil {
			failed("", err)
			return b, err // And not a policy that is a nil plugin.
		}
		b.policy = plugin
		return b, nil
	}
	g := w.group
	members := map[string]*admission.Plugin{}
	var errs []error
	for _, alias := range slices.Sorted(maps.Keys(g.Members)) {
		spec := g.Members[alias]
		plugin, err := admission.Load(ctx, m.cfg.Runtime, m.pluginConfig(&spec, nil))
		if err != nil {
			failed(alias, err)
			errs = append(errs, fmt.Errorf("group %q: member %s: %w", g.Name, alias, err))
			continue
		}
		members[alias] = plugin
		b.members = append(b.members, plugin)
	}
	if err = errors.Join(errs...); err == nil {
		var group *admission.Group
		if group, err = admission.NewGroup(admission.GroupConfig{
			Name: g.Name, Members: members, Expression: g.Expression, Message: g.Message, PolicyRules: m.complete(g.PolicyRules),
		}); err == nil {
			b.policy = group
		}
	}
	if err != nil {
		for _, p := range b.members {
			m.close(p)
		}
		b.members = nil
	}
	return b, err
}

// slow is the time after which a load no longer counts among those that may run at the same time.
const slow = 2 * time.Second

// begin waits until few enough loads run, and until no other version of the policy is being loaded.
// end must be called after the load.
func (m *Manager) begin(ctx context.Context, e *entry) (end func(), err error) {
	select {
	case e.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case m.slots <- struct{}{}:
	case <-ctx.Done():
		<-e.turn
		return nil, context.Cause(ctx)
	}
	free := sync.OnceFunc(func() { <-m.slots })
	early := time.AfterFunc(slow, free)
	return func() {
		early.Stop()
		free()
		<-e.turn
	}, nil
}

// install puts a loaded version of a policy into service, unless final, which may be nil, returns an
// error. mu must be held. The next publish makes it effective; the returned policy must be closed
// after that.
func (m *Manager) install(e *entry, w *wanted, b built, final func() error) (old admission.Policy, err error) {
	if e.removed || m.closed {
		return nil, errors.Join(errSuperseded, m.closedErr())
	}
	if final != nil {
		if err := final(); err != nil {
			return nil, err
		}
	}
	old = e.policy
	e.policy, e.members, e.wanted, e.serving = b.policy, b.members, w, w
	e.err, e.gap, e.unknown, e.loadedAt = nil, nil, false, time.Now()
	e.digest = ""
	if p, ok := b.policy.(*admission.Plugin); ok {
		e.digest = p.Digest()
		m.remember(e)
	}
	return old, nil
}

// served logs a policy that has come into service. Of a plugin, the host has logged its module.
func (m *Manager) served(e *entry, b *built) {
	m.warn(b.policy)
	level := slog.LevelInfo
	if _, ok := b.policy.(*admission.Plugin); ok {
		level = slog.LevelDebug
	}
	m.log(level, "policy is in service", b.logged(e.name)...)
}

// warn logs the match warnings of a policy that comes into service.
func (m *Manager) warn(policy admission.Policy) {
	for _, warning := range admission.Describe(policy).MatchWarnings {
		m.log(slog.LevelWarn, "match may not be what is meant", "policy", policy.Name(), "warning", warning)
	}
}

// remember adds the version in service to those of an entry. mu must be held.
func (m *Manager) remember(e *entry) {
	spec := *e.serving.plugin
	spec.Module.Bytes = nil
	v := Version{Version: spec.Version, Digest: e.digest, LoadedAt: e.loadedAt, Spec: spec, pinned: e.serving.pinned}
	if v.pinned == nil {
		source, _ := m.cfg.Runtime.Source(e.serving.plugin.Module, "module") // It was opened before.
		v.pinned = m.pin(e.digest, nil, source)
	}
	key := keyOf(v.Spec)
	e.versions = slices.DeleteFunc(e.versions, func(o Version) bool {
		return o.Digest == v.Digest && o.Version == v.Version && keyOf(o.Spec) == key
	})
	e.versions = append(e.versions, v)
	if n := len(e.versions) - m.cfg.Versions; n > 0 {
		e.versions = slices.Delete(e.versions, 0, n)
	}
}

// swapped records that a plugin that follows its module serves another one.
func (m *Manager) swapped(name string) {
	m.mu.Lock()
	e := m.entries[name]
	if e == nil {
		m.mu.Unlock()
		return
	}
	p, ok := e.policy.(*admission.Plugin)
	if !ok || e.serving == nil || p.Digest() == e.digest {
		m.mu.Unlock()
		return // A version that is not installed yet.
	}
	e.digest, e.loadedAt = p.Digest(), time.Now()
	m.remember(e)
	m.mu.Unlock()
}

// refuse records that w could not be loaded. The version in service stays, and requests that only w
// would guard get a replacement. The next publish makes that effective.
func (m *Manager) refuse(e *entry, w *wanted, b *built, reason error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.err == nil || e.err.Error() != reason.Error() {
		m.log(slog.LevelError, "policy is refused", append(b.logged(e.name), "err", reason)...)
	}
	e.err = reason
	if e.serving == nil {
		e.policy, e.unknown = m.unavailable(e.name, w, reason)
	} else {
		e.gap = m.uncovered(e, w, reason)
	}
}

// bring loads the wanted version of a policy of the file, and tries again in the background if its
// modules cannot be loaded. The error is that of the first attempt.
func (m *Manager) bring(ctx context.Context, e *entry, w *wanted) error {
	failed, err := m.attempt(ctx, e, w)
	if len(failed) != 0 {
		m.mu.Lock()
		if !m.closed {
			m.working.Go(func() { m.retry(ctx, e, w, failed) })
		}
		m.mu.Unlock()
	}
	return err
}

// attempt tries to put the wanted version of a policy into service. The error is errSuperseded if
// that is no longer the wanted one. failed are the modules that could not be loaded.
func (m *Manager) attempt(ctx context.Context, e *entry, w *wanted) (failed map[string]*host.LoadError, err error) {
	end, err := m.begin(ctx, e)
	if err != nil {
		return nil, errors.Join(errSuperseded, err)
	}
	defer end()
	b, err := m.build(ctx, w)
	if ctx.Err() != nil {
		if b.policy != nil {
			m.close(b.policy)
		}
		return nil, errors.Join(errSuperseded, err)
	}
	if err != nil {
		m.mu.Lock()
		if e.removed || e.wanted != w {
			m.mu.Unlock()
			return nil, errors.Join(errSuperseded, err)
		}
		e.disabled, e.passing = !m.enables(e, w), len(b.failed) != 0
		m.mu.Unlock()
		m.refuse(e, w, &b, err)
		m.publish()
		return b.failed, err
	}
	m.mu.Lock()
	current := func() error {
		if e.wanted != w {
			return errSuperseded
		}
		return nil
	}
	old, err := m.install(e, w, b, current)
	if err == nil {
		e.disabled = !m.enables(e, w)
	}
	m.mu.Unlock()
	if err != nil {
		m.close(b.policy)
		return nil, err
	}
	m.publish(old)
	m.served(e, &b)
	return nil, nil
}

// enables reports whether a policy is to be asked: by the API, or by a version of it. mu must be
// held.
func (m *Manager) enables(e *entry, w *wanted) bool {
	if e.override != nil && e.override.Enabled != nil {
		return *e.override.Enabled
	}
	return w.enabled
}

// retry tries to load a version until it is in service or no longer wanted: whenever its modules may
// have changed, unless they are those that were refused. Sources that do not answer, or have the
// wrong module, may have the right one later.
func (m *Manager) retry(ctx context.Context, e *entry, w *wanted, failed map[string]*host.LoadError) {
	sources := map[string]host.Source{}
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	hints := make(chan struct{}, 1)
	for alias, spec := range w.plugins() {
		source, err := m.cfg.Runtime.Source(spec.Module, "module")
		if err != nil {
			m.log(slog.LevelError, "policy is refused", "policy", e.name, "err", err)
			return
		}
		sources[alias] = source
		if watcher, ok := source.(host.Watcher); ok {
			watching.Go(func() {
				// Without a watch there is the interval.
				_ = watcher.Watch(ctx, func() {
					select {
					case hints <- struct{}{}:
					default:
					}
				})
			})
		}
	}
	tick := time.NewTicker(m.cfg.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-hints:
		}
		if changed, err := m.changed(ctx, sources, failed); err != nil || !changed {
			continue // The reason of the policy stands.
		}
		again, err := m.attempt(ctx, e, w)
		if err == nil || errors.Is(err, errSuperseded) {
			return
		}
		failed = again
	}
}

// changed reports whether all modules can be fetched, and one of them may be loaded by now. Modules
// that were not refused may be.
func (m *Manager) changed(ctx context.Context, sources map[string]host.Source, failed map[string]*host.LoadError) (bool, error) {
	var errs []error
	changed := true
	for alias, source := range sources {
		of := failed[alias]
		if of == nil || of.SHA256 == "" && len(sources) == 1 {
			continue // It was loaded, or the load will fetch it.
		}
		module, err := source.Fetch(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("fetch module of %s: %w", source, err))
		} else if of.SHA256 != "" && digestOf(module) == of.SHA256 {
			changed = false
		}
	}
	return changed, errors.Join(errs...)
}

// plugins returns the plugins of a version by the names of a group's members, or by "".
func (w *wanted) plugins() map[string]PluginSpec {
	if w.plugin != nil {
		return map[string]PluginSpec{"": *w.plugin}
	}
	return w.group.Members
}
