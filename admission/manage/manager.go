package manage

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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

// Manager keeps the policies of an engine. It is safe for use by several
// goroutines.
type Manager struct {
	cfg   Config
	store *store // nil if nothing is kept.

	// changing serialises changes, which load modules and so may take seconds.
	changing sync.Mutex
	// closing counts policies that are out of service and not closed yet, and
	// followers.
	closing sync.WaitGroup

	mu      sync.RWMutex
	entries map[string]*entry
	next    int
	applied bool
	// wantsFile says that there is a configuration file.
	wantsFile bool
}

// The origins of policies.
const (
	fromFile = "file"
	fromAPI  = "api"
)

// entry is a policy that there should be. Its fields change under both locks.
type entry struct {
	name, origin string
	// place is where the policy stands among others.
	place  int
	plugin *PluginSpec // Of the last version that was asked for.
	group  *GroupSpec
	// policy is what the engine asks, also if it is disabled.
	policy   admission.Policy
	disabled bool
	// digest is that of the module in service, empty for a group.
	digest   string
	loadedAt time.Time
	// versions are those that were in service, the newest last.
	versions []Version
	// err is why the last change did not come into service.
	err error
	// unfollow ends the following of sources.
	unfollow context.CancelFunc
}

// built is what came of an entry's sources.
type built struct {
	policy admission.Policy
	// module is that of a plugin.
	module []byte
	// fetched are the digests of what the sources held, by the names of a group's
	// members, "" for a plugin; without those that could not be fetched.
	fetched map[string]string
}

// Version is a version of a plugin.
type Version struct {
	// Version is what whoever loaded it called it.
	Version string `json:"version,omitempty"`
	// Digest is the SHA-256 of the module, in hexadecimal.
	Digest   string     `json:"digest"`
	LoadedAt time.Time  `json:"loadedAt"`
	Spec     PluginSpec `json:"spec"`
	// module is nil if it is in the store.
	module []byte
}

var (
	// ErrNotFound says that there is no such policy or version.
	ErrNotFound = errors.New("not found")
	// ErrDeclared says that a policy is declared by the configuration file, and
	// so is not to be changed here.
	ErrDeclared = errors.New("is declared in the configuration file")
)

// New returns a manager without policies, or with those that its directory keeps.
// One that cannot be loaded is unavailable, and not an error; if not even its rules
// can be read, it guards every request until it is loaded anew or removed.
func New(ctx context.Context, cfg Config) (*Manager, error) {
	if cfg.Runtime == nil || cfg.Engine == nil {
		return nil, errors.New("manage policies: runtime or engine is missing")
	}
	if cfg.Versions == 0 {
		cfg.Versions = defaultVersions
	}
	m := &Manager{cfg: cfg, entries: map[string]*entry{}}
	if cfg.Directory == "" {
		return m, nil
	}
	var err error
	if m.store, err = openStore(cfg.Directory); err != nil {
		return nil, fmt.Errorf("manage policies: %w", err)
	}
	kept, broken, err := m.store.read()
	if err != nil {
		return nil, fmt.Errorf("manage policies: %w", err)
	}
	m.changing.Lock()
	defer m.changing.Unlock()
	for _, k := range kept {
		m.restore(ctx, k)
	}
	for name, err := range broken {
		// What it guards is not known, so it is everything.
		m.log(slog.LevelError, "read what the management API loaded", "policy", name, "err", err)
		m.refuse(&entry{name: name, origin: fromAPI, plugin: &PluginSpec{Name: name}, loadedAt: time.Now()}, err)
	}
	m.publish()
	return m, nil
}

// restore brings a policy back that was kept.
func (m *Manager) restore(ctx context.Context, k kept) {
	e := &entry{name: k.Spec.Name, origin: fromAPI, plugin: &k.Spec, disabled: k.Disabled, versions: k.Versions}
	module, err := m.store.module(k.Digest)
	var policy admission.Policy
	if err == nil {
		policy, err = m.loadPlugin(ctx, e.plugin, module)
	}
	if err != nil {
		policy = m.unavailable(e, err)
		m.log(slog.LevelError, "load policy", "policy", e.name, "err", err)
	}
	e.policy, e.digest, e.err, e.loadedAt = policy, k.Digest, err, time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next++
	e.place = m.next
	m.entries[e.name] = e
}

func (m *Manager) log(level slog.Level, msg string, args ...any) {
	if m.cfg.Logger != nil {
		m.cfg.Logger.Log(context.Background(), level, msg, args...)
	}
}

// Ready returns why the engine has not what the configuration file says, nil when
// it has had a look at every policy of it. A policy that was refused is no reason:
// it fails for itself.
func (m *Manager) Ready() error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.wantsFile && !m.applied {
		return errors.New("policies are being loaded")
	}
	return nil
}

// loadPlugin makes a plugin of a module.
func (m *Manager) loadPlugin(ctx context.Context, s *PluginSpec, module []byte) (admission.Policy, error) {
	cfg, err := m.pluginConfig(s, module)
	if err != nil {
		return nil, err
	}
	return admission.Load(ctx, m.cfg.Runtime, cfg)
}

// unavailable stands for a policy that cannot be loaded. nil if not even its rules
// can be used.
func (m *Manager) unavailable(e *entry, reason error) admission.Policy {
	rules, mutates := Rules{}, false
	if e.plugin != nil {
		rules, mutates = e.plugin.Rules, e.plugin.AllowedToMutate
	} else {
		rules = e.group.Rules
	}
	policyRules, err := rules.policyRules()
	if err != nil {
		return nil
	}
	policy, err := admission.Unavailable(e.name, m.complete(policyRules), mutates, reason)
	if err != nil {
		return nil
	}
	return policy
}

// build makes the policy of an entry from its sources. data is what that of a plugin
// holds, nil if it is to be fetched. What was fetched is in b also if there is an
// error.
func (m *Manager) build(ctx context.Context, e *entry, data []byte) (b built, err error) {
	if e.plugin == nil {
		return m.buildGroup(ctx, e.group)
	}
	if data == nil {
		if data, err = m.fetch(ctx, e.plugin); err != nil {
			return built{}, err
		}
	}
	b.fetched = map[string]string{"": digestOf(data)}
	if b.module, err = unpack(data); err != nil {
		return b, fmt.Errorf("plugin %q: %w", e.name, err)
	}
	b.policy, err = m.loadPlugin(ctx, e.plugin, b.module)
	return b, err
}

func (m *Manager) buildGroup(ctx context.Context, g *GroupSpec) (b built, err error) {
	rules, err := g.policyRules()
	if err != nil {
		return b, err
	}
	b.fetched = map[string]string{}
	members := map[string]*admission.Plugin{}
	var errs []error
	for _, alias := range slices.Sorted(maps.Keys(g.Members)) {
		spec := g.Members[alias]
		data, err := m.fetch(ctx, &spec)
		if err == nil {
			b.fetched[alias] = digestOf(data)
			data, err = unpack(data)
		}
		if err == nil {
			var policy admission.Policy
			if policy, err = m.loadPlugin(ctx, &spec, data); err == nil {
				members[alias] = policy.(*admission.Plugin)
				continue
			}
		}
		errs = append(errs, fmt.Errorf("group %q: member %s: %w", g.Name, alias, err))
	}
	if err = errors.Join(errs...); err == nil {
		b.policy, err = admission.NewGroup(admission.GroupConfig{
			Name: g.Name, Members: members, Expression: g.Expression, Message: g.Message, PolicyRules: m.complete(rules),
		})
	}
	if err != nil {
		b.policy = nil
		for _, p := range members {
			if err := p.Close(context.WithoutCancel(ctx)); err != nil {
				m.log(slog.LevelError, "close policy", "policy", p.Name(), "err", err)
			}
		}
		return b, err
	}
	return b, nil
}

// install puts a policy into the place of the one that an entry has. It counts
// with the next publish; what it returns is to be closed after that.
func (m *Manager) install(e *entry, policy admission.Policy, module []byte) (old admission.Policy) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old, e.policy, e.err, e.loadedAt = e.policy, policy, nil, time.Now()
	if e.plugin != nil {
		e.digest = digestOf(module)
		m.remember(e, module)
	}
	if _, ok := m.entries[e.name]; !ok {
		m.next++
		e.place = m.next
		m.entries[e.name] = e
	}
	return old
}

// remember adds the version in service to those of an entry. mu is held.
func (m *Manager) remember(e *entry, module []byte) {
	spec := *e.plugin
	spec.Source = withoutBytes(spec.Source)
	v := Version{Version: spec.Version, Digest: e.digest, LoadedAt: e.loadedAt, Spec: spec, module: module}
	e.versions = slices.DeleteFunc(e.versions, func(o Version) bool {
		return o.Digest == v.Digest && o.Version == v.Version && equalSpecs(o.Spec, v.Spec)
	})
	e.versions = append(e.versions, v)
	if n := len(e.versions) - m.cfg.Versions; n > 0 {
		e.versions = slices.Delete(e.versions, 0, n)
	}
}

// withoutBytes leaves the module out of a source: a version has it.
func withoutBytes(s *Source) *Source {
	if s == nil || len(s.Bytes) == 0 {
		return s
	}
	return nil
}

func equalSpecs(a, b any) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && string(x) == string(y)
}

func digestOf(module []byte) string {
	sum := sha256.Sum256(module)
	return hex.EncodeToString(sum[:])
}

// publish gives the engine the policies that there are, and closes the others when
// no request sees them any more.
func (m *Manager) publish(gone ...admission.Policy) {
	m.mu.RLock()
	entries := make([]*entry, 0, len(m.entries))
	for _, e := range m.entries {
		if e.policy != nil {
			entries = append(entries, e)
		}
	}
	m.mu.RUnlock()
	slices.SortFunc(entries, func(a, b *entry) int { return cmp.Compare(a.place, b.place) })
	policies := make([]admission.Policy, len(entries))
	for i, e := range entries {
		if policies[i] = e.policy; e.disabled {
			policies[i] = admission.Disabled(e.policy)
		}
	}
	drained := m.cfg.Engine.Swap(policies...)
	for _, policy := range gone {
		if policy == nil {
			continue
		}
		m.closing.Go(func() {
			<-drained
			ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
			defer cancel()
			if err := policy.Close(ctx); err != nil {
				m.log(slog.LevelError, "close policy", "policy", policy.Name(), "err", err)
			}
		})
	}
}

// refuse notes that a change of an entry failed. What is in service stays, and if
// nothing is, something stands for it.
func (m *Manager) refuse(e *entry, reason error) {
	m.log(slog.LevelError, "policy is refused", "policy", e.name, "err", reason)
	m.mu.Lock()
	defer m.mu.Unlock()
	e.err = reason
	if e.policy == nil {
		e.policy = m.unavailable(e, reason)
	}
	if _, ok := m.entries[e.name]; !ok {
		m.next++
		e.place = m.next
		m.entries[e.name] = e
	}
}

// Apply makes the policies of the file those of the engine, beside those that were
// loaded by the API. What has not changed is left alone. Errors are those of the
// policies that were refused, joined; the others are in service.
func (m *Manager) Apply(ctx context.Context, f *File) error {
	m.changing.Lock()
	defer m.changing.Unlock()
	var errs []error
	var gone []admission.Policy
	declared := map[string]bool{}
	declare := func(next *entry) {
		declared[next.name] = true
		m.mu.RLock()
		e := m.entries[next.name]
		m.mu.RUnlock()
		switch {
		case e != nil && e.origin == fromAPI:
			errs = append(errs, fmt.Errorf("policy %q: was loaded by the management API already", next.name))
			return
		case e != nil && e.err == nil && equalSpecs(e.plugin, next.plugin) && equalSpecs(e.group, next.group):
			return
		}
		b, err := m.build(ctx, next, nil)
		if e != nil {
			e.stopFollowing()
			if err == nil || e.plugin == nil != (next.plugin == nil) {
				m.mu.Lock()
				e.plugin, e.group = next.plugin, next.group
				m.mu.Unlock()
			}
		} else {
			e = next
		}
		m.mu.Lock()
		e.disabled = next.disabled
		m.mu.Unlock()
		if err != nil {
			errs = append(errs, err)
			m.refuse(e, err)
		} else {
			gone = append(gone, m.install(e, b.policy, b.module))
			m.log(slog.LevelInfo, "policy is in service", "policy", e.name, "digest", e.digest)
		}
		m.follow(ctx, e, next, b)
	}
	for i := range f.Plugins {
		s := &f.Plugins[i]
		declare(&entry{name: s.Name, origin: fromFile, plugin: s, disabled: !enabled(s.Enabled)})
	}
	for i := range f.Groups {
		g := &f.Groups[i]
		declare(&entry{name: g.Name, origin: fromFile, group: g, disabled: !enabled(g.Enabled)})
	}
	m.mu.Lock()
	for name, e := range m.entries {
		if e.origin == fromFile && !declared[name] {
			gone = append(gone, m.drop(e))
		}
	}
	m.applied = true
	m.mu.Unlock()
	m.publish(gone...)
	return errors.Join(errs...)
}

// drop takes an entry away. mu is held.
func (m *Manager) drop(e *entry) (gone admission.Policy) {
	e.stopFollowing()
	delete(m.entries, e.name)
	m.log(slog.LevelInfo, "policy is removed", "policy", e.name)
	if m.cfg.Forget != nil {
		m.cfg.Forget(e.name)
	}
	return e.policy
}

func (e *entry) stopFollowing() {
	if e.unfollow != nil {
		e.unfollow()
		e.unfollow = nil
	}
}

// follow keeps an entry at what its sources hold. wanted is what it should be,
// which it is not if that was refused, and b what was fetched for it.
func (m *Manager) follow(ctx context.Context, e, wanted *entry, b built) {
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	e.unfollow = stop
	one := func(s *PluginSpec, applied string) {
		if s.SHA256 != "" || len(s.Source.Bytes) != 0 {
			return // What is pinned does not change.
		}
		m.closing.Go(func() {
			err := host.Follow(following, m.source(s.Source), host.FollowOptions{
				Interval: m.cfg.Interval, Applied: applied,
				Failed: func(err error) { m.log(slog.LevelWarn, "follow module", "policy", e.name, "err", err) },
			}, func(ctx context.Context, data []byte, _ string) error { return m.rebuild(ctx, e, wanted, data) })
			if err != nil {
				m.log(slog.LevelWarn, "follow module", "policy", e.name, "err", err)
			}
		})
	}
	if wanted.plugin != nil {
		one(wanted.plugin, b.fetched[""])
		return
	}
	for alias, spec := range wanted.group.Members {
		one(&spec, b.fetched[alias])
	}
}

// rebuild builds an entry again whose source has changed; data is what the source
// of a plugin, or of one of a group's members, holds now.
func (m *Manager) rebuild(ctx context.Context, e, wanted *entry, data []byte) error {
	m.changing.Lock()
	defer m.changing.Unlock()
	if ctx.Err() != nil {
		return ctx.Err() // It is another by now.
	}
	b, err := m.build(ctx, wanted, data)
	if err != nil {
		m.refuse(e, err)
		return err
	}
	m.mu.Lock()
	e.plugin, e.group = wanted.plugin, wanted.group
	m.mu.Unlock()
	m.publish(m.install(e, b.policy, b.module))
	m.log(slog.LevelInfo, "policy is in service", "policy", e.name, "digest", e.digest)
	return nil
}

// FollowFile keeps the policies at what a configuration file declares, until ctx
// ends: it applies the file at once, and again whenever it changes. A file that
// cannot be read leaves the policies as they are, also if it is not there at first.
// The error is that of the first time; what goes wrong later is logged. [Manager.Ready]
// has nothing against the manager once it was applied.
func (m *Manager) FollowFile(ctx context.Context, path string) error {
	m.ExpectFile()
	apply := func(ctx context.Context, data []byte) error {
		f, err := ParseFile(data)
		if err != nil {
			return err
		}
		return m.Apply(ctx, f)
	}
	applied := ""
	data, first := host.File(path).Fetch(ctx)
	if first != nil {
		first = fmt.Errorf("read configuration: %w", first)
	} else {
		applied, first = digestOf(data), apply(ctx, data)
	}
	m.closing.Go(func() {
		err := host.Follow(ctx, host.File(path), host.FollowOptions{
			Interval: m.cfg.Interval, Applied: applied,
			Failed: func(err error) { m.log(slog.LevelError, "follow configuration", "file", path, "err", err) },
		}, func(ctx context.Context, data []byte, _ string) error {
			err := apply(ctx, data)
			if err == nil {
				m.log(slog.LevelInfo, "configuration is applied", "file", path)
			}
			return err
		})
		if err != nil {
			m.log(slog.LevelError, "follow configuration", "file", path, "err", err)
		}
	})
	return first
}

// ExpectFile makes [Manager.Ready] wait for a configuration file that FollowFile
// is about to apply, which may take as long as modules take to be fetched and
// compiled: a server may begin to listen meanwhile.
func (m *Manager) ExpectFile() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wantsFile = true
}

// Close takes all policies from the engine, closes them and waits for that until
// ctx ends. The context of FollowFile must have ended.
func (m *Manager) Close(ctx context.Context) error {
	m.changing.Lock()
	m.mu.Lock()
	var gone []admission.Policy
	for _, e := range m.entries {
		e.stopFollowing()
		gone = append(gone, e.policy)
	}
	clear(m.entries)
	m.mu.Unlock()
	m.publish(gone...)
	m.changing.Unlock()
	closed := make(chan struct{})
	go func() {
		m.closing.Wait()
		close(closed)
	}()
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close policies: %w", ctx.Err())
	}
}
