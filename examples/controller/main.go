// Command controller scales workloads by ScalePolicies with guests in WebAssembly. The README
// beside it describes how to build, install and use it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"time"
	_ "time/tzdata" // Policies name time zones.

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/admission/webhook/clustercache"
	"github.com/kubewasm/kubewasm/examples/controller/autoscaler"
	"github.com/kubewasm/kubewasm/examples/controller/clustermetrics"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/hostmetrics"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/host/oci/ocimetrics"
	"github.com/kubewasm/kubewasm/host/service"
)

// options holds the flags.
type options struct {
	modules, registries, cacheDir string
	lookups                       string
	metricsAddress, probeAddress  string
	leaderElection                bool
	leaseNamespace                string
	workers                       int
	limits                        host.Limits
}

func main() {
	o := options{}
	flag.StringVar(&o.modules, "modules", "", "directory of modules available to policies as files; none if empty")
	flag.StringVar(&o.registries, "registries", "", "file with access to registries and trusted signers; policies cannot use registries if empty")
	flag.StringVar(&o.lookups, "lookups", "", "file with objects, the grants of what guests look up in the namespace of their policy; none if empty")
	flag.StringVar(&o.cacheDir, "cache-dir", "", "private directory for compiled modules")
	flag.StringVar(&o.metricsAddress, "metrics-address", ":8080", "address of the metrics; 0 disables them")
	flag.StringVar(&o.probeAddress, "probe-address", ":8081", "address of /healthz and /readyz")
	flag.BoolVar(&o.leaderElection, "leader-elect", false, "elect one active controller of several")
	flag.StringVar(&o.leaseNamespace, "leader-election-namespace", "", "namespace of the lease; the Pod's if empty")
	flag.IntVar(&o.workers, "workers", 4, "maximum number of simultaneously processed policies")
	flag.Uint64Var(&o.limits.MemoryBytes, "guest-memory", 64<<20, "maximum memory of a guest's instance, in bytes")
	flag.Int64Var(&o.limits.Fuel, "guest-fuel", 500_000_000, "maximum number of instructions of a guest's call")
	flag.DurationVar(&o.limits.Timeout, "guest-timeout", 5*time.Second, "maximum duration of a guest's call")
	flag.Parse()
	o.limits.Instances = o.workers
	logger := slog.New(slog.NewJSONHandler(os.Stderr, nil)) // JSON escapes the texts of guests.
	ctrl.SetLogger(logr.FromSlogHandler(logger.Handler()))
	if err := run(ctrl.SetupSignalHandler(), o, logger); err != nil {
		logger.Error("the controller has ended", "err", err)
		os.Exit(1)
	}
}

// run runs the controller until ctx ends.
func run(ctx context.Context, o options, logger *slog.Logger) (err error) {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	// A policy makes three requests in each of its intervals.
	config.QPS, config.Burst = 100, 200
	rt, err := host.NewRuntime(host.RuntimeConfig{
		CacheDir: o.cacheDir, KeepModules: true,
		CacheError: func(err error) { logger.Error("the controller runs without its cache", "err", err) },
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rt.Close(context.WithoutCancel(ctx))) }()
	if _, why := rt.Engine(); why != nil {
		logger.Warn("calls of plugins take about 50 times as long", "err", why)
	}
	sources := autoscaler.Sources{Directory: o.modules}
	if o.registries != "" {
		registries, err := oci.ReadConfig(o.registries)
		if err != nil {
			return err
		}
		registries.Logger = logger
		if sources.Registries, err = oci.New(registries); err != nil {
			return err
		}
		metrics.Registry.MustRegister(ocimetrics.New(sources.Registries))
	}
	measured, err := clustermetrics.New(config)
	if err != nil {
		return err
	}
	lookups, err := o.readLookups(ctx, config)
	if err != nil {
		return err
	}
	guests := hostmetrics.New(rt)
	metrics.Registry.MustRegister(guests)
	metrics.Registry.MustRegister(autoscaler.Collectors()...)
	mgr, err := manager.New(config, o.manager())
	if err != nil {
		return err
	}
	scales, err := autoscaler.NewScales(mgr)
	if err != nil {
		return err
	}
	sources.ConfigMaps = autoscaler.ConfigMaps(mgr.GetAPIReader(), mgr.GetCache())
	plugins := autoscaler.NewPlugins(autoscaler.PluginsConfig{
		Runtime: rt, Sources: sources, Metrics: measured, Lookups: lookups, Limits: o.limits, Observer: guests, Logger: logger,
	})
	defer plugins.Close()
	r := autoscaler.NewReconciler(mgr, scales, plugins, measured)
	if err := r.SetupWithManager(ctx, mgr, controller.Options{MaxConcurrentReconciles: o.workers}); err != nil {
		return err
	}
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping)); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// readLookups returns what guests look up, and the cache that has it.
func (o options) readLookups(ctx context.Context, config *rest.Config) (lookups service.Config, err error) {
	if o.lookups == "" {
		return lookups, nil
	}
	text, err := os.ReadFile(o.lookups)
	if err != nil {
		return lookups, err
	}
	var file struct {
		Objects []host.ObjectGrant `json:"objects"`
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return lookups, fmt.Errorf("%s: %w", o.lookups, err)
	}
	lookups.Objects = file.Objects
	lookups.Cluster, err = clustercache.NewForConfig(ctx, config)
	return lookups, err
}

// manager returns the options of the manager.
func (o options) manager() manager.Options {
	return manager.Options{
		Scheme:                 autoscaler.NewScheme(),
		Metrics:                metricsserver.Options{BindAddress: o.metricsAddress},
		HealthProbeBindAddress: o.probeAddress,
		LeaderElection:         o.leaderElection, LeaderElectionID: "scalepolicy-controller.autoscaling.kubewasm.dev",
		LeaderElectionNamespace: o.leaseNamespace, LeaderElectionReleaseOnCancel: true,
		// Guests do not use managed fields.
		Cache: cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
	}
}
