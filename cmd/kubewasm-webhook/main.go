// Command kubewasm-webhook is an admission webhook whose policies are WebAssembly modules.
//
//	kubewasm-webhook -cert tls.crt -key tls.key -policies policies.yaml
//
// What the policies are stands in the file policies.yaml, which is followed. With
// -api-token-file or -api-clients there is a management API as well, for the paths
// /plugins; with -state-dir, what it loads is there after a restart. In a cluster, or
// with -kubeconfig, policies may come from ConfigMaps and Secrets, choose namespaces
// by their labels, and look at objects. With -audit-interval, what is in the cluster is
// audited by the policies as well.
//
// charts/kubewasm installs it in a cluster.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/admissionmetrics"
	"github.com/kubewasm/kubewasm/admission/clustercache"
	"github.com/kubewasm/kubewasm/admission/kubewarden"
	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities"
	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities/capabilitymetrics"
	"github.com/kubewasm/kubewasm/admission/kubewarden/ociregistry"
	"github.com/kubewasm/kubewasm/admission/manage"
	"github.com/kubewasm/kubewasm/admission/rego"
	"github.com/kubewasm/kubewasm/admission/stellar"
	"github.com/kubewasm/kubewasm/admission/webhook"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/hostmetrics"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/host/oci/ocimetrics"
	"github.com/kubewasm/kubewasm/internal/foreign"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "webhook:", foreign.Lines(err.Error()))
		}
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	server                                        webhook.Config
	policies, stateDir, cacheDir, tokenFile, kube string
	registries                                    string
	clients                                       []string
	tokens                                        tokenOptions
	audits                                        auditOptions
	memoryBytes                                   uint64
	cacheCopy                                     bool
	engine                                        host.Engine
	bodyBytes, cacheBytes                         int64
	answers                                       capabilities.Bounds
	interval, readyTimeout                        time.Duration
	logLevel                                      slog.Level
	configurations                                []string
	events                                        bool
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
	flags.StringVar(&o.policies, "policies", "", "`file` that declares the policies")
	flags.StringVar(&o.registries, "registries", "", "`file` with access to registries and trusted signers, for policies from oci")
	flags.StringVar(&o.stateDir, "state-dir", "", "`directory` for modules loaded by the management API")
	flags.StringVar(&o.cacheDir, "cache-dir", "", "`directory` for compiled modules")
	flags.BoolVar(&o.cacheCopy, "cache-copy", false, "copy machine code from that directory into memory instead of mapping its files, which must not be overwritten in place")
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
	flags.TextVar(&o.logLevel, "log-level", slog.LevelInfo, "log `level`: debug, info, warn or error; info logs denials, warn failures of policies, within a budget")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if o.policies == "" && o.tokenFile == "" && len(o.clients) == 0 {
		return nil, errors.New("-policies, -api-token-file and -api-clients are all missing: every request would pass")
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

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	lines := &denials{Handler: slog.NewJSONHandler(foreign.NewWriter(os.Stderr), &slog.HandlerOptions{Level: o.logLevel})}
	logger := slog.New(lines)
	rt, err := host.NewRuntime(host.RuntimeConfig{
		CacheDir: o.cacheDir, KeepModules: true, CacheBytes: o.cacheBytes, CacheCopy: o.cacheCopy, MemoryBytes: o.memoryBytes, Engine: o.engine,
		CacheError: func(err error) { logger.Error("the server runs without -cache-dir", "err", err) },
	})
	if err != nil {
		return err
	}
	defer rt.Close(context.Background())
	if _, why := rt.Engine(); why != nil {
		logger.Warn("calls of policies take about 50 times as long", "err", why)
	}

	verdicts, guests, registry := admissionmetrics.New(), hostmetrics.New(rt), prometheus.NewRegistry()
	registry.MustRegister(verdicts, guests, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	registries, err := oci.ReadConfig(o.registries)
	if err != nil {
		return err
	}
	registries.Logger = logger
	artifacts, err := oci.New(registries)
	if err != nil {
		return err
	}
	registry.MustRegister(ocimetrics.New(artifacts))
	rt.AddSources(host.Sources{OCI: artifacts.Source, Interval: o.interval})

	asked, err := capabilities.NewProvider(capabilities.Config{Registry: ociregistry.New(artifacts), Resolver: net.DefaultResolver, Bounds: o.answers})
	if err != nil {
		return err
	}
	registry.MustRegister(capabilitymetrics.New(asked))

	engine := admission.NewEngine()
	cfg := manage.Config{
		Runtime: rt, Engine: engine, Directory: o.stateDir, Interval: o.interval, ReadyTimeout: o.readyTimeout,
		Observer: verdicts, HostObserver: guests, Forget: verdicts.Forget, Settled: debug.FreeOSMemory, Logger: logger,
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
	} else if o.events {
		return errors.New("-events needs a cluster: -kubeconfig, outside of one")
	}
	if objects, ok := cfg.Cluster.(*clustercache.Cluster); ok {
		registry.MustRegister(admissionmetrics.NewCluster(objects))
	}
	manager, err := manage.New(ctx, cfg)
	if err != nil {
		return err
	}
	registry.MustRegister(admissionmetrics.NewManager(manager))
	defer func() {
		closing, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := manager.Close(closing); err != nil {
			logger.Error("end", "err", err)
		}
	}()
	if o.policies != "" {
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
			if err := manager.FollowFile(following, o.policies); err != nil {
				logger.Error("apply policies", "err", err)
			}
		}()
	}

	if o.audits.interval != 0 {
		if cluster == nil {
			return errors.New("-audit-interval needs a cluster: -kubeconfig, outside of one")
		}
		audits := newAuditing(&o.audits, cluster, engine, manager.Ready, logger)
		registry.MustRegister(audits.metrics)
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
	serving.Engine, serving.Ready, serving.Logger = engine, manager.Ready, logger
	serving.Metrics = promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	serving.Counter = verdicts
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
