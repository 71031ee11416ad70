package manage

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/configfile"
	"github.com/kubewasm/kubewasm/internal/publicerr"
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

// allows reports whether r may use the API.
func (a *Auth) allows(r *http.Request) bool {
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") && a.Token != nil {
		want, err := a.Token()
		if want = strings.TrimSpace(want); err == nil && want != "" {
			x, y := sha256.Sum256([]byte(strings.TrimSpace(token))), sha256.Sum256([]byte(want))
			return subtle.ConstantTimeCompare(x[:], y[:]) == 1
		}
	}
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || len(r.TLS.PeerCertificates) == 0 {
		return false
	}
	cert := r.TLS.PeerCertificates[0]
	return slices.ContainsFunc(append(slices.Clone(cert.DNSNames), cert.Subject.CommonName), func(name string) bool {
		return name != "" && slices.Contains(a.ClientNames, name)
	})
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
	mux, origins := http.NewServeMux(), http.NewCrossOriginProtection()
	handle := func(pattern string, f func(r *http.Request, body []byte) (int, any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := origins.Check(r); err != nil {
				serving.DropBody(w)
				answer(w, http.StatusForbidden, map[string]string{"error": err.Error()})
				return
			}
			if !auth.allows(r) {
				w.Header().Set("WWW-Authenticate", `Bearer realm="plugins"`)
				serving.DropBody(w)
				answer(w, http.StatusUnauthorized, map[string]string{"error": "not authorized"})
				return
			}
			if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
				w.Header().Set("Accept-Encoding", "identity")
				serving.DropBody(w)
				answer(w, http.StatusUnsupportedMediaType, map[string]string{"error": fmt.Sprintf("content encoding is %q, want none: compress wasm_binary instead", encoding)})
				return
			}
			if contentType := r.Header.Get("Content-Type"); r.ContentLength != 0 && !isJSON(contentType) {
				w.Header().Set("Accept", "application/json")
				serving.DropBody(w)
				answer(w, http.StatusUnsupportedMediaType, map[string]string{"error": fmt.Sprintf("content type is %.100q, want application/json", contentType)})
				return
			}
			request, refused := (*serving.Bodies)(bodies).Read(r.Context(), w, r, maxLoadBytes)
			if refused != nil {
				text, _ := json.Marshal(map[string]string{"error": refused.Error()}) // Never fails for a map of strings.
				refused.Answer(w, "application/json", string(text)+"\n")
				return
			}
			defer request.Release()
			code, body, err := f(r, request.Bytes)
			if err != nil {
				code, body = codeOf(err), map[string]string{"error": publicerr.Redact(err.Error())}
			}
			answer(w, code, body)
		})
	}
	status := func(code int, text string, err error) (int, any, error) {
		return code, map[string]string{"status": text}, err
	}
	handle("GET /plugins", func(*http.Request, []byte) (int, any, error) {
		return http.StatusOK, map[string]any{"plugins": m.List()}, nil
	})
	handle("POST /plugins", func(r *http.Request, body []byte) (int, any, error) {
		return status(http.StatusCreated, "created", m.load(r.Context(), body))
	})
	handle("DELETE /plugins/{name}", func(r *http.Request, _ []byte) (int, any, error) {
		return status(http.StatusOK, "removed", m.Remove(r.PathValue("name")))
	})
	handle("POST /plugins/{name}/enable", func(r *http.Request, _ []byte) (int, any, error) {
		return status(http.StatusOK, "enabled", m.SetEnabled(r.PathValue("name"), true))
	})
	handle("POST /plugins/{name}/disable", func(r *http.Request, _ []byte) (int, any, error) {
		return status(http.StatusOK, "disabled", m.SetEnabled(r.PathValue("name"), false))
	})
	handle("GET /plugins/{name}/versions", func(r *http.Request, _ []byte) (int, any, error) {
		versions, err := m.Versions(r.PathValue("name"))
		return http.StatusOK, map[string]any{"versions": versions}, err
	})
	handle("POST /plugins/{name}/rollback", func(r *http.Request, body []byte) (int, any, error) {
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
	m.handleShadows(handle, status)
	return mux
}

// isJSON reports whether a Content-Type is that of JSON. A page of another origin cannot send it
// without a preflight request.
func isJSON(contentType string) bool {
	mediaType, _, err := mime.ParseMediaType(contentType)
	return err == nil && mediaType == "application/json"
}

// checkRegistry returns an error if a client's reference does not name an artifact in a registry.
// An image layout is a directory of the server, and errors would reveal its contents.
func checkRegistry(reference string) error {
	if scheme, _, _ := strings.Cut(strings.TrimSpace(reference), ":"); strings.EqualFold(scheme, "oci-layout") {
		return errors.New("oci names an image layout, want an artifact in a registry")
	}
	return nil
}

func answer(w http.ResponseWriter, code int, body any) {
	data, err := json.Marshal(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(data, '\n')) // On an error, the client is gone.
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
		if err := checkRegistry(body.OCI); err != nil {
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
