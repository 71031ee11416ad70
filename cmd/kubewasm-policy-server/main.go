// Command kubewasm-policy-server runs the policies of Kubewarden's controller: it takes the files, the
// environment and the flags of Kubewarden's policy-server, and serves its paths and metrics.
// Point spec.image of a PolicyServer at it.
//
//	policy-server -policies policies.yml -port 3000
//
// See docs/kubewarden.md for what it does in another way.
package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities"
	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities/capabilitymetrics"
	"github.com/kubewasm/kubewasm/admission/kubewarden/ociregistry"
	"github.com/kubewasm/kubewasm/admission/kubewarden/policyserver"
	"github.com/kubewasm/kubewasm/admission/webhook/admissionmetrics"
	"github.com/kubewasm/kubewasm/admission/webhook/clustercache"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/hostmetrics"
	"github.com/kubewasm/kubewasm/host/oci/ocimetrics"
	"github.com/kubewasm/kubewasm/internal/foreign"
	"github.com/kubewasm/kubewasm/internal/program"
	"github.com/kubewasm/kubewasm/internal/program/statusz"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Getenv, foreign.NewWriter(os.Stderr))
	switch {
	case errors.Is(err, errVersion):
		fmt.Println("kubewasm-policy-server", program.ThisBuild())
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "kubewasm-policy-server:", foreign.Lines(err.Error()))
		stop()
		os.Exit(1)
	}
}

// levels are those of the setting log-level.
var levels = map[string]slog.Level{"trace": slog.LevelDebug, "debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

// run serves until ctx ends. It logs to out.
func run(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	return serve(ctx, args, getenv, out, prometheus.NewRegistry())
}

// serve is run with the registry that /metrics serves.
func serve(ctx context.Context, args []string, getenv func(string) string, out io.Writer, registry *prometheus.Registry) error {
	o, err := parse(args, getenv, out)
	if err != nil {
		return err
	}
	o.level.Set(levels[o.logLevel])
	handlerOptions := &slog.HandlerOptions{Level: &o.level}
	var lines slog.Handler = slog.NewTextHandler(out, handlerOptions)
	if o.logFormat == "json" {
		lines = slog.NewJSONHandler(out, handlerOptions)
	}
	status := new(statusz.Collector)
	logger := slog.New(status.Log(lines))
	for _, name := range o.ignored {
		logger.Warn("setting has no meaning for this server and is ignored", "name", name)
	}
	guests, guestsErr := readGuests(o)
	modules, modulesErr := newArtifacts(o, logger)
	if err := errors.Join(guestsErr, modulesErr, checkPolicies(o.policies)); err != nil {
		return err
	}
	rt, err := host.NewRuntime(o.runtime(logger))
	if err != nil {
		return err
	}
	defer rt.Close(context.Background())
	if _, why := rt.Engine(); why != nil {
		logger.Warn("calls of policies take about 50 times as long", "err", why)
	}
	if o.isolation, err = rt.Isolation(ctx); err != nil {
		logger.Warn("policies without a level of isolation run in this process, not in one of their own", "err", err)
	}
	o.adjustGuests(&guests)

	hostname := getenv("HOSTNAME")
	build := program.ThisBuild()
	calls := hostmetrics.New(rt)
	var metrics prometheus.Registerer = registry
	if o.nativeOnly {
		metrics = hostmetrics.NativeOnly(registry)
	}
	metrics.MustRegister(build.Collector("kubewasm-policy-server"), calls, ocimetrics.New(modules.client), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	telemetry, err := newTelemetry(ctx, o, registry, calls, hostname, logger)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		telemetry.close(closing, logger)
	}()

	cfg := policyserver.Config{
		Runtime: rt, Source: modules.source, Guests: guests, Timeout: o.timeout, AcceptNamespace: o.acceptNamespace, Workers: o.workers, ReadyTimeout: o.readyTimeout,
		Observer: refusals{telemetry, status}, HostObserver: host.Observers(calls, status, program.FreeAfterBuilds()), Logger: logger,
	}
	// The cache of objects ends after the last request.
	caching, stopCaching := context.WithCancel(context.WithoutCancel(ctx))
	defer stopCaching()
	provider, err := capabilities.NewProvider(capabilities.Config{Registry: ociregistry.New(modules.client), Resolver: net.DefaultResolver, Bounds: guests.Answers})
	if err != nil {
		return err
	}
	cfg.Capabilities = provider
	metrics.MustRegister(capabilitymetrics.New(provider))
	if config := clusterConfig(logger); config != nil {
		cluster, err := clustercache.NewForConfig(caching, config)
		if err != nil {
			return err
		}
		cfg.Cluster = cluster
		metrics.MustRegister(admissionmetrics.NewCluster(cluster))
	}
	server, err := policyserver.New(cfg)
	if err != nil {
		return err
	}
	calls.Declare(server.ConfigErr, func() (declared []hostmetrics.Declared) {
		for _, p := range server.Policies() {
			declared = append(declared, hostmetrics.Declared{Plugin: p.ID, State: p.State, Mode: p.Mode})
		}
		return declared
	})
	defer func() {
		closing, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := server.Close(closing); err != nil {
			logger.Error("end", "err", err)
		}
	}()
	if o.check {
		return o.test(ctx, server)
	}
	logger.Info("the server starts", "program", "kubewasm-policy-server", "version", build.String())
	// Modules may take a while to come. The server listens meanwhile, so that it is not taken
	// for dead, and is not ready.
	following, unfollow := context.WithCancelCause(ctx)
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		if err := server.FollowFile(following, o.policies); err != nil {
			unfollow(err) // With no policies at all there is nothing to serve.
		}
	}()
	defer func() {
		unfollow(nil)
		<-followed
	}()
	if o.guestsFile != "" {
		server.FollowGuests(following, o.guestsFile, o.adjustGuests)
	}
	serving := policyserver.ServeConfig{
		Addr: o.addr, CertFile: o.certFile, KeyFile: o.keyFile, ClientCAFiles: o.clientCAFiles, ProbeAddr: o.probeAddr, DrainDelay: o.drainDelay,
		Probes: probes(registry, o.status(rt, server, status)), Wrap: func(h http.Handler) http.Handler { return wrap(withProfiles(o, h)) },
	}
	if o.drainDelay == 0 {
		serving.DrainDelay = -1
	}
	err = server.Serve(following, serving)
	if cause := context.Cause(following); ctx.Err() == nil && cause != nil {
		return errors.Join(cause, err)
	}
	return err
}

// test loads the policies, and tests what else serving needs. The error joins all mistakes.
func (o *options) test(ctx context.Context, server *policyserver.Server) error {
	text, err := os.ReadFile(o.policies)
	if err == nil {
		var file *policyserver.File
		if file, err = policyserver.ParseFile(text); err == nil {
			err = server.Apply(ctx, file)
		}
	}
	errs := []error{err}
	if o.certFile != "" {
		if _, err := tls.LoadX509KeyPair(o.certFile, o.keyFile); err != nil {
			errs = append(errs, fmt.Errorf("-cert-file and -key-file: %w", err))
		}
	}
	for _, file := range o.clientCAFiles {
		text, err := os.ReadFile(file)
		if err == nil && !x509.NewCertPool().AppendCertsFromPEM(text) {
			err = fmt.Errorf("%s has no certificate in PEM", file)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("-client-ca-file: %w", err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	fmt.Printf("ok: %d policies\n", len(server.Policies()))
	return nil
}

// runtime returns the configuration of the Runtime.
func (o *options) runtime(logger *slog.Logger) host.RuntimeConfig {
	return host.RuntimeConfig{
		CacheDir: filepath.Join(o.downloadDir, "compiled"), CacheCopy: o.cacheCopy, MemoryBytes: o.memoryBytes, MinimumIsolation: o.isolation,
		CacheError: func(err error) { logger.Error("the server runs without a cache of compiled policies", "err", err) },
	}
}

// checkPolicies returns what is wrong with the form of a policies.yml, so that a server does not
// begin with none.
func checkPolicies(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read policies: %w", err)
	}
	_, err = policyserver.ParseFile(text)
	return err
}

func readGuests(o *options) (policyserver.Guests, error) {
	guests, err := policyserver.ReadGuestsFile(o.guestsFile)
	if o.guests != "" {
		guests, err = policyserver.ReadGuests([]byte(o.guests))
	}
	o.adjustGuests(&guests)
	return guests, errors.Join(err, guests.Check())
}

// adjustGuests adds the settings beside the file of guests.
func (o *options) adjustGuests(guests *policyserver.Guests) {
	guests.Isolation = cmp.Or(guests.Isolation, o.isolation)
	o.level.Set(levels[o.logLevel])
	if guests.LogLevel != nil {
		o.level.Set(*guests.LogLevel)
	}
	if o.namespacedCapabilities != "" {
		guests.NamespacedCapabilities = strings.Split(o.namespacedCapabilities, ",")
	}
	if o.defaultCapabilities != "" {
		guests.DefaultCapabilities = strings.Split(o.defaultCapabilities, ",")
	}
}

// clusterConfig returns how the cluster is reached, nil if there is none: that of the pod, or of
// a kubeconfig.
func clusterConfig(logger *slog.Logger) *rest.Config {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if err != nil {
		logger.Warn("there is no cluster: policies that look up objects cannot be loaded", "err", err)
		return nil
	}
	return config
}

// probes serves /metrics and /statusz.
func probes(registry *prometheus.Registry, page http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle(statusz.Path, page)
	return mux
}

// withProfiles returns h with the profiles, if they are asked for.
func withProfiles(o *options, h http.Handler) http.Handler {
	if !o.pprof {
		return h
	}
	mux := http.NewServeMux()
	mux.Handle("/", h)
	mux.HandleFunc("GET /debug/pprof/cpu", func(w http.ResponseWriter, r *http.Request) {
		// Kubewarden's server calls the seconds interval.
		query := r.URL.Query()
		if interval := query.Get("interval"); interval != "" {
			query.Set("seconds", interval)
			r.URL.RawQuery = query.Encode()
		}
		pprof.Profile(w, r)
	})
	mux.Handle("GET /debug/pprof/heap", pprof.Handler("heap"))
	return mux
}
