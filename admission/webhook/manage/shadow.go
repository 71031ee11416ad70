package manage

import (
	"context"
	"errors"
	"fmt"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/shadow"
	"github.com/kubewasm/kubewasm/internal/management"
)

// plugin returns the plugin of that name in service.
func (m *Manager) plugin(name string) (*admission.Plugin, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.entries[name]
	if !ok {
		return nil, fmt.Errorf("policy %q: %w", name, ErrNotFound)
	}
	p, ok := e.policy.(*admission.Plugin)
	if !ok {
		return nil, fmt.Errorf("policy %q is no plugin in service: %w", name, ErrNotFound)
	}
	return p, nil
}

// Shadow returns the shadow of a plugin. The error is [ErrNotFound] if there was none.
func (m *Manager) Shadow(name string) (*shadow.Shadow, error) {
	p, err := m.plugin(name)
	if err != nil {
		return nil, err
	}
	s := p.Shadow()
	if s == nil {
		return nil, fmt.Errorf("policy %q: a shadow: %w", name, ErrNotFound)
	}
	return s, nil
}

// BeginShadow begins a shadow of a plugin, which lasts until the plugin is loaded again. It ends
// the shadow of the plugin's settings.
func (m *Manager) BeginShadow(ctx context.Context, name string, cfg shadow.Config) error {
	p, err := m.plugin(name)
	for err == nil {
		begun := p.BeginShadow(ctx, cfg)
		if begun != nil && !errors.Is(begun, host.ErrClosed) {
			return begun
		}
		// A version that comes into service meanwhile closes the shadows of the version before it.
		var now *admission.Plugin
		if now, err = m.plugin(name); now == p {
			return begun
		}
		p = now
	}
	return err
}

// BeginProfile profiles a copy of a plugin on its next calls.
func (m *Manager) BeginProfile(ctx context.Context, name string, calls int) error {
	p, err := m.plugin(name)
	if err != nil {
		return err
	}
	return p.BeginProfile(ctx, calls)
}

// Profile returns the current or last profile of a plugin, nil if there was none.
func (m *Manager) Profile(name string) *shadow.Shadow {
	p, err := m.plugin(name)
	if err != nil {
		return nil
	}
	return p.Profile()
}

// promote puts the candidate of the current plugin's shadow into service, with the shadow's
// settings. As after a rollback, for a plugin of the configuration file this lasts until its
// declaration changes.
func (m *Manager) promote(ctx context.Context, name string, candidate *shadow.Promotion) error {
	leave, err := m.enter()
	if err != nil {
		return err
	}
	defer leave()
	module, err := candidate.Source.Fetch(ctx)
	if err != nil {
		return fmt.Errorf("policy %q: fetch module: %w", name, err)
	}
	if got := digestOf(module); got != candidate.SHA256 {
		return &host.DigestError{Plugin: name, Want: candidate.SHA256, Got: got}
	}
	m.mu.Lock()
	e, err := m.find(name)
	if err == nil {
		err = e.serves(candidate)
	}
	if err != nil {
		m.mu.Unlock()
		return err
	}
	spec := *e.serving.plugin
	m.mu.Unlock()
	spec.PluginConfig.Shadow, spec.Module.SHA256 = nil, ""
	if len(candidate.GuestConfig) != 0 {
		spec.GuestConfig = candidate.GuestConfig
	}
	w := &wanted{plugin: &spec, pinned: m.pin(candidate.SHA256, module, candidate.Source), enabled: true}
	err = m.exchange(ctx, e, w, func() error {
		if err := e.serves(candidate); err != nil {
			return err
		}
		if err := candidate.Claim(); err != nil { // The shadow has ended meanwhile.
			return fmt.Errorf("policy %q: %w", name, err)
		}
		return m.overrideVersion(e, w)
	})
	if err != nil {
		return err
	}
	return m.save(e)
}

// serves returns an error unless a shadow is that of the version in service. mu must be held.
func (e *entry) serves(candidate *shadow.Promotion) error {
	if p, ok := e.policy.(*admission.Plugin); !ok || p.Shadow() != candidate.Shadow {
		return fmt.Errorf("policy %q: the candidate was compared with a version that is gone: a shadow: %w", e.name, ErrNotFound)
	}
	return nil
}

// managed are the shadows and profiles of a plugin by its name, whichever version serves.
type managed struct {
	*Manager
	name string
}

// managed returns the shadows and profiles of a plugin in service.
func (m *Manager) managed(name string) (management.Plugin, error) {
	if _, err := m.plugin(name); err != nil {
		return nil, err
	}
	return managed{m, name}, nil
}

// BeginShadow implements [management.Plugin].
func (p managed) BeginShadow(ctx context.Context, cfg shadow.Config) error {
	return p.Manager.BeginShadow(ctx, p.name, cfg)
}

// BeginProfile implements [management.Plugin].
func (p managed) BeginProfile(ctx context.Context, calls int) error {
	return p.Manager.BeginProfile(ctx, p.name, calls)
}

// Shadow implements [management.Plugin].
func (p managed) Shadow() *shadow.Shadow {
	s, _ := p.Manager.Shadow(p.name)
	return s
}

// Profile implements [management.Plugin].
func (p managed) Profile() *shadow.Shadow {
	if of, err := p.plugin(p.name); err == nil {
		return of.Profile()
	}
	return nil
}
