// Package management serves the routes with which an operator changes plugins while they serve. The
// webhook's are those of package manage of admission, which adds its own; the scheduler and the node
// agent have [Serve].
package management

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

	"github.com/kubewasm/kubewasm/internal/publicerr"
	"github.com/kubewasm/kubewasm/internal/serving"
)

// ErrNotFound is returned if a plugin, a shadow or a profile does not exist.
var ErrNotFound = errors.New("not found")

// Auth decides which clients may use the routes. The zero value lets none in.
type Auth struct {
	// Token returns the bearer token; if it is nil or returns an empty token, no token is accepted. It
	// is called for each request, so the token may change.
	Token func() (string, error)
	// ClientNames are the common and DNS names of client certificates, which the server must have
	// verified.
	ClientNames []string
}

// Allows reports whether r may use the routes.
func (a *Auth) Allows(r *http.Request) bool {
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

// API is a handler of routes. An unauthorized client gets 401 before its body is read. Requests and
// answers are JSON; a refusal is {"error": "…"}. A body must have the Content-Type application/json,
// or the answer is 415. A changing request from a page of another origin, by Sec-Fetch-Site or
// Origin, gets 403.
type API struct {
	Auth Auth
	// Bodies bounds the memory of requests, and MaxBytes the length of one.
	Bodies   *serving.Bodies
	MaxBytes int64
	// Code returns the HTTP code of an error.
	Code func(error) int

	mux     http.ServeMux
	origins http.CrossOriginProtection
}

// ServeHTTP implements [http.Handler].
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

// Handle adds a route. f returns the code and the body of the answer.
func (a *API) Handle(pattern string, f func(r *http.Request, body []byte) (int, any, error)) {
	a.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		refuse := func(code int, text string) {
			serving.DropBody(w)
			answer(w, code, map[string]string{"error": text})
		}
		if err := a.origins.Check(r); err != nil {
			refuse(http.StatusForbidden, err.Error())
			return
		}
		if !a.Auth.Allows(r) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="plugins"`)
			refuse(http.StatusUnauthorized, "not authorized")
			return
		}
		if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
			w.Header().Set("Accept-Encoding", "identity")
			refuse(http.StatusUnsupportedMediaType, fmt.Sprintf("content encoding is %q, want none: compress wasm_binary instead", encoding))
			return
		}
		if contentType := r.Header.Get("Content-Type"); r.ContentLength != 0 && !isJSON(contentType) {
			w.Header().Set("Accept", "application/json")
			refuse(http.StatusUnsupportedMediaType, fmt.Sprintf("content type is %.100q, want application/json", contentType))
			return
		}
		request, refused := a.Bodies.Read(r.Context(), w, r, a.MaxBytes)
		if refused != nil {
			text, _ := json.Marshal(map[string]string{"error": refused.Error()}) // Never fails for a map of strings.
			refused.Answer(w, "application/json", string(text)+"\n")
			return
		}
		defer request.Release()
		code, body, err := f(r, request.Bytes)
		if err != nil {
			code, body = a.Code(err), map[string]string{"error": publicerr.Redact(err.Error())}
		}
		answer(w, code, body)
	})
}

// Change adds a route that changes something, and answers with a status.
func (a *API) Change(pattern string, code int, status string, change func(ctx context.Context, name string) error) {
	a.Handle(pattern, func(r *http.Request, _ []byte) (int, any, error) {
		return Status(code, status, change(r.Context(), r.PathValue("name")))
	})
}

// Status returns the answer to a change.
func Status(code int, text string, err error) (int, any, error) {
	return code, map[string]string{"status": text}, err
}

// isJSON reports whether a Content-Type is that of JSON. A page of another origin cannot send it
// without a preflight request.
func isJSON(contentType string) bool {
	mediaType, _, err := mime.ParseMediaType(contentType)
	return err == nil && mediaType == "application/json"
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
