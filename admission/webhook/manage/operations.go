package manage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/publicerr"
)

// Info describes a policy.
type Info struct {
	Name        string `json:"name"`
	Version     string `json:"version,omitempty"`
	Description string `json:"description,omitempty"`
	// Operations are the operations of its rules, all if it has no rules; none if it converts.
	Operations []string `json:"operations"`
	// Webhooks are the webhooks that ask the policy in service: validate, mutate or convert. Another
	// would be denied.
	Webhooks []string `json:"-"`
	// Converts lists the kinds that it converts, none if it decides.
	Converts []metav1.GroupKind `json:"converts,omitempty"`
	Enabled  bool               `json:"enabled"`
	// Group reports whether it is a group.
	Group bool `json:"group,omitempty"`
	// Origin is file, cluster or api.
	Origin string `json:"origin"`
	// Dialect is the ABI of the guest, empty for that of package abi.
	Dialect string `json:"dialect,omitempty"`
	// Reference is the source of the declared module, without credentials; empty for a group, and
	// for a module that a client of the API has sent.
	Reference string `json:"reference,omitempty"`
	// Digest is the SHA-256 of the module in service.
	Digest        string             `json:"digest,omitempty"`
	Mode          host.Mode          `json:"mode"`
	FailurePolicy host.FailurePolicy `json:"failurePolicy"`
	LoadedAt      time.Time          `json:"loadedAt"`
	// Warnings are mismatches in match, see admission.Description.
	Warnings []string `json:"warnings,omitempty"`
	// State compares the policy in service with the one that was declared last.
	State host.State `json:"state"`
	// Loading reports whether another version than the one in service is about to serve, and has not
	// failed.
	Loading bool `json:"-"`
	// Override is set if the API has changed a declared policy: enabled, disabled or version. It
	// lasts until the declaration of the policy changes.
	Override string `json:"override,omitempty"`
	// Error is the reason that the last requested change is not in service.
	Error string `json:"error,omitempty"`
}

// List returns the policies, in the order in which they are asked.
func (m *Manager) List() []Info {
	m.mu.Lock()
	defer m.mu.Unlock()
	entries := m.sorted()
	list := make([]Info, len(entries))
	for i, e := range entries {
		list[i] = e.info()
		if w := e.shown(); w.plugin != nil {
			if source, err := m.cfg.Runtime.Source(w.plugin.Module, "module"); err == nil {
				list[i].Reference = publicerr.Redact(source.String())
			}
		}
	}
	return list
}

// shown returns the version that is in service or, if there never was any, the wanted one.
func (e *entry) shown() *wanted {
	switch {
	case e.serving != nil:
		return e.serving
	case e.wanted != nil:
		return e.wanted
	}
	return &wanted{} // A record that cannot be read.
}

func (e *entry) info() Info {
	w := e.shown()
	i := Info{
		Name: e.name, Enabled: !e.disabled, Origin: e.origin, Digest: e.digest, LoadedAt: e.loadedAt, Group: w.group != nil,
	}
	var rules admission.PolicyRules
	switch {
	case w.plugin != nil:
		i.Version, i.Description, rules = w.plugin.Version, w.plugin.Description, w.plugin.PolicyRules
	case w.group != nil:
		rules = w.group.PolicyRules
	}
	i.Mode, i.FailurePolicy = cmp.Or(rules.Mode, host.Enforce), cmp.Or(rules.FailurePolicy, host.Fail)
	for _, rule := range rules.Match.Rules {
		for _, operation := range rule.Operations {
			if !slices.Contains(i.Operations, string(operation)) {
				i.Operations = append(i.Operations, string(operation))
			}
		}
	}
	switch i.Converts = w.converts(); {
	case len(i.Converts) != 0:
		i.Operations = []string{}
	case i.Operations == nil:
		i.Operations = []string{"*"}
	}
	if p, ok := e.policy.(*admission.Plugin); ok {
		i.Dialect = p.Dialect()
	}
	if e.policy != nil {
		d := admission.Describe(e.policy)
		i.Warnings = d.MatchWarnings
		if d.Validates {
			i.Webhooks = append(i.Webhooks, "validate")
		}
		if d.Mutates {
			i.Webhooks = append(i.Webhooks, "mutate")
		}
		if len(i.Converts) != 0 {
			i.Webhooks = []string{"convert"}
		}
	}
	i.Loading = e.serving != nil && e.wanted != e.serving && e.err == nil
	var err error
	if i.State, err = e.state(); err != nil {
		i.Error = publicerr.Redact(err.Error())
	}
	switch o := e.override; {
	case o == nil:
	case o.Spec != nil:
		i.Override = "version"
	case o.Enabled != nil && *o.Enabled:
		i.Override = "enabled"
	default:
		i.Override = "disabled"
	}
	return i
}

// state returns the state of a policy, and the reason unless it is as it was declared.
func (e *entry) state() (state host.State, err error) {
	switch {
	case e.serving == nil && e.policy != nil:
		state, err = host.Unavailable, e.err
	case e.serving == nil:
		state = host.Loading
	case e.err != nil:
		state, err = host.Stale, e.err
	default:
		state, err = e.followed()
	}
	if e.disabled {
		state = host.Disabled
	}
	return state, err
}

// followed returns the state of the modules of a policy in service.
func (e *entry) followed() (state host.State, err error) {
	plugins := e.members
	if p, ok := e.policy.(*admission.Plugin); ok {
		plugins = []*admission.Plugin{p}
	}
	state = host.Serving
	var errs []error
	for _, p := range plugins {
		if of, err := p.Guest().State(); of != host.Serving {
			state, errs = of, append(errs, err)
		}
	}
	return state, errors.Join(errs...)
}

// find returns a policy. mu must be held.
func (m *Manager) find(name string) (*entry, error) {
	if err := m.closedErr(); err != nil {
		return nil, err
	}
	e, ok := m.entries[name]
	if !ok {
		return nil, fmt.Errorf("policy %q: %w", name, ErrNotFound)
	}
	return e, nil
}

// enter begins a change by the API, for which Close waits.
func (m *Manager) enter() (leave func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.closedErr(); err != nil {
		return nil, err
	}
	m.working.Add(1)
	return m.working.Done, nil
}

// exchange loads a version that the API chose, and puts it into service unless final, which is
// called when nothing else can fail, returns an error.
func (m *Manager) exchange(ctx context.Context, e *entry, w *wanted, final func() error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(m.ctx, func() { cancel(host.ErrClosed) })()
	end, err := m.begin(ctx, e)
	if err != nil {
		return fmt.Errorf("policy %q: wait for another change: %w", e.name, err)
	}
	defer end()
	b, err := m.build(ctx, w)
	if err != nil {
		m.log(slog.LevelError, "policy is refused", append(b.logged(e.name), "err", err)...)
		return err
	}
	m.mu.Lock()
	old, err := m.install(e, w, b, final)
	if err != nil {
		m.mu.Unlock()
		m.close(b.policy)
		if errors.Is(err, errSuperseded) {
			return fmt.Errorf("policy %q: it was removed meanwhile: %w", e.name, errors.Join(ErrNotFound, err))
		}
		return err
	}
	e.cancel() // The work on the version before.
	e.cancel = func() {}
	m.mu.Unlock()
	m.publish(old)
	m.served(e, &b)
	return nil
}

// Load loads a plugin from the bytes of its module, which may be compressed by gzip, replacing an
// earlier plugin of the same name. spec must not have a source. If there is an error, the earlier
// plugin stays in service.
func (m *Manager) Load(ctx context.Context, spec PluginSpec, module []byte) error {
	if len(module) == 0 {
		return fmt.Errorf("plugin %q: the module is empty", spec.Name)
	}
	if spec.Record != nil {
		// The path of a recording is a path of the server.
		return fmt.Errorf("plugin %q: record is for the file of policies, not for the API", spec.Name)
	}
	named := spec.Module
	spec.Module = host.ModuleConfig{Bytes: module, SHA256: named.SHA256, Compiled: named.Compiled}
	if err := errors.Join(spec.check("plugin", m.cfg.Namespaces, m.dialects())...); err != nil {
		return err
	}
	spec.Module.Bytes = nil
	leave, err := m.enter()
	if err != nil {
		return err
	}
	defer leave()
	m.mu.Lock()
	e := m.entries[spec.Name]
	if e != nil && e.origin != fromAPI {
		m.mu.Unlock()
		return fmt.Errorf("plugin %q: %w", spec.Name, e.declaredErr())
	}
	if err := m.checkConverts(&spec); err != nil {
		m.mu.Unlock()
		return err
	}
	w := &wanted{plugin: &spec, enabled: enabled(spec.Enabled)}
	if e == nil {
		e = m.entry(spec.Name, fromAPI)
	}
	if len(e.loading) == 0 {
		e.restored = e.wanted
	}
	e.loading = append(e.loading, w)
	e.wanted = w // The kinds that it converts are taken.
	m.mu.Unlock()
	err = m.loadModule(ctx, e, w, module)
	m.mu.Lock()
	m.loaded(e, w)
	m.mu.Unlock()
	if err != nil {
		return err
	}
	return m.save(e)
}

// loaded records the end of a Load of w. mu must be held.
func (m *Manager) loaded(e *entry, w *wanted) {
	e.loading = slices.DeleteFunc(e.loading, func(other *wanted) bool { return other == w })
	if e.wanted != w || e.serving == w {
		return
	}
	e.wanted = cmp.Or(e.serving, e.restored)
	if n := len(e.loading); n != 0 {
		e.wanted = e.loading[n-1]
	}
	if e.wanted == nil && e.policy == nil && !e.removed {
		delete(m.entries, e.name)
		e.removed = true
	}
}

// loadModule loads the module of a version that the API has sent.
func (m *Manager) loadModule(ctx context.Context, e *entry, w *wanted, module []byte) error {
	var err error
	m.unpacking.Lock()
	module, err = host.Bytes(module).Fetch(ctx)
	m.unpacking.Unlock()
	if err != nil {
		return fmt.Errorf("plugin %q: %w", e.name, err)
	}
	digest := digestOf(module)
	if want := w.plugin.Module.SHA256; want != "" && !strings.EqualFold(want, digest) {
		return &host.DigestError{Plugin: e.name, Want: strings.ToLower(want), Got: digest}
	}
	w.pinned = m.pin(digest, module, nil)
	return m.exchange(ctx, e, w, func() error {
		e.disabled = !w.enabled
		return nil
	})
}

// checkConverts returns an error if a plugin converts a kind that another enabled plugin converts.
// mu must be held.
func (m *Manager) checkConverts(spec *PluginSpec) error {
	for _, name := range slices.Sorted(maps.Keys(m.entries)) {
		e := m.entries[name]
		if e.name == spec.Name || e.disabled || !enabled(spec.Enabled) {
			continue
		}
		for _, kind := range append(slices.Clone(e.serving.converts()), e.wanted.converts()...) {
			if slices.Contains(spec.Converts, kind) {
				return convertsToo(spec.Name, e.name, kind)
			}
		}
	}
	return nil
}

// switched returns a copy that is enabled or disabled.
func (s PluginSpec) switched(on bool) *PluginSpec {
	s.Enabled = &on
	return &s
}

// Remove removes a plugin loaded by Load.
func (m *Manager) Remove(name string) error {
	leave, err := m.enter()
	if err != nil {
		return err
	}
	defer leave()
	m.mu.Lock()
	e, err := m.find(name)
	if err == nil && e.origin != fromAPI {
		err = fmt.Errorf("policy %q: %w", name, e.declaredErr())
	}
	if err != nil {
		m.mu.Unlock()
		return err
	}
	gone := m.drop(e)
	m.mu.Unlock()
	m.publish(gone)
	m.retryFile()
	m.retryCluster()
	if m.store == nil {
		return nil
	}
	m.storing.Lock()
	defer m.storing.Unlock()
	m.mu.Lock()
	again := m.entries[name]
	replaced := again != nil && again.origin == fromAPI && again.serving != nil
	m.mu.Unlock()
	if replaced {
		return nil // Another plugin of that name was loaded meanwhile, and its record replaces this one.
	}
	if err := m.store.remove(name); err != nil {
		return &keepError{fmt.Errorf("policy %q is out of service, and kept: %w", name, err)}
	}
	return nil
}

// keepError is an error of the directory and not of the request.
type keepError struct{ error }

func (e *keepError) Unwrap() error { return e.error }

// SetEnabled enables or disables a policy, at once: it waits for nothing that is being loaded. For a
// policy of the configuration file it lasts until the declaration of that policy changes, and for
// one of the API until a later [Manager.Load]. The error is [ErrNotFound] during the first Load of a
// policy.
func (m *Manager) SetEnabled(name string, on bool) error {
	leave, err := m.enter()
	if err != nil {
		return err
	}
	defer leave()
	m.mu.Lock()
	e, err := m.find(name)
	if err == nil && e.unknown {
		err = fmt.Errorf("policy %q cannot be read, so it is to be loaded anew or removed: %w", name, e.err)
	}
	if err == nil && e.origin == fromAPI && e.policy == nil {
		err = fmt.Errorf("policy %q: its first version is being loaded: %w", name, ErrNotFound)
	}
	if err == nil && on && e.disabled {
		if p := e.shown().plugin; p != nil {
			err = m.checkConverts(p.switched(on))
		}
	}
	if err != nil {
		m.mu.Unlock()
		return err
	}
	e.disabled = !on
	for _, w := range e.loading {
		w.enabled = on // The change came after the load began.
	}
	o := e.overriding()
	o.Enabled = &on
	m.setOverride(e, o)
	m.mu.Unlock()
	m.publish()
	m.log(slog.LevelInfo, "policy is switched", "policy", name, "enabled", on)
	return m.save(e)
}

// Versions returns the versions of a plugin that were in service, with their settings. The first
// one is in service now, and the others follow from the latest to the earliest.
func (m *Manager) Versions(name string) ([]Version, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.entries[name]
	if !ok {
		return nil, fmt.Errorf("policy %q: %w", name, ErrNotFound)
	}
	list := slices.Clone(e.versions)
	slices.Reverse(list)
	return list, nil
}

// Rollback puts an earlier version of a plugin back into service. wanted is its version or digest;
// if it is empty, it is the version before the current one. For a plugin of the configuration file
// this lasts until its declaration changes, and its source is not followed until then.
func (m *Manager) Rollback(ctx context.Context, name, version string) (Version, error) {
	leave, err := m.enter()
	if err != nil {
		return Version{}, err
	}
	defer leave()
	m.mu.Lock()
	e, err := m.find(name)
	var v Version
	if err == nil {
		v, err = e.earlier(version)
	}
	if err == nil {
		err = m.checkConverts(v.Spec.switched(!e.disabled))
	}
	if err != nil {
		m.mu.Unlock()
		return Version{}, err
	}
	w := &wanted{plugin: &v.Spec, pinned: v.pinned, enabled: !e.disabled}
	m.mu.Unlock()
	begun := time.Now()
	if err := m.exchange(ctx, e, w, func() error { return m.overrideVersion(e, w) }); err != nil {
		return Version{}, err
	}
	m.log(slog.LevelInfo, "policy is rolled back", "policy", name, "digest", v.Digest, "reference", v.pinned.String(), "duration", time.Since(begun).Round(time.Millisecond))
	return v, m.save(e)
}

// earlier returns a version that was in service. mu must be held.
func (e *entry) earlier(version string) (Version, error) {
	i := len(e.versions) - 2
	if version != "" {
		for i = len(e.versions) - 1; i >= 0; i-- {
			if v := &e.versions[i]; v.Version == version || v.Digest == version {
				break
			}
		}
	}
	switch {
	case i < 0 && version == "":
		return Version{}, fmt.Errorf("policy %q: there is no earlier version to roll back to: %w", e.name, ErrNotFound)
	case i < 0:
		return Version{}, fmt.Errorf("policy %q: version %q to roll back to: %w", e.name, version, ErrNotFound)
	}
	return e.versions[i], nil
}

// overrideVersion makes a version the one that the API has chosen for a policy of the file. mu must
// be held.
func (m *Manager) overrideVersion(e *entry, w *wanted) error {
	o := e.overriding()
	o.Spec, o.Digest = w.plugin, w.pinned.digest
	m.setOverride(e, o)
	return nil
}

// save stores the changes of a policy by the API.
func (m *Manager) save(e *entry) error {
	if m.store == nil {
		return nil
	}
	// Another save between those of a module and its record would remove the module.
	m.storing.Lock()
	defer m.storing.Unlock()
	m.mu.Lock()
	w, versions, removed := e.serving, slices.Clone(e.versions), e.removed
	shown := e.shown()
	k := kept{Digest: e.digest, Disabled: e.disabled, Versions: versions}
	m.mu.Unlock()
	if removed {
		return nil
	}
	if w != nil {
		if err := m.saveModule(w.pinned); err != nil {
			return &keepError{fmt.Errorf("policy %q is in service, and not kept: %w", e.name, err)}
		}
	}
	if e.origin != fromAPI {
		return m.writeOverrides()
	}
	for _, v := range versions {
		// The version may have been replaced before it was stored. The next save tries again.
		if v.pinned.holds() {
			_ = m.saveModule(v.pinned)
		}
	}
	k.Spec = *shown.plugin
	if err := m.store.write(k); err != nil {
		return &keepError{fmt.Errorf("policy %q is in service, and not kept: %w", e.name, err)}
	}
	return nil
}

// saveModule stores a module that the API has chosen, nothing for nil. storing must be held.
func (m *Manager) saveModule(p *pinned) error {
	if p == nil {
		return nil
	}
	if !m.store.has(p.digest) {
		module, err := p.Fetch(m.ctx)
		if err != nil {
			return err
		}
		if err := m.store.put(p.digest, module); err != nil {
			return err
		}
	}
	p.drop()
	return nil
}
