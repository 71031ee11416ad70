package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// server serves metrics and probes:
//
//	/metrics  what Prometheus reads
//	/healthz  200, or 503 with the reasons when only a restart can help
//	/readyz   200 while each mode serves, otherwise 503 with the reasons
//
// The metrics are those of packages hostmetrics and hookmetrics, and
//
//	kubewasm_agent_ready                        1 while each mode serves
//	kubewasm_agent_connections_total      mode  connections to the container runtime
//	kubewasm_agent_inotify_watches        mode  directories of cgroups that are watched
//	kubewasm_agent_inotify_full           mode  1 while the kernel refuses to watch more
//	kubewasm_agent_foreign_cgroups_total  mode  claims of cgroups that were not the claimant's own
//
// There is no authentication, and no name of a pod is in its answers.
type server struct {
	address string
	http    *http.Server
	logger  *slog.Logger
	// listening is told of the address, nil for none.
	listening func(net.Addr)
}

func newServer(address string, a *agent, logger *slog.Logger) (*server, error) {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, fmt.Errorf("http.address %q: %w", address, err)
	}
	a.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "kubewasm_agent_ready", Help: "Whether each mode serves."}, func() float64 {
		if a.all(probed.Ready) != nil {
			return 0
		}
		return 1
	}))
	probe := func(how func(probed) error) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if err := a.all(how); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			fmt.Fprintln(w, "ok")
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{}))
	mux.Handle("GET /healthz", probe(probed.Healthy))
	mux.Handle("GET /readyz", probe(probed.Ready))
	return &server{address: address, logger: logger, http: &http.Server{
		Handler: mux, ReadTimeout: 5 * time.Second, WriteTimeout: 20 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}}, nil
}

// all joins what the modes say.
func (a *agent) all(how func(probed) error) error {
	var errs []error
	if a.pods == nil { // Otherwise the standalone mode looks.
		errs = append(errs, how(place{a}))
	}
	for _, m := range a.modes {
		if p, ok := m.(probed); ok {
			errs = append(errs, how(p))
		}
	}
	return errors.Join(errs...)
}

// place is where an agent writes.
type place struct{ *agent }

func (p place) Ready() error { return p.enforcer.Check(p.layout) }

func (place) Healthy() error { return nil }

// Run serves until ctx ends.
func (s *server) Run(ctx context.Context) error {
	l, err := net.Listen("tcp", s.address)
	if err != nil {
		return fmt.Errorf("serve metrics and probes: %w", err)
	}
	s.logger.Info("serving metrics and probes", slog.String("address", l.Addr().String()))
	if s.listening != nil {
		s.listening(l.Addr())
	}
	stop := context.AfterFunc(ctx, func() { s.http.Close() })
	defer stop()
	err = s.http.Serve(l)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("serve metrics and probes: %w", err)
}
