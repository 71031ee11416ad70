package management

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/configfile"
	"github.com/kubewasm/kubewasm/internal/publicerr"
	"github.com/kubewasm/kubewasm/internal/serving"
)

// Member is a plugin of a component.
type Member struct {
	// Name is the name in routes, which is unique.
	Name string
	// Guest is the plugin, and Plugin its shadows and profiles.
	Guest *host.Plugin
	Plugin
	Mode          host.Mode
	FailurePolicy host.FailurePolicy
}

// Info describes a plugin, with the names of the webhook's list.
type Info struct {
	Name          string             `json:"name"`
	State         host.State         `json:"state"`
	Digest        string             `json:"digest,omitempty"`
	Mode          host.Mode          `json:"mode"`
	FailurePolicy host.FailurePolicy `json:"failurePolicy"`
	Origin        string             `json:"origin"`
	LoadedAt      time.Time          `json:"loadedAt,omitzero"`
	Error         string             `json:"error,omitempty"`
}

func (m *Member) info() Info {
	i := Info{Name: m.Name, Digest: m.Guest.Digest(), Mode: m.Mode, FailurePolicy: m.FailurePolicy, Origin: "file"}
	if i.Mode == "" {
		i.Mode = host.Enforce
	}
	if i.FailurePolicy == "" {
		i.FailurePolicy = host.Fail
	}
	var err error
	if i.State, err = m.Guest.State(); err != nil {
		i.Error = publicerr.Redact(err.Error())
	}
	if versions := m.Guest.Versions(); len(versions) != 0 {
		i.LoadedAt = versions[len(versions)-1].LoadedAt
	}
	return i
}

// Bounds of requests.
const (
	maxRequestBytes = 64 << 20
	bodyTimeout     = 30 * time.Second
)

// Serve returns the routes for the plugins that members returns, in their order:
//
//	GET    /plugins                    the plugins
//	GET    /plugins/{name}/versions    the versions that were in service, the latest first
//	POST   /plugins/{name}/rollback    put an earlier version back into service: {"version": "DIGEST"}
//
// and those of [API.HandleShadows].
func Serve(auth Auth, members func() []Member) http.Handler {
	a := &API{
		Auth: auth, MaxBytes: maxRequestBytes,
		Bodies: serving.NewBodies(serving.BodyLimits{Bytes: 2 * maxRequestBytes, Timeout: bodyTimeout}),
		Code: func(err error) int {
			switch {
			case errors.Is(err, ErrNotFound), errors.Is(err, host.ErrNoVersion):
				return http.StatusNotFound
			case errors.Is(err, host.ErrClosed):
				return http.StatusServiceUnavailable
			}
			return http.StatusBadRequest
		},
	}
	find := func(name string) (*Member, error) {
		all := members()
		if i := slices.IndexFunc(all, func(m Member) bool { return m.Name == name }); i >= 0 {
			return &all[i], nil
		}
		return nil, fmt.Errorf("plugin %q: %w", name, ErrNotFound)
	}
	a.Handle("GET /plugins", func(*http.Request, []byte) (int, any, error) {
		list := []Info{}
		for _, m := range members() {
			list = append(list, m.info())
		}
		return http.StatusOK, map[string]any{"plugins": list}, nil
	})
	a.Handle("GET /plugins/{name}/versions", func(r *http.Request, _ []byte) (int, any, error) {
		m, err := find(r.PathValue("name"))
		if err != nil {
			return 0, nil, err
		}
		versions := append([]host.Version{}, m.Guest.Versions()...)
		slices.Reverse(versions) // As the webhook's.
		for i := range versions {
			versions[i].Reference = publicerr.Redact(versions[i].Reference)
		}
		return http.StatusOK, map[string]any{"versions": versions}, nil
	})
	a.Handle("POST /plugins/{name}/rollback", func(r *http.Request, body []byte) (int, any, error) {
		var wanted struct {
			Version string `json:"version"`
		}
		if len(body) != 0 {
			if err := configfile.JSON(body, &wanted); err != nil {
				return 0, nil, fmt.Errorf("read request: %w", err)
			}
		}
		m, err := find(r.PathValue("name"))
		if err != nil {
			return 0, nil, err
		}
		// A client that disconnects must not leave half a change.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 2*time.Minute)
		defer cancel()
		v, err := m.Guest.Rollback(ctx, wanted.Version)
		return http.StatusOK, map[string]string{"status": "rolled back", "digest": v.Digest}, err
	})
	a.HandleShadows(func(name string) (Plugin, error) {
		m, err := find(name)
		if err != nil {
			return nil, err
		}
		return m.Plugin, nil
	})
	return a
}
