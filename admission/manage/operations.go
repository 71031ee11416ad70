package manage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
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
	// Converts lists the kinds that it converts, none if it decides.
	Converts []metav1.GroupKind `json:"converts,omitempty"`
	Enabled  bool               `json:"enabled"`
	// Group reports whether it is a group.
	Group bool `json:"group,omitempty"`
	// Origin is file or api.
	Origin string `json:"origin"`
	// Dialect is the ABI of the guest, empty for that of package abi.
	Dialect string `json:"dialect,omitempty"`
	// Digest is the SHA-256 of the module in service.
	Digest        string             `json:"digest,omitempty"`
	Mode          host.Mode          `json:"mode"`
	FailurePolicy host.FailurePolicy `json:"failurePolicy"`
	LoadedAt      time.Time          `json:"loadedAt"`
	// Warnings are mismatches in match, see admission.Description.
	Warnings []string `json:"warnings,omitempty"`
	// State compares the policy in service with the one that was declared last.
	State State `json:"state"`
	// Error is the reason that the last requested change is not in service.
	Error string `json:"error,omitempty"`
}

// State compares a policy in service with the one that was declared last.
type State string

const (
	// Serving is a policy that is in service as it was declared.
	Serving State = "Serving"
	// Stale is a policy that an earlier version serves, since the declared one was refused.
	Stale State = "Stale"
	// Unavailable is a policy of which no version could be loaded: the failure policy decides
	// about its requests.
	Unavailable State = "Unavailable"
	// Disabled is a policy that is not asked.
	Disabled State = "Disabled"
)

// States are all states.
var States = []State{Serving, Stale, Unavailable, Disabled}

// List returns the policies, in the order in which they were added.
func (m *Manager) List() []Info {
	m.mu.RLock()
	defer m.mu.RUnlock()
	entries := make([]*entry, 0, len(m.entries))
	for _, e := range m.entries {
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b *entry) int { return cmp.Compare(a.place, b.place) })
	list := make([]Info, len(entries))
	for i, e := range entries {
		list[i] = e.info()
	}
	return list
}

func (e *entry) info() Info {
	i := Info{
		Name: e.name, Enabled: !e.disabled, Origin: e.origin, Digest: e.digest, LoadedAt: e.loadedAt, Group: e.group != nil,
	}
	var rules admission.PolicyRules
	switch {
	case e.plugin != nil:
		i.Version, i.Description, rules = e.plugin.Version, e.plugin.Description, e.plugin.PolicyRules
	case e.group != nil:
		rules = e.group.PolicyRules
	}
	i.Mode, i.FailurePolicy = cmp.Or(rules.Mode, host.Enforce), cmp.Or(rules.FailurePolicy, host.Fail)
	for _, rule := range rules.Match.Rules {
		for _, operation := range rule.Operations {
			if !slices.Contains(i.Operations, string(operation)) {
				i.Operations = append(i.Operations, string(operation))
			}
		}
	}
	switch i.Converts = e.converts(); {
	case len(i.Converts) != 0:
		i.Operations = []string{}
	case i.Operations == nil:
		i.Operations = []string{"*"}
	}
	if p, ok := e.policy.(*admission.Plugin); ok {
		i.Dialect = p.Dialect()
	}
	i.Warnings = admission.Describe(e.policy).MatchWarnings
	if e.err != nil {
		i.Error = publicerr.Redact(e.err.Error())
	}
	i.State = e.state()
	return i
}

func (e *entry) state() State {
	switch {
	case e.disabled:
		return Disabled
	case e.standIn:
		return Unavailable
	case e.err != nil:
		return Stale
	}
	return Serving
}

// find returns a policy. changing must be held.
func (m *Manager) find(name string) (*entry, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	e, ok := m.entries[name]
	if !ok {
		return nil, fmt.Errorf("policy %q: %w", name, ErrNotFound)
	}
	return e, nil
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
	end, err := m.begin()
	if err != nil {
		return err
	}
	defer end()
	e, err := m.find(spec.Name)
	switch {
	case err != nil:
		e = &entry{name: spec.Name, origin: fromAPI}
	case e.origin == fromFile:
		return fmt.Errorf("plugin %q: %w", spec.Name, ErrDeclared)
	}
	if err := m.checkConverts(&spec); err != nil {
		return err
	}
	// Only one at a time, since the module may be many times longer than its compressed form.
	if module, err = host.Bytes(module).Fetch(ctx); err != nil {
		return fmt.Errorf("plugin %q: %w", spec.Name, err)
	}
	policy, err := m.loadPlugin(ctx, &spec, module)
	if err != nil {
		return err
	}
	m.mu.Lock()
	e.plugin, e.disabled = &spec, !enabled(spec.Enabled)
	m.mu.Unlock()
	m.publish(m.install(e, policy, module))
	m.log(slog.LevelInfo, "policy is in service", "policy", e.name, "digest", e.digest)
	return m.save(e, module)
}

// checkConverts returns an error if a plugin converts a kind that another enabled plugin converts.
// changing must be held.
func (m *Manager) checkConverts(spec *PluginSpec) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(m.entries)) {
		e := m.entries[name]
		if e.name == spec.Name || e.disabled || !enabled(spec.Enabled) {
			continue
		}
		for _, kind := range e.converts() {
			if slices.Contains(spec.Converts, kind) {
				return convertsToo(spec.Name, e.name, kind)
			}
		}
	}
	return nil
}

// Remove removes a plugin loaded by Load.
func (m *Manager) Remove(name string) error {
	end, err := m.begin()
	if err != nil {
		return err
	}
	defer end()
	e, err := m.find(name)
	if err != nil {
		return err
	}
	if e.origin == fromFile {
		return fmt.Errorf("policy %q: %w", name, ErrDeclared)
	}
	m.mu.Lock()
	gone := m.drop(e)
	m.mu.Unlock()
	m.publish(gone)
	m.retryFile()
	if m.store == nil {
		return nil
	}
	if err := m.store.remove(name); err != nil {
		return &keepError{fmt.Errorf("policy %q is out of service, and kept: %w", name, err)}
	}
	return nil
}

// keepError is an error of the directory and not of the request.
type keepError struct{ error }

func (e *keepError) Unwrap() error { return e.error }

// SetEnabled enables or disables a policy. A change of the configuration file resets a policy of
// the file.
func (m *Manager) SetEnabled(name string, on bool) error {
	end, err := m.begin()
	if err != nil {
		return err
	}
	defer end()
	e, err := m.find(name)
	if err != nil {
		return err
	}
	if e.unknown {
		return fmt.Errorf("policy %q cannot be read, so it is to be loaded anew or removed: %w", name, e.err)
	}
	m.mu.Lock()
	e.disabled = !on
	m.mu.Unlock()
	m.publish()
	m.log(slog.LevelInfo, "policy is switched", "policy", name, "enabled", on)
	return m.save(e, nil)
}

// Versions returns the versions of a plugin that were in service, with their settings. The first
// one is in service now, and the others follow from the latest to the earliest.
func (m *Manager) Versions(name string) ([]Version, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
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
// this lasts until the file or its source changes.
func (m *Manager) Rollback(ctx context.Context, name, wanted string) (Version, error) {
	end, err := m.begin()
	if err != nil {
		return Version{}, err
	}
	defer end()
	e, err := m.find(name)
	if err != nil {
		return Version{}, err
	}
	i := len(e.versions) - 2
	if wanted != "" {
		for i = len(e.versions) - 1; i >= 0; i-- {
			if v := &e.versions[i]; v.Version == wanted || v.Digest == wanted {
				break
			}
		}
	}
	switch {
	case i < 0 && wanted == "":
		return Version{}, fmt.Errorf("policy %q: there is no earlier version to roll back to: %w", name, ErrNotFound)
	case i < 0:
		return Version{}, fmt.Errorf("policy %q: version %q to roll back to: %w", name, wanted, ErrNotFound)
	}
	v := e.versions[i]
	module := v.module
	if module == nil {
		if module, err = m.store.module(v.Digest); err != nil {
			return Version{}, fmt.Errorf("policy %q: %w", name, err)
		}
	}
	spec := v.Spec
	policy, err := m.loadPlugin(ctx, &spec, module)
	if err != nil {
		return Version{}, err
	}
	m.mu.Lock()
	e.plugin = &spec
	m.mu.Unlock()
	m.publish(m.install(e, policy, module))
	m.log(slog.LevelInfo, "policy is rolled back", "policy", name, "digest", v.Digest)
	return v, m.save(e, module)
}

// save stores the changes of a policy by the API. changing must be held.
func (m *Manager) save(e *entry, module []byte) error {
	if m.store == nil || e.origin != fromAPI {
		return nil
	}
	m.mu.RLock()
	k := kept{Spec: *e.plugin, Digest: e.digest, Disabled: e.disabled, Versions: slices.Clone(e.versions)}
	m.mu.RUnlock()
	if err := m.store.write(k, module); err != nil {
		return &keepError{fmt.Errorf("policy %q is in service, and not kept: %w", e.name, err)}
	}
	// The module is now in the store.
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range e.versions {
		e.versions[i].module = nil
	}
	return nil
}
