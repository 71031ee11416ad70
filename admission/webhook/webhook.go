// Package webhook serves an admission engine to API servers over TLS.
//
//	server, err := webhook.New(webhook.Config{
//		Addr: ":8443", CertFile: "tls.crt", KeyFile: "tls.key", Engine: engine,
//	})
//	if err != nil { … }
//	err = server.Run(ctx)
//
// # Paths
//
//	/validate, /mutate            all policies
//	/validate/{name}, /mutate/…   one policy; {namespace}/{name} for one of a namespace
//	/convert                      the plugin that converts the kind of the objects
//	/convert/{name}               one plugin
//	/healthz                      200 while the process runs
//	/readyz                       200 while the server accepts requests
//	/metrics                      Config.Metrics
//	/statusz                      Config.Status
//	/plugins…, /break-glass       Config.Manage
//
// # Hostile clients
//
// With Config.ClientCAFile, a client without a verified certificate is refused before its body is
// read, and with Config.Tokens so is one without a token. Neither applies to the paths of
// conversions: an API server has no credentials there (k8s.io/apiextensions-apiserver configures
// none), and a conversion reveals nothing but the client's converted object. Without these
// settings, every client may send reviews. Their memory is bounded in total, and for each address
// and connection. Connections, headers, and the times of a handshake, headers and a body are
// bounded as well. See admission.BodyLimits for the limits, and [admission.Handler] for the answers
// beyond them. An API server is always served if it does not share its address with hostile
// clients.
//
// # Changes
//
// Certificate, key and client CA are reloaded when their files change; unusable files leave the
// current ones in use. When ctx ends, /readyz fails first, and connections are closed after their
// current request. After Config.DrainDelay no more connections are accepted, and the server waits
// for running requests.
package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/webhook/admissionmetrics"
	"github.com/kubewasm/kubewasm/internal/publicerr"
	"github.com/kubewasm/kubewasm/internal/serving"
)

// Config configures a Server. Zero fields have the defaults below.
type Config struct {
	// Addr is the address to listen on. Default ":8443".
	Addr string
	// Listener, if set, is used instead of Addr, and closed when Run returns.
	Listener net.Listener
	// CertFile and KeyFile are the certificate and its key in PEM. Run requires them.
	CertFile, KeyFile string
	// ClientCAFile, if set, is a PEM bundle of CAs: clients of the admission webhooks must have a
	// certificate signed by one of them. Conversions, probes and metrics are served to every
	// client.
	ClientCAFile string
	// Tokens configures the bearer tokens of clients of the admission webhooks, in addition to
	// certificates; nil reads no tokens.
	Tokens *TokenConfig
	// Engine decides about requests. Required.
	Engine *admission.Engine
	// Ready returns the reason that the server should not get requests yet, nil if it should; a nil
	// func is always ready. Until it has returned nil once, webhooks answer 503, since an engine
	// would allow everything while its policies are being loaded.
	Ready func() error
	// Metrics serves /metrics; nil serves none.
	Metrics http.Handler
	// Status serves /statusz; nil serves none. It decides itself what a client may read.
	Status http.Handler
	// Counter counts requests; nil counts none.
	Counter *admissionmetrics.Metrics
	// Manage serves /plugins and /break-glass; nil serves none. It authenticates by itself.
	Manage http.Handler
	// MaxBodyBytes is the maximum length of a review. Default admission.DefaultMaxBodyBytes.
	MaxBodyBytes int64
	// Bodies bounds the memory of all reviews. nil means a separate one, with the default limits.
	Bodies *admission.Bodies
	// MaxConnections is the maximum number of connections. Beyond it, a new connection replaces
	// another: preferably one without a verified certificate, from an address with many
	// connections, or without a request. Default 1024.
	MaxConnections int
	// DrainDelay is the time for which an ending server still serves after /readyz has reported
	// that: the time that others take to notice. Default 5 s.
	DrainDelay time.Duration
	// DrainTimeout bounds the wait for running requests at the end. Default 30 s, the longest
	// timeout of a webhook.
	DrainTimeout time.Duration
	// Logger receives errors; nil drops them.
	Logger *slog.Logger
}

const defaultAddr = ":8443"

// Server is a server of webhooks. It runs once.
type Server struct {
	cfg Config
	// tokens is nil if tokens are not read.
	tokens *verifier
	// server manages the connections.
	server serving.Server
	// loaded is set after Config.Ready has returned nil once.
	loaded atomic.Bool
}

// New returns a server. The error joins all mistakes in the configuration, except those of the
// certificate, which Run returns.
func New(cfg Config) (*Server, error) {
	var errs []error
	if cfg.Engine == nil {
		errs = append(errs, errors.New("engine is missing"))
	}
	if cfg.MaxConnections < 0 {
		errs = append(errs, fmt.Errorf("maxConnections is %d, less than 0", cfg.MaxConnections))
	}
	if cfg.Tokens != nil {
		errs = append(errs, cfg.Tokens.check()...)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("webhook server: configuration: %w", err)
	}
	s := &Server{cfg: cfg}
	if cfg.Tokens != nil {
		s.tokens = newVerifier(*cfg.Tokens, cfg.Logger)
	}
	return s, nil
}

// Run serves until ctx ends, and returns nil when every request is answered.
func (s *Server) Run(ctx context.Context) error {
	c := &s.cfg
	var errs []error
	for _, f := range []struct{ name, value string }{{"certFile", c.CertFile}, {"keyFile", c.KeyFile}} {
		if f.value == "" {
			errs = append(errs, fmt.Errorf("%s is empty", f.name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("webhook server: %w", err)
	}
	s.server.CertFile, s.server.KeyFile = c.CertFile, c.KeyFile
	if c.ClientCAFile != "" {
		s.server.ClientCAFiles = []string{c.ClientCAFile}
	}
	s.server.Name, s.server.Addr, s.server.Listener = "webhook server", cmp.Or(c.Addr, defaultAddr), c.Listener
	s.server.MaxConnections, s.server.DrainDelay, s.server.DrainTimeout = c.MaxConnections, c.DrainDelay, c.DrainTimeout
	s.server.WriteTimeout, s.server.Logger, s.server.Handler = serving.MaxTimeout+10*time.Second, c.Logger, s.Handler()
	return s.server.Run(ctx)
}

// Handler returns the handler of the server, for use in another server.
func (s *Server) Handler() http.Handler {
	c := &s.cfg
	mux := http.NewServeMux()
	bodies := c.Bodies
	if bodies == nil {
		bodies = admission.NewBodies(admission.BodyLimits{})
	}
	if c.Counter != nil {
		c.Counter.ShowBodies(bodies)
	}
	handler := func(h *admission.Handler) http.Handler {
		h.MaxBodyBytes, h.Bodies, h.Logger = c.MaxBodyBytes, bodies, c.Logger
		if c.Counter != nil {
			h.Panicked = c.Counter.Panicked
		}
		return h
	}
	for _, webhook := range []string{"validate", "mutate", "convert"} {
		all := &admission.Handler{Validator: inGroups{Validator: c.Engine}}
		switch webhook {
		case "mutate":
			all = &admission.Handler{Mutator: inGroups{Mutator: c.Engine}}
		case "convert":
			all = &admission.Handler{Converter: c.Engine}
		}
		one := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			name := r.PathValue("name")
			if namespace := r.PathValue("namespace"); namespace != "" {
				name = namespace + "/" + name
			}
			policy, ok := c.Engine.ForPolicy(name)
			if !ok {
				serving.DropBody(w)
				serving.WriteStatus(w, http.StatusNotFound, "there is no such policy")
				return
			}
			h := &admission.Handler{Validator: inGroups{Validator: policy}}
			switch webhook {
			case "mutate":
				h = &admission.Handler{Mutator: inGroups{Mutator: policy}}
			case "convert":
				h = &admission.Handler{Converter: policy}
			}
			handler(h).ServeHTTP(w, r)
		})
		mux.Handle("/"+webhook, s.guard(webhook, handler(all)))
		for _, name := range []string{"/{name}", "/{namespace}/{name}"} {
			mux.Handle("/"+webhook+name, s.guard(webhook, one))
		}
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { ok(w) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := s.ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		ok(w)
	})
	if c.Metrics != nil {
		mux.Handle("GET /metrics", c.Metrics)
	}
	if c.Status != nil {
		mux.Handle("/statusz", c.Status)
	}
	if c.Manage != nil {
		mux.Handle("/plugins", c.Manage)
		mux.Handle("/plugins/", c.Manage)
		mux.Handle("/break-glass", c.Manage)
	}
	return mux
}

func ok(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintln(w, "ok")
}

func (s *Server) ready() error {
	switch {
	case s.server.Draining():
		return errors.New("the server is about to end")
	case !s.server.Listening():
		return errors.New("the server does not listen yet")
	}
	return s.policiesReady()
}

func (s *Server) policiesReady() error {
	if s.cfg.Ready != nil {
		if err := s.cfg.Ready(); err != nil {
			return err
		}
	}
	s.loaded.Store(true)
	return nil
}

// guard counts the requests of a webhook, requires a client certificate if there is a CA, and
// refuses requests until the policies are loaded.
func (s *Server) guard(webhook string, h http.Handler) http.Handler {
	var guarded http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if webhook != "convert" && s.cfg.ClientCAFile != "" && (r.TLS == nil || len(r.TLS.VerifiedChains) == 0) {
			serving.DropBody(w)
			serving.WriteStatus(w, http.StatusUnauthorized, "a client certificate is required")
			return
		}
		if s.tokens != nil && webhook != "convert" {
			authenticated, code, message := s.tokens.authenticate(r, webhook)
			if authenticated == nil {
				if code == http.StatusUnauthorized {
					w.Header().Set("WWW-Authenticate", `Bearer realm="webhooks"`)
				}
				serving.DropBody(w)
				serving.WriteStatus(w, code, message)
				return
			}
			r = authenticated
		}
		if !s.loaded.Load() {
			if err := s.policiesReady(); err != nil {
				serving.DropBody(w)
				serving.WriteStatus(w, http.StatusServiceUnavailable, publicerr.Words(err))
				return
			}
		}
		h.ServeHTTP(w, r)
	})
	if s.cfg.Counter != nil {
		guarded = s.cfg.Counter.Wrap(webhook, guarded)
	}
	return guarded
}
