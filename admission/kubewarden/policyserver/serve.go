package policyserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/kubewasm/kubewasm/internal/serving"
)

// ServeConfig configures the listeners of a server. Zero fields have the defaults below.
type ServeConfig struct {
	// Addr is the address of the paths of the package comment. Listener, if set, is used instead,
	// and closed in the end.
	Addr     string
	Listener net.Listener
	// CertFile and KeyFile are the certificate and its key in PEM, which are reloaded when they
	// change. Without them there is no TLS.
	CertFile, KeyFile string
	// ClientCAFiles, if any, are PEM bundles of CAs: every client must show a certificate signed by
	// one of them. They are reloaded when they change.
	ClientCAFiles []string
	// Wrap wraps Handler before it is served; nil serves Handler itself.
	Wrap func(http.Handler) http.Handler
	// ProbeAddr is the address of /readiness and of Probes. They have no TLS, since the kubelet and
	// Prometheus show no certificate. ProbeListener, if set, is used instead. Without both, there
	// are no probes.
	ProbeAddr     string
	ProbeListener net.Listener
	// Probes serves the other paths of the probe address; nil serves nothing.
	Probes http.Handler
	// MaxConnections is the maximum number of connections, see package webhook. Default 1024.
	MaxConnections int
	// DrainDelay is the time for which an ending server still serves after /readiness has reported
	// that. Default 5 s.
	DrainDelay time.Duration
	// DrainTimeout bounds the wait for running requests at the end. Default 30 s.
	DrainTimeout time.Duration
}

// Serve serves requests until ctx ends, and returns nil when every request is answered. /readiness
// answers 200 while Ready is nil and the server is not about to end.
func (s *Server) Serve(ctx context.Context, cfg ServeConfig) error {
	var errs []error
	if (cfg.CertFile == "") != (cfg.KeyFile == "") {
		errs = append(errs, errors.New("certFile and keyFile need one another"))
	}
	if len(cfg.ClientCAFiles) != 0 && cfg.CertFile == "" {
		errs = append(errs, errors.New("clientCAFiles need certFile and keyFile"))
	}
	if cfg.Addr == "" && cfg.Listener == nil {
		errs = append(errs, errors.New("addr is empty"))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("policy server: %w", err)
	}
	handler := s.Handler()
	if cfg.Wrap != nil {
		handler = cfg.Wrap(handler)
	}
	api := &serving.Server{
		Name: "policy server", Addr: cfg.Addr, Listener: cfg.Listener, Handler: handler,
		CertFile: cfg.CertFile, KeyFile: cfg.KeyFile, ClientCAFiles: cfg.ClientCAFiles, ClientAuth: tls.RequireAndVerifyClientCert,
		WriteTimeout: maxEvaluation + 10*time.Second, MaxConnections: cfg.MaxConnections,
		DrainDelay: cfg.DrainDelay, DrainTimeout: cfg.DrainTimeout, Logger: s.cfg.Logger,
	}
	if cfg.ProbeAddr == "" && cfg.ProbeListener == nil {
		return api.Run(ctx)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readiness", func(w http.ResponseWriter, _ *http.Request) {
		err := s.Ready()
		switch {
		case api.Draining():
			err = errors.New("the server is about to end")
		case !api.Listening():
			err = errors.New("the server does not listen yet")
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	if cfg.Probes != nil {
		mux.Handle("/", cfg.Probes)
	}
	probes := &serving.Server{
		Name: "policy server: probes", Addr: cfg.ProbeAddr, Listener: cfg.ProbeListener, Handler: mux,
		WriteTimeout: maxEvaluation, MaxConnections: cfg.MaxConnections, DrainDelay: -1, DrainTimeout: time.Second, Logger: s.cfg.Logger,
	}
	// Probes are answered as long as requests are, so that /readiness reports that the server ends.
	probing, stop := context.WithCancel(context.WithoutCancel(ctx))
	serving, end := context.WithCancel(ctx)
	defer end()
	probed := make(chan error, 1)
	go func() {
		err := probes.Run(probing)
		if err != nil && probing.Err() == nil {
			s.log(slog.LevelError, "serve probes", "err", err)
		}
		end() // Without probes, the server would appear dead.
		probed <- err
	}()
	err := api.Run(serving)
	ended := probing.Err() == nil && ctx.Err() == nil
	stop()
	probesErr := <-probed
	if !ended {
		// Clients that keep connections open are not an error.
		probesErr = nil
	}
	return errors.Join(err, probesErr)
}
