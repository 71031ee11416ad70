package management

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/configfile"
	"github.com/kubewasm/kubewasm/host/profile"
	"github.com/kubewasm/kubewasm/host/shadow"
)

// Plugin is a plugin with copies that are called in the background.
type Plugin interface {
	BeginShadow(ctx context.Context, cfg shadow.Config) error
	Shadow() *shadow.Shadow
	BeginProfile(ctx context.Context, calls int) error
	Profile() *shadow.Shadow
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

// HandleShadows adds the routes for shadows and profiles of the plugins that find returns:
//
//	GET    /plugins/{name}/shadow      the results of a plugin's shadow
//	POST   /plugins/{name}/shadow      begin a shadow: its settings, with the module as wasm_binary or by oci
//	DELETE /plugins/{name}/shadow      end it
//	POST   /plugins/{name}/promote     put the candidate of the shadow into service
//	POST   /plugins/{name}/profile     profile a copy of a plugin on its next calls: {"calls": 100}
//	GET    /plugins/{name}/profile     the functions that used most of the fuel: ?top=20, ?pprof=true
func (a *API) HandleShadows(find func(name string) (Plugin, error)) {
	shadowOf := func(name string) (*shadow.Shadow, error) {
		p, err := find(name)
		if err != nil {
			return nil, err
		}
		if s := p.Shadow(); s != nil {
			return s, nil
		}
		return nil, fmt.Errorf("plugin %q: a shadow: %w", name, ErrNotFound)
	}
	a.Handle("GET /plugins/{name}/shadow", func(r *http.Request, _ []byte) (int, any, error) {
		s, err := shadowOf(r.PathValue("name"))
		if err != nil {
			return 0, nil, err
		}
		return http.StatusOK, s.Status(), nil
	})
	a.Handle("POST /plugins/{name}/shadow", func(r *http.Request, body []byte) (int, any, error) {
		var request shadowRequest
		if err := configfile.JSON(body, &request); err != nil {
			return 0, nil, fmt.Errorf("read request: %w", err)
		}
		if err := checkModule(&request.Module); err != nil {
			return 0, nil, fmt.Errorf("shadow: %w", err)
		}
		if len(request.Binary) != 0 {
			request.Module.Bytes = request.Binary
		}
		p, err := find(r.PathValue("name"))
		if err == nil {
			err = p.BeginShadow(r.Context(), request.Config)
		}
		return Status(http.StatusCreated, "begun", err)
	})
	a.Change("DELETE /plugins/{name}/shadow", http.StatusOK, "ended", func(ctx context.Context, name string) error {
		s, err := shadowOf(name)
		if err == nil {
			err = s.Close(ctx)
		}
		return err
	})
	a.Change("POST /plugins/{name}/promote", http.StatusOK, "promoted", func(ctx context.Context, name string) error {
		s, err := shadowOf(name)
		if err == nil {
			err = s.Promote(ctx)
		}
		return err
	})
	a.Handle("POST /plugins/{name}/profile", func(r *http.Request, body []byte) (int, any, error) {
		var request struct {
			Calls int `json:"calls"`
		}
		if err := configfile.JSON(body, &request); err != nil {
			return 0, nil, fmt.Errorf("read request: %w", err)
		}
		p, err := find(r.PathValue("name"))
		if err == nil {
			err = p.BeginProfile(r.Context(), request.Calls)
		}
		return Status(http.StatusCreated, "begun", err)
	})
	a.Handle("GET /plugins/{name}/profile", func(r *http.Request, _ []byte) (int, any, error) {
		p, err := find(r.PathValue("name"))
		if err != nil {
			return 0, nil, err
		}
		s := p.Profile()
		if s == nil {
			return 0, nil, fmt.Errorf("plugin %q: a profile: %w", r.PathValue("name"), ErrNotFound)
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

// checkModule returns an error unless a client may name a module so: a file or an image layout is
// the server's, and errors would reveal what is there; an object may be confidential.
func checkModule(m *host.ModuleConfig) error {
	if m.File != "" || m.HTTPS != "" || m.ConfigMap != nil || m.Secret != nil {
		return errors.New("file, https, configMap and secret are for configuration files: send wasm_binary, or name an artifact by module.oci")
	}
	return CheckRegistry(m.OCI)
}

// CheckRegistry returns an error if a client's reference does not name an artifact in a registry.
func CheckRegistry(reference string) error {
	if scheme, _, _ := strings.Cut(strings.TrimSpace(reference), ":"); strings.EqualFold(scheme, "oci-layout") {
		return errors.New("oci names an image layout, want an artifact in a registry")
	}
	return nil
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
