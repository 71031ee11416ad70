package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kubewasm/kubewasm/internal/program/statusz"
)

// server serves metrics and probes:
//
//	/metrics  metrics for Prometheus
//	/healthz  200, or 503 with the reasons if only a restart can help
//	/readyz   200 while each mode serves and once each plugin was loaded, otherwise 503 with the
//	          reasons
//	/state    decisions on pods and containers and the values in force, in JSON:
//	          of all, or selected by ?namespace=, ?pod= and ?container=
//	/statusz  the plugins and the last refusals, see package statusz of internal
//
// The metrics come from packages hostmetrics and hookmetrics, and
//
//	kubewasm_agent_ready                        1 if /readyz answers 200
//	kubewasm_agent_connections_total      mode  connections to the container runtime
//	kubewasm_agent_inotify_watches        mode  watched directories of cgroups
//	kubewasm_agent_inotify_full           mode  1 while the kernel refuses more watches
//	kubewasm_agent_foreign_cgroups_total  mode  claims of cgroups outside of the claimant
//	kubewasm_agent_events_total           result  Events on Pods: written, dropped or failed
//	kubewasm_agent_node_stale_seconds           time since the API server last reported on the node
//	kubewasm_agent_cache_unusable               1 if the cache of compiled modules could not be used
//
// There is no authentication. Only /state and /statusz contain names of pods, and they answer only clients in
// the node's network.
type server struct {
	address string
	http    *http.Server
	logger  *slog.Logger
	// listening receives the address, nil for none.
	listening func(net.Addr)
}

func newServer(address, state string, a *agent, page http.Handler, logger *slog.Logger) (*server, error) {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, fmt.Errorf("http.address %q: %w", address, err)
	}
	a.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "kubewasm_agent_ready", Help: "Whether each mode serves, and each plugin was loaded."}, func() float64 {
		if a.ready() != nil {
			return 0
		}
		return 1
	}))
	probe := func(how func() error) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if err := how(); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			fmt.Fprintln(w, "ok")
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{}))
	mux.Handle("GET /healthz", probe(func() error { return a.all(probed.Healthy) }))
	mux.Handle("GET /readyz", probe(a.ready))
	switch state {
	case "", "Node":
		mux.Handle("GET /state", onlyLocal(a.source, statusz.Near))
		mux.Handle(statusz.Path, onlyLocal(page, statusz.Local))
	case "Anyone":
		mux.Handle("GET /state", a.source)
		mux.Handle(statusz.Path, page)
	case "None":
	default:
		return nil, fmt.Errorf("http.state %q is none of Node, Anyone, None", state)
	}
	return &server{address: address, logger: logger, http: &http.Server{
		Handler: mux, ReadTimeout: 5 * time.Second, WriteTimeout: 20 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}}, nil
}

// onlyLocal refuses clients that are not in the network of this process.
func onlyLocal(h http.Handler, local func(*http.Request) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !local(r) {
			http.Error(w, "the state is only for processes in the node's network; http.state: Anyone opens it to all", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// printState writes the answer of a configuration's agent about "all", "namespace/pod" or
// "namespace/pod/container".
func printState(ctx context.Context, cfg *config, of string, to io.Writer) error {
	if cfg.HTTP == nil {
		return errors.New("state: the configuration has no http, which the request needs")
	}
	host, port, err := net.SplitHostPort(cfg.HTTP.Address)
	if err != nil {
		return fmt.Errorf("http.address %q: %w", cfg.HTTP.Address, err)
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "localhost"
	}
	u := url.URL{Scheme: "http", Host: net.JoinHostPort(host, port), Path: "/state"}
	if of != "all" {
		names := strings.Split(of, "/")
		if len(names) < 2 || len(names) > 3 || slices.Contains(names, "") {
			return fmt.Errorf("state: %q is neither all nor namespace/pod nor namespace/pod/container", of)
		}
		q := url.Values{"namespace": names[:1], "pod": names[1:2]}
		if len(names) == 3 {
			q["container"] = names[2:]
		}
		u.RawQuery = q.Encode()
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req) // Uses no proxy.
	if err != nil {
		return fmt.Errorf("state: ask the agent: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return fmt.Errorf("state: the agent answers %s: %s", resp.Status, bytes.TrimSpace(why))
	}
	if _, err := io.Copy(to, resp.Body); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	return nil
}

// ready returns the reasons that the agent is not ready.
func (a *agent) ready() error {
	return errors.Join(a.all(probed.Ready), a.readiness.Ready(a.engine.Unavailable()))
}

// all joins the errors of the modes.
func (a *agent) all(how func(probed) error) error {
	var errs []error
	if !a.standalone() { // Otherwise the standalone mode checks.
		errs = append(errs, how(place{a}))
	}
	for _, m := range a.modes {
		if p, ok := m.(probed); ok {
			errs = append(errs, how(p))
		}
	}
	return errors.Join(errs...)
}

// place is a probe of the cgroups that an agent writes.
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
