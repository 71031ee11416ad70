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
	"runtime"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/serving"
)

// Manager manages the policies of an engine. It is safe for use by several goroutines.
type Manager struct {
	cfg   Config
	store *store // nil without a directory.

	// changing serialises changes, which may take seconds to load modules. It guards closed, which
	// Close sets.
	changing sync.Mutex
	closed   bool
	// closing counts policies that are out of service but not closed yet, and followers.
	closing sync.WaitGroup

	mu      sync.RWMutex
	entries map[string]*entry
	next    int
	applied bool
	// wantsFile reports whether there is a configuration file, and fileErr is the reason that its
	// policies are not in service.
	wantsFile bool
	fileErr   error
	// waiting is a file that was refused because the management API's policies have some of its
	// names. It is guarded by changing.
	waiting *File
}

// The origins of policies.
const (
	fromFile = "file"
	fromAPI  = "api"
)

// entry is a declared or loaded policy. Both locks must be held to change its fields.
type entry struct {
	name, origin string
	// place is the position of the policy among others.
	place int
	// plugin or group is the spec in service, or the wanted one if none ever was.
	plugin *PluginSpec
	group  *GroupSpec
	// policy is the policy in the engine, even if it is disabled.
	policy   admission.Policy
	disabled bool
	// standIn reports whether policy only represents one that never came into service, and unknown
	// whether the rules of that one are unknown.
	standIn, unknown bool
	// gap guards the requests that policy does not guard and the version that could not be loaded
	// would. It is nil if there are none.
	gap admission.Policy
	// digest is the digest of the module in service, empty for a group.
	digest   string
	loadedAt time.Time
	// versions are the versions that were in service, the newest last.
	versions []Version
	// err is the reason that the last change did not come into service.
	err error
	// unfollow ends the following of sources.
	unfollow context.CancelFunc
}

// built is the result of building an entry from its sources.
type built struct {
	policy admission.Policy
	// module is the module of a plugin.
	module []byte
	// fetched holds the contents of the sources by the names of a group's members, or by "" for a
	// plugin. Sources that could not be fetched are missing.
	fetched map[string]fetched
}

// fetched is the digest of a source's content.
type fetched struct {
	source host.Source
	digest string
}

// keep reports to the sources that their content is in use.
func (b *built) keep() {
	for _, f := range b.fetched {
		host.Keep(f.source, f.digest)
	}
}

// Version is a version of a plugin.
type Version struct {
	// Version is the name given by the client that loaded it.
	Version string `json:"version,omitempty"`
	// Digest is the SHA-256 of the module, in hexadecimal.
	Digest   string     `json:"digest"`
	LoadedAt time.Time  `json:"loadedAt"`
	Spec     PluginSpec `json:"spec"`
	// module is nil if it is in the store.
	module []byte
}

var (
	// ErrNotFound is returned if a policy or version does not exist.
	ErrNotFound = errors.New("not found")
	// ErrDeclared is returned if a policy is declared by the configuration file, and so cannot be
	// changed here.
	ErrDeclared = errors.New("is declared in the configuration file")
)

// New returns a manager with the policies in its directory, if it has one. A policy that cannot be
// loaded is unavailable, which is not an error. If its rules are also unknown, it guards every
// request, and [Manager.Ready] returns an error, until the policy is loaded again or removed.
func New(ctx context.Context, cfg Config) (*Manager, error) {
	if cfg.Runtime == nil || cfg.Engine == nil {
		return nil, errors.New("manage policies: runtime or engine is missing")
	}
	if cfg.Versions == 0 {
		cfg.Versions = defaultVersions
	}
	if cfg.Interval == 0 {
		cfg.Interval = host.DefaultFollowInterval
	}
	m := &Manager{cfg: cfg, entries: map[string]*entry{}}
	if cfg.Directory == "" {
		return m, nil
	}
	var err error
	if m.store, err = openStore(cfg.Directory); err != nil {
		return nil, fmt.Errorf("manage policies: state directory %s: %w", cfg.Directory, err)
	}
	kept, broken, err := m.store.read()
	if err != nil {
		m.store.close()
		return nil, fmt.Errorf("manage policies: state directory %s: %w", cfg.Directory, err)
	}
	m.changing.Lock()
	defer m.changing.Unlock()
	for _, k := range kept {
		m.restore(ctx, k)
	}
	for _, name := range slices.Sorted(maps.Keys(broken)) {
		e := &entry{name: name, origin: fromAPI, loadedAt: time.Now()}
		m.refuse(e, e, broken[name])
	}
	m.publish()
	return m, nil
}

// restore restores a policy from the store.
func (m *Manager) restore(ctx context.Context, k kept) {
	e := &entry{name: k.Spec.Name, origin: fromAPI, plugin: &k.Spec, digest: k.Digest, disabled: k.Disabled, versions: k.Versions, loadedAt: time.Now()}
	module, err := m.store.module(k.Digest)
	if err == nil {
		e.policy, err = m.loadPlugin(ctx, e.plugin, module)
	}
	if err != nil {
		m.refuse(e, e, err)
		return
	}
	m.warn(e.policy)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.add(e)
}

// add adds an entry and sets its place. mu must be held.
func (m *Manager) add(e *entry) {
	if _, ok := m.entries[e.name]; !ok {
		m.next++
		e.place = m.next
		m.entries[e.name] = e
	}
}

func (m *Manager) log(level slog.Level, msg string, args ...any) {
	if m.cfg.Logger != nil {
		m.cfg.Logger.Log(context.Background(), level, msg, args...)
	}
}

// Ready returns the reason that requests should not reach the engine: the configuration file is not
// in service, or the rules of a policy, which it names, are unknown. A policy that is only
// unavailable is not a reason, since only its requests fail. A refused file is not a reason either
// if an earlier one is in service.
func (m *Manager) Ready() error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var errs []error
	switch {
	case !m.wantsFile || m.applied:
	case m.fileErr != nil:
		errs = append(errs, fmt.Errorf("policies are not in service: %w", m.fileErr))
	default:
		errs = append(errs, errors.New("policies are being loaded"))
	}
	for _, name := range slices.Sorted(maps.Keys(m.entries)) {
		if e := m.entries[name]; e.unknown && !e.disabled {
			errs = append(errs, fmt.Errorf("policy %q guards every request, because its rules are not known: %w", name, e.err))
		}
	}
	return errors.Join(errs...)
}

// ConfigErr returns an error if the configuration file is not in service as it was read last: it is
// being loaded, could not be read, or was refused, and an earlier one may be in service. It returns
// nil for a file in service, also if some of its policies cannot be loaded, and without a file.
func (m *Manager) ConfigErr() error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.fileErr == nil && m.wantsFile && !m.applied {
		return errors.New("policies are being loaded")
	}
	return m.fileErr
}

// loadPlugin loads a plugin from a module.
func (m *Manager) loadPlugin(ctx context.Context, s *PluginSpec, module []byte) (admission.Policy, error) {
	plugin, err := admission.Load(ctx, m.cfg.Runtime, m.pluginConfig(s, module))
	if err != nil {
		return nil, err // And not a policy that is a nil plugin.
	}
	return plugin, nil
}

// unavailable returns the replacement for a policy that cannot be loaded. unknown reports whether
// its rules are unknown, so that the replacement guards every request.
func (m *Manager) unavailable(e *entry, reason error) (policy admission.Policy, unknown bool) {
	rules, mutates, err := m.rulesOf(e)
	if converts := e.converts(); err == nil && len(converts) != 0 {
		return admission.UnavailableConverter(e.name, converts, rules, reason), false
	}
	if err == nil {
		policy, err = admission.Unavailable(e.name, rules, mutates, reason)
	}
	if err != nil {
		// The zero rules are always valid.
		policy, _ = admission.Unavailable(e.name, m.complete(admission.PolicyRules{}), true, reason)
	}
	return policy, err != nil
}

// uncovered returns a policy for the requests that wanted guards and the policy in service does
// not, nil if there are none.
func (m *Manager) uncovered(e, wanted *entry, reason error) admission.Policy {
	rules, mutates, err := m.rulesOf(wanted)
	if converts := wanted.converts(); err == nil && len(converts) != 0 {
		missing := slices.DeleteFunc(slices.Clone(converts), func(kind metav1.GroupKind) bool { return slices.Contains(e.converts(), kind) })
		if len(missing) == 0 {
			return nil
		}
		return admission.UnavailableConverter(e.name, missing, rules, reason)
	}
	old, mutated, oldErr := m.rulesOf(e)
	if err != nil || oldErr == nil && len(e.converts()) == 0 && mutates == mutated && equalSpecs(old.Match, rules.Match) && old.Mode == rules.Mode && old.FailurePolicy == rules.FailurePolicy {
		return nil // A file with wrong rules is refused as a whole.
	}
	policy, err := admission.Uncovered(e.policy, rules, mutates, reason)
	if err != nil {
		return nil
	}
	return policy
}

// converts returns the kinds that the plugin of an entry converts, none if it decides.
func (e *entry) converts() []metav1.GroupKind {
	if e.plugin == nil {
		return nil
	}
	return e.plugin.Converts
}

// rulesOf returns the rules of an entry, and reports whether it may mutate.
func (m *Manager) rulesOf(e *entry) (rules admission.PolicyRules, mutates bool, err error) {
	switch {
	case e.plugin != nil:
		rules, mutates = e.plugin.PolicyRules, e.plugin.AllowedToMutate
	case e.group != nil:
		rules = e.group.PolicyRules
	default:
		err = errors.New("there are no rules")
	}
	return m.complete(rules), mutates, err
}

// build builds the policy of an entry from its sources. data is the content of a plugin's source,
// nil to fetch it. b has the fetched contents even if there is an error.
func (m *Manager) build(ctx context.Context, e *entry, data []byte) (b built, err error) {
	if e.plugin == nil {
		return m.buildGroup(ctx, e.group)
	}
	if data == nil {
		var source host.Source
		if data, source, err = m.fetch(ctx, e.plugin); err != nil {
			return built{}, err
		}
		b.fetched = map[string]fetched{"": {source, digestOf(data)}}
	}
	b.module = data
	b.policy, err = m.loadPlugin(ctx, e.plugin, b.module)
	return b, err
}

// result is the result of build for an entry.
type result struct {
	built built
	err   error
}

// buildAll builds entries, several at a time, and returns their results in order.
func (m *Manager) buildAll(ctx context.Context, entries []*entry) []result {
	results := make([]result, len(entries))
	var wg sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for n, e := range entries {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			results[n].built, results[n].err = m.build(ctx, e, nil)
		})
	}
	wg.Wait()
	return results
}

func (m *Manager) buildGroup(ctx context.Context, g *GroupSpec) (b built, err error) {
	b.fetched = map[string]fetched{}
	members := map[string]*admission.Plugin{}
	var errs []error
	for _, alias := range slices.Sorted(maps.Keys(g.Members)) {
		spec := g.Members[alias]
		data, source, err := m.fetch(ctx, &spec)
		if err == nil {
			b.fetched[alias] = fetched{source, digestOf(data)}
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
			Name: g.Name, Members: members, Expression: g.Expression, Message: g.Message, PolicyRules: m.complete(g.PolicyRules),
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

// install replaces the policy of an entry. The next publish makes that effective; the returned
// policy must be closed after that.
func (m *Manager) install(e *entry, policy admission.Policy, module []byte) (old admission.Policy) {
	m.warn(policy)
	m.mu.Lock()
	defer m.mu.Unlock()
	old, e.policy, e.err, e.loadedAt = e.policy, policy, nil, time.Now()
	e.standIn, e.unknown, e.gap = false, false, nil
	if e.plugin != nil {
		e.digest = digestOf(module)
		m.remember(e, module)
	}
	m.add(e)
	return old
}

// warn logs the match warnings of a policy that comes into service.
func (m *Manager) warn(policy admission.Policy) {
	for _, warning := range admission.Describe(policy).MatchWarnings {
		m.log(slog.LevelWarn, "match may not be what is meant", "policy", policy.Name(), "warning", warning)
	}
}

// remember adds the version in service to those of an entry. mu must be held.
func (m *Manager) remember(e *entry, module []byte) {
	spec := *e.plugin
	spec.Module.Bytes = nil // The version holds the bytes.
	v := Version{Version: spec.Version, Digest: e.digest, LoadedAt: e.loadedAt, Spec: spec, module: module}
	e.versions = slices.DeleteFunc(e.versions, func(o Version) bool {
		return o.Digest == v.Digest && o.Version == v.Version && equalSpecs(o.Spec, v.Spec)
	})
	e.versions = append(e.versions, v)
	if n := len(e.versions) - m.cfg.Versions; n > 0 {
		e.versions = slices.Delete(e.versions, 0, n)
	}
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

// publish gives the engine the current policies, and closes the policies in gone after the last
// request that uses them.
func (m *Manager) publish(gone ...admission.Policy) {
	m.mu.RLock()
	entries := make([]*entry, 0, len(m.entries))
	for _, e := range m.entries {
		entries = append(entries, e)
	}
	m.mu.RUnlock()
	slices.SortFunc(entries, func(a, b *entry) int { return cmp.Compare(a.place, b.place) })
	var policies []admission.Policy
	for _, e := range entries {
		if e.disabled {
			policies = append(policies, admission.Disabled(e.policy))
			continue
		}
		policies = append(policies, e.policy)
		if e.gap != nil {
			policies = append(policies, e.gap)
		}
	}
	drained := m.cfg.Engine.Replace(policies...)
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

// refuse records that a change of an entry to wanted failed. The policy in service stays, and
// requests that only wanted would guard get a replacement. The next publish makes that effective.
func (m *Manager) refuse(e, wanted *entry, reason error) {
	m.log(slog.LevelError, "policy is refused", "policy", e.name, "err", reason)
	m.mu.Lock()
	defer m.mu.Unlock()
	e.err = reason
	if e.policy == nil || e.standIn {
		e.standIn = true
		e.policy, e.unknown = m.unavailable(wanted, reason)
	} else {
		e.gap = m.uncovered(e, wanted, reason)
	}
	m.add(e)
}

// Apply puts the policies of the file into the engine, beside those loaded by the API. Unchanged
// policies are not touched. A file that is wrong, or that has the name of a policy loaded by the
// API, is refused as a whole, and nothing changes. Otherwise, the error joins those of the policies
// that cannot be loaded; the others are in service.
func (m *Manager) Apply(ctx context.Context, f *File) error {
	end, err := m.begin()
	if err != nil {
		return err
	}
	defer end()
	refused, failed := m.apply(ctx, f)
	return errors.Join(refused, failed)
}

// apply implements Apply; changing must be held. refused is the reason that nothing has changed,
// and failed joins the errors of single policies.
func (m *Manager) apply(ctx context.Context, f *File) (refused, failed error) {
	if refused = m.admit(f); refused != nil {
		m.mu.Lock()
		m.fileErr = refused
		m.mu.Unlock()
		return refused, nil
	}
	if len(f.Plugins)+len(f.Groups) == 0 {
		m.log(slog.LevelWarn, "configuration declares that there are no policies")
	}
	var errs []error
	var gone []admission.Policy
	declared := map[string]bool{}
	var changed []*entry
	declare := func(next *entry) {
		declared[next.name] = true
		m.mu.RLock()
		e := m.entries[next.name]
		m.mu.RUnlock()
		if e == nil || e.err != nil || !equalSpecs(e.plugin, next.plugin) || !equalSpecs(e.group, next.group) {
			changed = append(changed, next)
		}
	}
	for i := range f.Plugins {
		s := &f.Plugins[i]
		declare(&entry{name: s.Name, origin: fromFile, plugin: s, disabled: !enabled(s.Enabled)})
	}
	for i := range f.Groups {
		g := &f.Groups[i]
		declare(&entry{name: g.Name, origin: fromFile, group: g, disabled: !enabled(g.Enabled)})
	}
	for n, result := range m.buildAll(ctx, changed) {
		next, b, err := changed[n], result.built, result.err
		m.mu.RLock()
		e := m.entries[next.name]
		m.mu.RUnlock()
		if e != nil {
			e.stopFollowing()
			if err == nil || e.standIn {
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
			m.refuse(e, next, err)
		} else {
			gone = append(gone, m.install(e, b.policy, b.module))
			b.keep()
			m.log(slog.LevelInfo, "policy is in service", "policy", e.name, "digest", e.digest)
		}
		m.follow(ctx, e, next, b, err)
	}
	m.mu.Lock()
	for name, e := range m.entries {
		if e.origin == fromFile && !declared[name] {
			gone = append(gone, m.drop(e))
		}
	}
	m.applied, m.fileErr = true, nil
	m.mu.Unlock()
	m.publish(gone...)
	return nil, errors.Join(errs...)
}

// admit returns the reason to refuse a file as a whole. changing must be held.
func (m *Manager) admit(f *File) error {
	m.waiting = nil
	errs := f.check(m.cfg.Namespaces, m.dialects())
	if len(errs) == 0 {
		errs = m.checkSources(f)
	}
	if len(errs) != 0 {
		return fmt.Errorf("configuration: %w", errors.Join(errs...))
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	taken := func(name string) {
		if e := m.entries[name]; e != nil && e.origin == fromAPI {
			errs = append(errs, fmt.Errorf("policy %q: was loaded by the management API already, which can remove it", name))
		}
	}
	for i := range f.Plugins {
		taken(f.Plugins[i].Name)
	}
	for i := range f.Groups {
		taken(f.Groups[i].Name)
	}
	if len(errs) != 0 {
		m.waiting = f
		return fmt.Errorf("configuration: %w", errors.Join(errs...))
	}
	return nil
}

// retryFile applies a file that was waiting for the name of a removed policy. changing must be
// held.
func (m *Manager) retryFile() {
	f := m.waiting
	if f == nil {
		return
	}
	m.closing.Go(func() {
		m.changing.Lock()
		defer m.changing.Unlock()
		if m.waiting != f {
			return // Another file is waiting, or the manager is closed.
		}
		m.told(m.apply(context.Background(), f))
	})
}

// told logs the result of applying a configuration.
func (m *Manager) told(refused, failed error) {
	switch {
	case refused != nil:
		m.log(slog.LevelError, "configuration is refused", "err", refused)
	case failed != nil:
		m.log(slog.LevelError, "configuration is applied, and some policies cannot be loaded", "err", failed)
	default:
		m.log(slog.LevelInfo, "configuration is applied")
	}
}

// drop removes an entry. mu must be held.
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

// follow updates an entry whenever its sources change. wanted is the wanted entry, which differs
// from e if it was refused for err, and b holds the contents fetched for it.
func (m *Manager) follow(ctx context.Context, e, wanted *entry, b built, err error) {
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	e.unfollow = stop
	changed := func(ctx context.Context, data []byte, _ string) error { return m.rebuild(ctx, e, wanted, data) }
	failed := func(err error) { m.log(slog.LevelWarn, "follow module", "policy", e.name, "err", err) }
	one := func(s *PluginSpec, had fetched) {
		switch {
		case s.Module.Follow:
		case err == nil || len(s.Module.Bytes) != 0:
			return
		default:
			m.closing.Go(func() { m.fetchUntilApplied(following, s, had.digest, changed, failed) })
			return
		}
		opts := host.FollowOptions{Interval: m.cfg.Interval, Failed: failed}
		if err == nil {
			opts.Applied = had.digest
		} else {
			opts.Refused = had.digest
		}
		source := had.source
		if source == nil {
			var unknown error
			if source, unknown = m.cfg.Runtime.Source(s.Module, "module"); unknown != nil {
				failed(unknown)
				return
			}
		}
		m.closing.Go(func() {
			err := host.Follow(following, source, opts, changed)
			if err != nil {
				failed(err)
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

// fetchUntilApplied fetches a module that is neither followed nor in service until it has been
// applied. A server that does not answer, or has the wrong module, may have the right one later.
// tried is the digest of the module that was already fetched.
func (m *Manager) fetchUntilApplied(ctx context.Context, s *PluginSpec, tried string, apply func(context.Context, []byte, string) error, failed func(error)) {
	tick := time.NewTicker(m.cfg.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		data, source, err := m.fetch(ctx, s)
		if err == nil {
			digest := digestOf(data)
			if digest == tried {
				continue
			}
			tried = digest
			if err = apply(ctx, data, digest); err == nil {
				host.Keep(source, digest)
				return
			}
		}
		if ctx.Err() == nil {
			failed(err)
		}
	}
}

// rebuild builds an entry again after a change of a source. data is the new content of the source
// of a plugin, or of a group's member.
func (m *Manager) rebuild(ctx context.Context, e, wanted *entry, data []byte) error {
	end, err := m.begin()
	if err != nil {
		return err
	}
	defer end()
	if ctx.Err() != nil {
		return ctx.Err() // The entry has been replaced.
	}
	b, err := m.build(ctx, wanted, data)
	if err != nil {
		m.refuse(e, wanted, err)
		m.publish()
		return err
	}
	m.mu.Lock()
	e.plugin, e.group = wanted.plugin, wanted.group
	m.mu.Unlock()
	m.publish(m.install(e, b.policy, b.module))
	b.keep()
	m.log(slog.LevelInfo, "policy is in service", "policy", e.name, "digest", e.digest)
	return nil
}

// FollowFile applies a configuration file, and applies it again whenever it changes, until ctx
// ends. A file that cannot be read or is refused leaves the policies unchanged, also if it does not
// exist at first. FollowFile returns the first error; later ones are logged. [Manager.Ready]
// returns nil once a file has been applied.
//
// Replace the file by renaming another over it. A file that is written in place is read once it has
// not changed for a quarter of a second. A file that stays cut off between two policies for longer
// counts as one with fewer policies.
func (m *Manager) FollowFile(ctx context.Context, path string) error {
	m.ExpectFile()
	source := serving.NewFile(path)
	apply := func(ctx context.Context, data []byte) (refused, failed error) {
		end, err := m.begin()
		if err != nil {
			return err, nil
		}
		defer end()
		f, err := ParseFile(data)
		if err != nil {
			m.waiting = nil
			m.mu.Lock()
			defer m.mu.Unlock()
			m.fileErr = err
			return err, nil
		}
		return m.apply(ctx, f)
	}
	var first error
	applied := ""
	data, refused := source.Fetch(ctx)
	if refused != nil {
		refused = fmt.Errorf("read configuration: %w", refused)
		m.mu.Lock()
		m.fileErr = refused
		m.mu.Unlock()
	} else {
		applied = digestOf(data)
		refused, first = apply(ctx, data)
	}
	if first = errors.Join(refused, first); errors.Is(first, host.ErrClosed) {
		return first
	}
	m.closing.Go(func() {
		err := host.Follow(ctx, source, host.FollowOptions{
			Interval: m.cfg.Interval, Applied: applied,
			Failed: func(err error) { m.log(slog.LevelError, "follow configuration", "file", path, "err", err) },
		}, func(ctx context.Context, data []byte, _ string) error {
			m.told(apply(ctx, data))
			// Follow would not return to the file before a refused one, which may differ from the
			// one in service.
			return nil
		})
		if err != nil {
			m.log(slog.LevelError, "follow configuration", "file", path, "err", err)
		}
	})
	return first
}

// ExpectFile makes [Manager.Ready] wait for a configuration file that FollowFile is about to apply.
// Fetching and compiling its modules may take long, and a server may begin to listen meanwhile.
func (m *Manager) ExpectFile() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wantsFile = true
}

// begin begins a change, which lasts until the call of end. After Close it returns
// [host.ErrClosed], since nothing would close policies loaded then.
func (m *Manager) begin() (end func(), err error) {
	m.changing.Lock()
	if m.closed {
		m.changing.Unlock()
		return nil, fmt.Errorf("manage policies: %w", host.ErrClosed)
	}
	return m.changing.Unlock, nil
}

// Close removes all policies from the engine and closes them, and waits for that until ctx ends.
// The context of FollowFile must have ended.
func (m *Manager) Close(ctx context.Context) error {
	m.changing.Lock()
	m.waiting, m.closed = nil, true
	m.mu.Lock()
	var gone []admission.Policy
	for _, e := range m.entries {
		e.stopFollowing()
		gone = append(gone, e.policy)
	}
	clear(m.entries)
	m.mu.Unlock()
	m.publish(gone...)
	m.store.close()
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
