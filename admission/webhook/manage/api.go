package manage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/configfile"
	"github.com/kubewasm/kubewasm/internal/management"
	"github.com/kubewasm/kubewasm/internal/serving"
)

// Auth decides which clients may use the management API. The zero value lets none in.
type Auth struct {
	// Token returns the bearer token for the API; if it is nil or returns an empty token, no token
	// is accepted. It is called for each request, so the token may change.
	Token func() (string, error)
	// ClientNames are the common and DNS names of client certificates that may use the API. The
	// server must have verified them.
	ClientNames []string
}

// maxLoadBytes is the length of the longest request that loads a plugin: a module of 48 MiB in
// base64.
const maxLoadBytes = 64 << 20

// loadTimeout bounds the time of loading a plugin, and bodyTimeout that of receiving a request.
const (
	loadTimeout = 2 * time.Minute
	bodyTimeout = 30 * time.Second
)

// API returns the management API, for the paths /plugins and below:
//
//	GET    /plugins                    the policies
//	POST   /plugins                    load a plugin, replacing one of the same name
//	DELETE /plugins/{name}             remove a plugin
//	POST   /plugins/{name}/enable      ask a policy again
//	POST   /plugins/{name}/disable     stop asking a policy
//	GET    /plugins/{name}/versions    the versions that were in service
//	POST   /plugins/{name}/rollback    put an earlier version back into service: {"version": "…"}
//	GET    /plugins/{name}/shadow      the results of a plugin's shadow
//	POST   /plugins/{name}/shadow      begin a shadow: its settings, with the module as wasm_binary or by oci
//	DELETE /plugins/{name}/shadow      end it
//	POST   /plugins/{name}/promote     put the candidate of the shadow into service
//	POST   /plugins/{name}/profile     profile a copy of a plugin on its next calls: {"calls": 100}
//	GET    /plugins/{name}/profile     the functions that used most of the fuel: ?top=20, ?pprof=true
//
// and, for all policies:
//
//	GET    /break-glass                whether they only monitor: {"until": "…", "reason": "…"}, or {}
//	POST   /break-glass                let them: {"for": "30m", "reason": "…"}, at most 24h
//	DELETE /break-glass                enforce them again
//
// An unauthorized client gets 401 before its body is read. Requests and answers are JSON, with the
// names shown here; a refusal is {"error": "…"}. A body must have the Content-Type
// application/json, or the answer is 415. A changing request from a page of another origin, by
// Sec-Fetch-Site or Origin, gets 403. To load a plugin, send:
//
//	{"metadata": {"name": "…", "version": "1.0.0", "sha256": "…", "limits": {"timeoutMs": 500}},
//	 "wasm_binary": "AGFzbQ…", "operations": ["CREATE"], "enabled": true, "fail_open": false}
//
// wasm_binary, in base64, may be compressed by gzip; the digest is that of the uncompressed module.
// A request whose Content-Encoding is gzip gets 415.
//
// Instead of wasm_binary, oci may name an artifact in a registry, which is fetched and verified
// once, and kept like a module in the request. An image layout is refused, since it is a directory
// of the server.
//
// In addition to the fields of the Stellar operator's API, a request may have guestConfig, match,
// mode, order, allowedToMutate, objects, dialect and converts as in [PluginSpec]. A plugin with
// converts has no operations.
func (m *Manager) API(auth Auth) http.Handler {
	bodies := m.cfg.Bodies
	if bodies == nil {
		bodies = admission.NewBodies(admission.BodyLimits{Bytes: 2 * maxLoadBytes, Timeout: bodyTimeout})
	}
	api := &management.API{Auth: management.Auth(auth), Bodies: (*serving.Bodies)(bodies), MaxBytes: maxLoadBytes, Code: codeOf}
	api.Handle("GET /plugins", func(*http.Request, []byte) (int, any, error) {
		return http.StatusOK, map[string]any{"plugins": m.List()}, nil
	})
	api.Handle("POST /plugins", func(r *http.Request, body []byte) (int, any, error) {
		return management.Status(http.StatusCreated, "created", m.load(r.Context(), body))
	})
	api.Handle("DELETE /plugins/{name}", func(r *http.Request, _ []byte) (int, any, error) {
		return management.Status(http.StatusOK, "removed", m.Remove(r.PathValue("name")))
	})
	api.Handle("POST /plugins/{name}/enable", func(r *http.Request, _ []byte) (int, any, error) {
		return management.Status(http.StatusOK, "enabled", m.SetEnabled(r.PathValue("name"), true))
	})
	api.Handle("POST /plugins/{name}/disable", func(r *http.Request, _ []byte) (int, any, error) {
		return management.Status(http.StatusOK, "disabled", m.SetEnabled(r.PathValue("name"), false))
	})
	api.Handle("GET /plugins/{name}/versions", func(r *http.Request, _ []byte) (int, any, error) {
		versions, err := m.Versions(r.PathValue("name"))
		return http.StatusOK, map[string]any{"versions": versions}, err
	})
	api.Handle("POST /plugins/{name}/rollback", func(r *http.Request, body []byte) (int, any, error) {
		var wanted struct {
			Version string `json:"version"`
		}
		if len(body) != 0 {
			if err := configfile.JSON(body, &wanted); err != nil {
				return 0, nil, fmt.Errorf("read request: %w", err)
			}
		}
		v, err := m.Rollback(r.Context(), r.PathValue("name"), wanted.Version)
		return http.StatusOK, map[string]string{"status": "rolled back", "version": v.Version, "digest": v.Digest}, err
	})
	api.HandleShadows(m.managed)
	api.Handle("GET /break-glass", func(*http.Request, []byte) (int, any, error) {
		if b := m.BreakGlass(); b != nil {
			return http.StatusOK, b, nil
		}
		return http.StatusOK, struct{}{}, nil
	})
	api.Handle("POST /break-glass", func(_ *http.Request, body []byte) (int, any, error) {
		var wanted struct {
			For    time.Duration `json:"for"`
			Reason string        `json:"reason"`
		}
		if err := configfile.JSON(body, &wanted); err != nil {
			return 0, nil, fmt.Errorf("read request: %w", err)
		}
		if wanted.For <= 0 || wanted.For > MaxBreakGlass {
			return 0, nil, fmt.Errorf("for is %s, want more than 0 and at most %s", wanted.For, MaxBreakGlass)
		}
		b := &BreakGlass{Until: time.Now().Add(wanted.For), Reason: wanted.Reason}
		return http.StatusOK, b, m.SetBreakGlass(b)
	})
	api.Handle("DELETE /break-glass", func(*http.Request, []byte) (int, any, error) {
		err := m.SetBreakGlass(nil)
		if b := m.BreakGlass(); b != nil && err == nil {
			err = fmt.Errorf("the configuration file lets policies only monitor until %s: %w", b.Until.UTC().Format(time.RFC3339), ErrDeclared)
		}
		return management.Status(http.StatusOK, "enforced", err)
	})
	return api
}

// codeOf returns the HTTP code of an error.
func codeOf(err error) int {
	var keep *keepError
	switch {
	case errors.Is(err, ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, ErrDeclared):
		return http.StatusConflict
	case errors.As(err, &keep):
		return http.StatusInternalServerError
	case errors.Is(err, host.ErrClosed):
		return http.StatusServiceUnavailable
	}
	return http.StatusBadRequest
}

// loadRequest is the body of a request that loads a plugin.
type loadRequest struct {
	Metadata struct {
		Name        string `json:"name"`
		Version     string `json:"version"`
		Description string `json:"description"`
		Author      string `json:"author"`
		SHA256      string `json:"sha256"`
		Limits      struct {
			TimeoutMs      int64  `json:"timeoutMs"`
			MaxMemoryBytes uint64 `json:"maxMemoryBytes"`
			MaxFuel        int64  `json:"maxFuel"`
		} `json:"limits"`
	} `json:"metadata"`
	WasmBinary []byte   `json:"wasm_binary"`
	Operations []string `json:"operations"`
	Enabled    *bool    `json:"enabled"`
	FailOpen   bool     `json:"fail_open"`

	OCI             string             `json:"oci"`
	GuestConfig     host.GuestConfig   `json:"guestConfig"`
	Match           *admission.Match   `json:"match"`
	Mode            host.Mode          `json:"mode"`
	Order           int                `json:"order"`
	AllowedToMutate bool               `json:"allowedToMutate"`
	Objects         []host.ObjectGrant `json:"objects"`
	Converts        []metav1.GroupKind `json:"converts"`
	Dialect         dialect.Config     `json:"dialect"`
}

func (m *Manager) load(ctx context.Context, request []byte) error {
	var body loadRequest
	if err := configfile.JSON(request, &body); err != nil {
		return fmt.Errorf("read request: %w", err)
	}
	md := &body.Metadata
	spec := PluginSpec{
		Version: md.Version, Description: md.Description, Enabled: body.Enabled,
		PluginConfig: admission.PluginConfig{
			Config: host.Config{
				Name: md.Name, Module: host.ModuleConfig{SHA256: md.SHA256}, GuestConfig: body.GuestConfig,
				Limits: host.Limits{MemoryBytes: md.Limits.MaxMemoryBytes, Fuel: md.Limits.MaxFuel, Timeout: time.Duration(md.Limits.TimeoutMs) * time.Millisecond},
			},
			PolicyRules:     admission.PolicyRules{Mode: body.Mode, Order: body.Order},
			AllowedToMutate: body.AllowedToMutate, Objects: body.Objects,
			Converts: body.Converts, Dialect: body.Dialect,
		},
	}
	if body.FailOpen {
		spec.FailurePolicy = host.Ignore
	}
	switch {
	case body.Match != nil && len(body.Operations) != 0:
		return errors.New("operations and match are both there, want one")
	case body.Match != nil:
		spec.Match = *body.Match
	case len(body.Converts) != 0 && len(body.Operations) == 0:
	case len(body.Operations) == 0:
		return errors.New("operations is empty")
	default:
		rule := admissionregistrationv1.RuleWithOperations{Rule: admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}}}
		for _, operation := range body.Operations {
			rule.Operations = append(rule.Operations, admissionregistrationv1.OperationType(operation))
		}
		spec.Match.Rules = []admissionregistrationv1.RuleWithOperations{rule}
	}
	// A client that disconnects must not leave half a change.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTimeout)
	defer cancel()
	module := body.WasmBinary
	if body.OCI != "" {
		if len(module) != 0 {
			return errors.New("oci and wasm_binary are both there, want one")
		}
		if err := management.CheckRegistry(body.OCI); err != nil {
			return err
		}
		spec.Module.OCI = body.OCI
		source, err := m.cfg.Runtime.Source(spec.Module, "module")
		if err == nil {
			module, err = source.Fetch(ctx)
		}
		if err != nil {
			return fmt.Errorf("plugin %q: fetch module: %w", spec.Name, err)
		}
		if err := m.Load(ctx, spec, module); err != nil {
			return err
		}
		host.Keep(source, digestOf(module))
		return nil
	}
	return m.Load(ctx, spec, module)
}
