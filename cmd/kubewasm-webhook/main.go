// Command kubewasm-webhook is an admission webhook whose policies are WebAssembly modules.
//
//	kubewasm-webhook -cert tls.crt -key tls.key -config policies.yaml
//	kubewasm-webhook -cert tls.crt -key tls.key -cluster
//	kubewasm-webhook -cert tls.crt -key tls.key -config policies.yaml -check
//
// The configuration file declares the policies, or the cluster's objects of the kinds
// ClusterAdmissionPolicy and AdmissionPolicy. Both are followed. The last form loads the
// policies, tests everything that serving needs, and reports all mistakes. With
// -api-token-file or -api-clients there is a management API as well, for the paths
// /plugins and /break-glass; with -state-dir, what it loads is there after a restart. In a cluster, or
// with -kubeconfig, policies may come from ConfigMaps and Secrets, choose namespaces
// by their labels, and look at objects. With -audit-interval, what is in the cluster is
// audited by the policies as well.
//
// charts/kubewasm installs it in a cluster.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/kubewarden"
	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities"
	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities/capabilitymetrics"
	"github.com/kubewasm/kubewasm/admission/kubewarden/ociregistry"
	"github.com/kubewasm/kubewasm/admission/rego"
	"github.com/kubewasm/kubewasm/admission/stellar"
	"github.com/kubewasm/kubewasm/admission/webhook"
	"github.com/kubewasm/kubewasm/admission/webhook/admissionmetrics"
	"github.com/kubewasm/kubewasm/admission/webhook/clustercache"
	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/hostmetrics"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/host/oci/ocimetrics"
	"github.com/kubewasm/kubewasm/host/oci/sigstore"
	"github.com/kubewasm/kubewasm/internal/clusterplugins"
	"github.com/kubewasm/kubewasm/internal/foreign"
	"github.com/kubewasm/kubewasm/internal/program"
	"github.com/kubewasm/kubewasm/internal/program/statusz"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "kubewasm-webhook:", foreign.Lines(err.Error()))
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	server                                      webhook.Config
	config, stateDir, cacheDir, tokenFile, kube string
	registries, trustConfig                     string
	check, version                              bool
	clients                                     []string
	tokens                                      tokenOptions
	audits                                      auditOptions
	memoryBytes                                 uint64
	cacheCopy                                   bool
	engine                                      host.Engine
	isolation                                   host.Isolation
	bodyBytes, cacheBytes                       int64
	answers                                     capabilities.Bounds
	interval, readyTimeout                      time.Duration
	log                                         program.Log
	configurations                              []string
	events, nativeOnly, objects                 bool
}

func parse(args []string) (*options, error) {
	o := new(options)
	flags := flag.NewFlagSet("webhook", flag.ContinueOnError)
	flags.StringVar(&o.server.Addr, "addr", ":8443", "`address` to listen on")
	flags.StringVar(&o.server.CertFile, "cert", "", "`file` of the certificate, PEM")
	flags.StringVar(&o.server.KeyFile, "key", "", "`file` of its key, PEM")
	flags.StringVar(&o.server.ClientCAFile, "client-ca", "", "`file` of the CA that signs the API server's client certificate; not requested if empty")
	o.tokens.flags(flags)
	o.audits.flags(flags)
	flags.DurationVar(&o.server.DrainDelay, "drain-delay", 5*time.Second, "time to keep serving after a signal to end")
	flags.StringVar(&o.config, "config", "", "`file` that declares the policies; it is followed")
	flags.BoolVar(&o.objects, "cluster", false, "serve the ClusterAdmissionPolicies and AdmissionPolicies of the cluster, beside those of -config, and write a PluginReport")
	flags.BoolVar(&o.check, "check", false, "load the policies, test what serving needs, report mistakes, and exit")
	flags.BoolVar(&o.version, "version", false, "print the version, and exit")
	o.log.Flags(flags)
	flags.StringVar(&o.registries, "registries", "", "`file` with access to registries and trusted signers, for policies from oci")
	flags.StringVar(&o.trustConfig, "sigstore-trust-config", "", "`file` with a trusted root of Sigstore or a ClientTrustConfig, JSON, to verify identities by; it is followed. Without it, only keys are verified")
	flags.StringVar(&o.stateDir, "state-dir", "", "`directory` for modules loaded by the management API")
	flags.StringVar(&o.cacheDir, "cache-dir", "", "`directory` for compiled modules")
	flags.BoolVar(&o.cacheCopy, "cache-copy", false, "map copies without names of machine code in that directory instead of its files, which must not be overwritten in place")
	flags.StringVar((*string)(&o.isolation), "minimum-isolation", "", "lowest `level` of isolation of a policy, none or process; policies without one have it")
	flags.StringVar((*string)(&o.engine), "engine", "", "`engine` for guests: compiler fails to start where it is unsupported, interpreter needs no compiler; empty selects the best available")
	flags.Int64Var(&o.cacheBytes, "cache-bytes", 0, "maximum `bytes` in that directory; 0 means 1 GiB")
	flags.StringVar(&o.tokenFile, "api-token-file", "", "`file` of the bearer token for the management API")
	flags.Func("api-clients", "comma-separated `names` of client certificates for the management API, which needs these or a token; requires -client-ca", func(names string) error {
		o.clients = strings.Split(names, ",")
		return nil
	})
	flags.DurationVar(&o.interval, "interval", 30*time.Second, "interval of checks of ConfigMaps and Secrets with modules, and of files without change events")
	flags.DurationVar(&o.readyTimeout, "ready-timeout", 0, "maximum `time` for which policies that cannot be loaded keep the server from being ready; 0 means 10m")
	flags.StringVar(&o.kube, "kubeconfig", "", "`file` with the connection to a cluster, outside of it")
	flags.Uint64Var(&o.memoryBytes, "memory", 0, "maximum `bytes` of all guests together; 0 means half of the memory available to the process")
	flags.Int64Var(&o.bodyBytes, "body-memory", 256<<20, "maximum `bytes` of all requests to the webhooks together")
	flags.Int64Var(&o.server.MaxBodyBytes, "review-bytes", admission.DefaultMaxBodyBytes, "maximum `bytes` of one request; the default fits every object that an API server can store")
	flags.IntVar(&o.answers.CacheBytes, "answer-bytes", 0, "maximum `bytes` of cached answers about artifacts, addresses and rights; 0 means 16 MiB")
	flags.IntVar(&o.answers.CacheEntries, "answer-entries", 0, "maximum number of such `answers`; 0 means 4096")
	flags.DurationVar(&o.answers.TTL.Duration, "answer-ttl", 0, "lifetime of such answers, at most 5s for addresses and rights; 0 means 1m")
	flags.DurationVar(&o.answers.Timeout.Duration, "answer-timeout", 0, "timeout of such a question; 0 means 10s")
	flags.IntVar(&o.server.MaxConnections, "connections", 1024, "maximum number of simultaneous `connections`; a further one replaces another")
	o.configurations = []string{"kubewasm-webhook"}
	flags.Func("configurations", "comma-separated `names` of the webhook configurations that send requests here, for a log of matches that they do not send. Default kubewasm-webhook", func(names string) error {
		o.configurations = strings.Split(names, ",")
		return nil
	})
	flags.BoolVar(&o.events, "events", false, "write an Event for each denial, at most 25 and one every 5 minutes for an object and policy")
	flags.BoolVar(&o.nativeOnly, "native-histograms-only", false, "leave the classic buckets of histograms out of /metrics, for a Prometheus that scrapes native histograms")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if o.version {
		return o, nil
	}
	if o.config == "" && o.tokenFile == "" && len(o.clients) == 0 && !o.objects {
		return nil, errors.New("-config, -cluster, -api-token-file and -api-clients are all missing: every request would pass")
	}
	if err := errors.Join(o.tokens.check(), o.audits.check()); err != nil {
		return nil, err
	}
	if err := o.answers.Check(); err != nil {
		return nil, fmt.Errorf("-answer-…: %w", err)
	}
	if o.server.MaxBodyBytes <= 0 {
		return nil, fmt.Errorf("-review-bytes is %d, want more than 0", o.server.MaxBodyBytes)
	}
	if o.bodyBytes/2 < o.server.MaxBodyBytes {
		return nil, fmt.Errorf("-body-memory is %d, less than twice -review-bytes of %d", o.bodyBytes, o.server.MaxBodyBytes)
	}
	if len(o.clients) != 0 && o.server.ClientCAFile == "" {
		return nil, errors.New("-api-clients needs -client-ca")
	}
	return o, nil
}

func run(ctx context.Context, args []string) error { return serve(ctx, args, prometheus.NewRegistry()) }

// serve runs the program. /metrics serves registry.
func serve(ctx context.Context, args []string, registry *prometheus.Registry) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	build := program.ThisBuild()
	if o.version {
		fmt.Println("kubewasm-webhook", build)
		return nil
	}
	status := new(statusz.Collector)
	lines := &denials{Handler: status.Log(o.log.Handler(os.Stderr))}
	secrets := new(clusterplugins.Secrets)
	logger := slog.New(secrets.Handler(lines))
	rt, err := host.NewRuntime(host.RuntimeConfig{
		CacheDir: o.cacheDir, KeepModules: true, CacheBytes: o.cacheBytes, CacheCopy: o.cacheCopy, MemoryBytes: o.memoryBytes, Engine: o.engine, MinimumIsolation: o.isolation,
		CacheError: func(err error) { logger.Error("the server runs without -cache-dir", "err", err) },
	})
	if err != nil {
		return err
	}
	defer rt.Close(context.Background())
	if _, why := rt.Engine(); why != nil {
		logger.Warn("calls of policies take about 50 times as long", "err", why)
	}

	verdicts, guests := admissionmetrics.New(), hostmetrics.New(rt)
	var metrics prometheus.Registerer = registry
	if o.nativeOnly {
		metrics = hostmetrics.NativeOnly(registry)
	}
	metrics.MustRegister(build.Collector("kubewasm-webhook"), verdicts, guests, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	registries, err := oci.ReadConfig(o.registries)
	if err != nil {
		return err
	}
	registries.Logger = logger
	if err := sigstore.Follow(&registries, o.trustConfig); err != nil {
		return fmt.Errorf("-sigstore-trust-config: %w", err)
	}
	artifacts, err := oci.New(registries)
	if err != nil {
		return err
	}
	metrics.MustRegister(ocimetrics.New(artifacts))
	rt.AddSources(host.Sources{OCI: artifacts.Source, Interval: o.interval})

	asked, err := capabilities.NewProvider(capabilities.Config{Registry: ociregistry.New(artifacts), Resolver: net.DefaultResolver, Bounds: o.answers})
	if err != nil {
		return err
	}
	metrics.MustRegister(capabilitymetrics.New(asked))

	engine := admission.NewEngine()
	fuel := newFuelQuotas(logger)
	cfg := manage.Config{
		Runtime: rt, Engine: engine, Directory: o.stateDir, Interval: o.interval, ReadyTimeout: o.readyTimeout,
		Observer: verdicts, HostObserver: host.Observers(guests, status, program.FreeAfterBuilds(), fuel), Forget: verdicts.Forget, Logger: logger, LogLevel: &o.log.Level,
	}
	cluster, err := connect(ctx, o.kube, &cfg)
	if err != nil {
		return err
	}
	cfg.Dialects = append(kubewarden.New(kubewarden.Options{Cluster: cfg.Cluster, Capabilities: asked}), rego.New(rego.Options{Cluster: cfg.Cluster}), stellar.New())
	if cluster != nil {
		if o.events {
			stop, err := lines.writeEvents(cluster)
			if err != nil {
				return err
			}
			defer stop()
		}
		compared, err := newConfigurations(cluster, o.configurations, engine, logger)
		if err != nil {
			return err
		}
		comparing, stop := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			compared.run(comparing, o.interval)
		}()
		defer func() {
			stop()
			<-ended
		}()
	} else if o.events || o.objects {
		return errors.New("-events and -cluster need a cluster: -kubeconfig, outside of one")
	}
	if objects, ok := cfg.Cluster.(*clustercache.Cluster); ok {
		metrics.MustRegister(admissionmetrics.NewCluster(objects))
	}
	manager, err := manage.New(ctx, cfg)
	if err != nil {
		return err
	}
	metrics.MustRegister(admissionmetrics.NewManager(manager, guests))
	defer func() {
		closing, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := manager.Close(closing); err != nil {
			logger.Error("end", "err", err)
		}
	}()
	if o.check {
		return o.test(ctx, manager, cluster)
	}
	logger.Info("the server starts", "program", "kubewasm-webhook", "version", build.String())
	if o.config != "" {
		following, unfollow := context.WithCancel(ctx)
		applied := make(chan struct{})
		defer func() {
			unfollow()
			<-applied
		}()
		// Modules may take a while to come. The server listens meanwhile, so that
		// it is not taken for dead, and is not ready.
		manager.ExpectFile()
		go func() {
			defer close(applied)
			// A policy that is refused keeps its own requests out, and no others.
			if err := manager.FollowFile(following, o.config); err != nil {
				logger.Error("apply policies", "err", err)
			}
		}()
	}

	ready := manager.Ready
	if o.objects {
		kind, _ := rt.Engine()
		process := clusterplugins.ThisProcess("kubewasm-webhook", build.Short(), string(kind))
		process.Secrets = secrets
		watch, stop, err := followObjects(ctx, cluster, cfg.Namespaces, manager, artifacts, fuel, process, logger)
		if err != nil {
			return err
		}
		defer stop()
		metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: clusterplugins.StaleMetric, Help: clusterplugins.StaleHelp}, func() float64 { return watch.Silent().Seconds() }))
		ready = func() error {
			err := manager.Ready()
			if err != nil {
				err = errors.Join(err, watch.Err())
			}
			return err
		}
	}

	if o.audits.interval != 0 {
		if cluster == nil {
			return errors.New("-audit-interval needs a cluster: -kubeconfig, outside of one")
		}
		audits := newAuditing(&o.audits, cluster, engine, manager.Ready, logger)
		metrics.MustRegister(audits.metrics)
		auditing, stop := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			audits.run(auditing)
		}()
		defer func() {
			stop()
			<-ended
		}()
	}

	if o.stateDir == "" && (o.tokenFile != "" || len(o.clients) != 0) {
		logger.Warn("without -state-dir, modules of the management API are lost when the server ends")
	}
	serving := o.server
	serving.Bodies = admission.NewBodies(admission.BodyLimits{Bytes: o.bodyBytes})
	serving.Engine, serving.Ready, serving.Logger = engine, ready, logger
	serving.Metrics = promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	serving.Counter, serving.Status = verdicts, o.status(rt, manager, status)
	if serving.Tokens, err = o.tokens.config(ctx, o.kube); err != nil {
		return err
	}
	if o.tokenFile != "" || len(o.clients) != 0 {
		serving.Manage = manager.API(o.auth())
	}
	server, err := webhook.New(serving)
	if err != nil {
		return err
	}
	return server.Run(ctx)
}

// auth decides which clients may use the management API: those with the token in a file, which may
// change, or a certificate.
func (o *options) auth() manage.Auth {
	auth := manage.Auth{ClientNames: o.clients}
	if o.tokenFile != "" {
		auth.Token = func() (string, error) {
			token, err := os.ReadFile(o.tokenFile)
			return string(token), err
		}
	}
	return auth
}

// test loads the policies, and tests what else serving needs. The error joins all mistakes.
func (o *options) test(ctx context.Context, manager *manage.Manager, cluster *rest.Config) error {
	var errs []error
	if o.config != "" {
		text, err := os.ReadFile(o.config)
		if err == nil {
			var file *manage.File
			if file, err = manage.ParseFile(text); err == nil {
				err = manager.Apply(ctx, file)
			}
		}
		errs = append(errs, err)
	}
	if o.tokenFile != "" {
		text, err := os.ReadFile(o.tokenFile)
		if err == nil && strings.TrimSpace(string(text)) == "" {
			err = fmt.Errorf("-api-token-file: %s is empty", o.tokenFile)
		}
		errs = append(errs, err)
	}
	if cluster != nil {
		client, err := discovery.NewDiscoveryClientForConfig(cluster)
		if err == nil {
			_, err = client.ServerVersion()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("connect to the cluster: %w", err))
		}
	}
	if o.server.CertFile == "" || o.server.KeyFile == "" {
		errs = append(errs, errors.New("-cert and -key are missing: API servers call webhooks over TLS alone"))
	} else if _, err := tls.LoadX509KeyPair(o.server.CertFile, o.server.KeyFile); err != nil {
		errs = append(errs, fmt.Errorf("-cert and -key: %w", err))
	}
	if file := o.server.ClientCAFile; file != "" {
		text, err := os.ReadFile(file)
		if err == nil && !x509.NewCertPool().AppendCertsFromPEM(text) {
			err = fmt.Errorf("%s has no certificate in PEM", file)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("-client-ca: %w", err))
		}
	}
	_, err := o.tokens.config(ctx, o.kube)
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	for _, p := range manager.List() {
		for _, warning := range p.Warnings {
			foreign.Fprintf(os.Stdout, "policy %q: warning: %s\n", p.Name, warning)
		}
	}
	fmt.Printf("ok: %d policies\n", len(manager.List()))
	return nil
}
