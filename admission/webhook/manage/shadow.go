package manage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/configfile"
	"github.com/kubewasm/kubewasm/host/profile"
	"github.com/kubewasm/kubewasm/host/shadow"
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

// shadowRequest is the body of a request that begins a shadow.
type shadowRequest struct {
	Binary []byte `json:"wasm_binary"`
	shadow.Config
}

// profileAnswer is the profile of a plugin as an answer.
type profileAnswer struct {
	Status    shadow.State   `json:"status"`
	Calls     int64          `json:"calls"`
	Fuel      int64          `json:"fuel"`
	Bytes     int64          `json:"bytes"`
	Functions []profile.Cost `json:"functions"`
	// Pprof is the profile in pprof's format, compressed; it is set if it was requested.
	Pprof []byte `json:"pprof,omitempty"`
}

// handleShadows adds the paths for shadows and profiles.
func (m *Manager) handleShadows(handle func(string, func(*http.Request, []byte) (int, any, error)), status func(int, string, error) (int, any, error)) {
	handle("GET /plugins/{name}/shadow", func(r *http.Request, _ []byte) (int, any, error) {
		s, err := m.Shadow(r.PathValue("name"))
		if err != nil {
			return 0, nil, err
		}
		return http.StatusOK, s.Status(), nil
	})
	handle("POST /plugins/{name}/shadow", func(r *http.Request, body []byte) (int, any, error) {
		var request shadowRequest
		if err := configfile.JSON(body, &request); err != nil {
			return 0, nil, fmt.Errorf("read request: %w", err)
		}
		if m := &request.Module; m.File != "" || m.HTTPS != "" || m.ConfigMap != nil || m.Secret != nil {
			return 0, nil, errors.New("shadow: file, https, configMap and secret are for configuration files: send wasm_binary, or name an artifact by module.oci")
		}
		if err := checkRegistry(request.Module.OCI); err != nil {
			return 0, nil, fmt.Errorf("shadow: %w", err)
		}
		if len(request.Binary) != 0 {
			request.Module.Bytes = request.Binary
		}
		return status(http.StatusCreated, "begun", m.BeginShadow(r.Context(), r.PathValue("name"), request.Config))
	})
	handle("DELETE /plugins/{name}/shadow", func(r *http.Request, _ []byte) (int, any, error) {
		s, err := m.Shadow(r.PathValue("name"))
		if err == nil {
			err = s.Close(r.Context())
		}
		return status(http.StatusOK, "ended", err)
	})
	handle("POST /plugins/{name}/promote", func(r *http.Request, _ []byte) (int, any, error) {
		s, err := m.Shadow(r.PathValue("name"))
		if err == nil {
			err = s.Promote(r.Context())
		}
		return status(http.StatusOK, "promoted", err)
	})
	handle("POST /plugins/{name}/profile", func(r *http.Request, body []byte) (int, any, error) {
		var request struct {
			Calls int `json:"calls"`
		}
		if err := configfile.JSON(body, &request); err != nil {
			return 0, nil, fmt.Errorf("read request: %w", err)
		}
		return status(http.StatusCreated, "begun", m.BeginProfile(r.Context(), r.PathValue("name"), request.Calls))
	})
	handle("GET /plugins/{name}/profile", func(r *http.Request, _ []byte) (int, any, error) {
		p, err := m.plugin(r.PathValue("name"))
		if err != nil {
			return 0, nil, err
		}
		s := p.Profile()
		if s == nil {
			return 0, nil, fmt.Errorf("policy %q: a profile: %w", p.Name(), ErrNotFound)
		}
		top := 20
		if text := r.FormValue("top"); text != "" {
			if top, err = strconv.Atoi(text); err != nil || top < 0 {
				return 0, nil, fmt.Errorf("top is %q, want a number of functions", text)
			}
		}
		return profileOf(s, top, r.FormValue("pprof") == "true")
	})
}

func profileOf(s *shadow.Shadow, top int, encoded bool) (int, any, error) {
	found := s.Profile()
	a := profileAnswer{Status: s.Status().State, Functions: []profile.Cost{}}
	if found == nil {
		return http.StatusOK, a, nil
	}
	a.Calls, a.Fuel, a.Bytes, a.Functions = found.Calls, found.Fuel(), found.Bytes(), found.Top(top)
	if encoded {
		var b bytes.Buffer
		if err := found.Write(&b); err != nil {
			return 0, nil, err
		}
		a.Pprof = b.Bytes()
	}
	return http.StatusOK, a, nil
}
