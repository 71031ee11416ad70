package manage

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"

	"github.com/kubewasm/kubewasm/host/configfile"
)

// override is a change by the API of a policy that the configuration file declares. It lasts until
// the declaration of that policy changes, beyond restarts if there is a directory.
type override struct {
	// Declared identifies the declaration.
	Declared string `json:"declared"`
	// Enabled is set if the policy was enabled or disabled.
	Enabled *bool `json:"enabled,omitempty"`
	// Spec and Digest are the version that was promoted or rolled back to; Spec is nil for the
	// declared one.
	Spec   *PluginSpec `json:"spec,omitempty"`
	Digest string      `json:"digest,omitempty"`
}

// overriding returns a copy of the override of a policy, to be changed. mu must be held.
func (e *entry) overriding() *override {
	if e.override == nil {
		return &override{Declared: e.key}
	}
	o := *e.override
	return &o
}

// withoutVersion returns the override without its version, nil if nothing else is overridden.
func (o *override) withoutVersion() *override {
	if o == nil || o.Enabled == nil {
		return nil
	}
	return &override{Declared: o.Declared, Enabled: o.Enabled}
}

// setOverride sets the override of a policy of the file, nothing for a policy of the API. mu must be
// held. save must follow.
func (m *Manager) setOverride(e *entry, o *override) {
	if e.origin == fromAPI {
		return
	}
	if o.Spec == nil && (o.Enabled == nil || *o.Enabled == e.declared.enabled) {
		e.override = nil
		delete(m.overrides, e.name)
		return
	}
	e.override = o
	m.overrides[e.name] = *o
}

// pruneOverrides drops the overrides of policies that are gone, or not any more as they were
// overridden, and reports whether there were any. mu must be held.
func (m *Manager) pruneOverrides() bool {
	if m.wantsFile && !m.applied || m.wantsCluster && !m.clusterApplied {
		return false // Those that are to come may be overridden.
	}
	n := len(m.overrides)
	maps.DeleteFunc(m.overrides, func(name string, o override) bool {
		e := m.entries[name]
		return e == nil || e.key != o.Declared
	})
	return len(m.overrides) != n
}

// keepOverrides stores the overrides after some were dropped.
func (m *Manager) keepOverrides() {
	if m.store == nil {
		return
	}
	m.storing.Lock()
	defer m.storing.Unlock()
	if err := m.writeOverrides(); err != nil {
		m.log(slog.LevelError, "changes of declared policies are not kept", "err", err)
	}
}

// writeOverrides stores the overrides. storing must be held.
func (m *Manager) writeOverrides() error {
	m.mu.Lock()
	all := maps.Clone(m.overrides)
	m.mu.Unlock()
	if err := m.store.writeOverrides(all); err != nil {
		return &keepError{fmt.Errorf("the change is in service, and not kept: %w", err)}
	}
	return nil
}

// overridesFile is the file of the overrides. No name of a plugin leads to it.
func (s *store) overridesFile() string { return filepath.Join(s.dir, "overrides.list") }

// readOverrides returns the stored overrides.
func (s *store) readOverrides() (map[string]override, error) {
	all := map[string]override{}
	data, err := readFile(s.overridesFile(), maxRecordBytes)
	if errors.Is(err, os.ErrNotExist) {
		return all, nil
	}
	if err == nil {
		err = configfile.JSON(data, &all)
	}
	for name, o := range all {
		if o.Enabled == nil && o.Spec == nil && err == nil {
			err = fmt.Errorf("the override of policy %q changes nothing", name)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read overrides: %s: %w", s.overridesFile(), err)
	}
	return all, nil
}

// writeOverrides stores the overrides.
func (s *store) writeOverrides(all map[string]override) error {
	data, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	if err := replaceFile(s.overridesFile(), data); err != nil {
		return err
	}
	return s.sweep()
}
