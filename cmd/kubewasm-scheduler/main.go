// Command kubewasm-scheduler is a kube-scheduler with plugins that are WebAssembly.
//
// It takes the flags of kube-scheduler, and those that -help lists as plugin flags. A plugin of its
// configuration whose args name a module is that module; config.yaml is a complete configuration.
//
//	kubewasm-scheduler --config config.yaml --check-plugins
//
// loads the plugins without a cluster, and reports all mistakes. build.sh builds the program for each
// supported minor of Kubernetes, Dockerfile an image of it, and the chart runs it beside the
// cluster's own scheduler: docs/scheduler.md has the steps.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register" // As in kube-scheduler's main, for --logging-format=json.
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // Metrics of requests to the API server.
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info.
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/configfile"
	"github.com/kubewasm/kubewasm/host/hostmetrics"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/host/oci/ocimetrics"
	"github.com/kubewasm/kubewasm/internal/clusterplugins"
	"github.com/kubewasm/kubewasm/internal/foreign"
	"github.com/kubewasm/kubewasm/internal/program"
	"github.com/kubewasm/kubewasm/internal/program/statusz"
	"github.com/kubewasm/kubewasm/sched"
	kube "github.com/kubewasm/kubewasm/sched/kube137" // Of the minor that the module file pins.
)

func main() {
	code, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "scheduler:", foreign.Lines(err.Error()))
	}
	os.Exit(code)
}

// options are the flags beside those of kube-scheduler.
type options struct {
	registries, management string
	status                 string
	checkPlugins, cluster  bool
	cacheDir               string
	cacheBytes             int64
	nativeOnly             bool
	isolation              string
	// profiles are the names of the profiles, and kubeconfig the file with the connection to the
	// cluster, empty in a Pod.
	profiles   []string
	kubeconfig string
	// plugins are the plugins of the profiles that have a module, or are declared by the cluster.
	plugins []configuredPlugin
	// objects are the plugins of the cluster, nil if there are none.
	objects *clusterPlugins
}

func (o *options) flags(flags *pflag.FlagSet) {
	flags.StringVar(&o.registries, "plugin-registries", "", "file with access to registries and trusted signers, for plugins from oci")
	flags.StringVar(&o.management, "plugin-management", "", "file with the address of the routes with which an operator shadows, profiles and rolls back plugins, and who may use them")
	flags.StringVar(&o.status, "plugin-status-address", "", "address of /statusz, with the state of plugins, their calls and traps, such as :10260, which is loopback; name another address to open it to others. Off if empty")
	flags.StringVar(&o.cacheDir, "plugin-cache-dir", "", "directory for compiled plugins; kubewasm/compiled in the user's cache directory if empty")
	flags.Int64Var(&o.cacheBytes, "plugin-cache-bytes", 384<<20, "maximum bytes in that directory")
	flags.StringVar(&o.isolation, "plugin-minimum-isolation", "", "lowest level of isolation of a plugin, none or process; plugins without one have it")
	flags.BoolVar(&o.nativeOnly, "native-histograms-only", false, "leave the classic buckets of histograms of plugins out of /metrics, for a Prometheus that scrapes native histograms")
	flags.BoolVar(&o.cluster, "plugin-cluster", false, "report on the SchedulerPlugins of the cluster, also if no profile has a plugin with the arguments {cluster: true}")
	flags.BoolVar(&o.checkPlugins, "check-plugins", false, "load the plugins of the configuration, report mistakes, and exit")
}

func run() (int, error) {
	o, err := read(os.Args[1:])
	if err != nil {
		return 1, err
	}
	if o.cacheDir == "" {
		if dir, err := os.UserCacheDir(); err == nil {
			o.cacheDir = filepath.Join(dir, "kubewasm", "compiled")
		}
	}
	// kube-scheduler's flags choose the form and the level of the log, which /debug/flags/v changes.
	status := new(statusz.Collector)
	secrets := new(clusterplugins.Secrets)
	logger := slog.New(secrets.Handler(status.Log(new(klogHandler))))
	rt, err := host.NewRuntime(host.RuntimeConfig{
		CacheDir: o.cacheDir, CacheBytes: o.cacheBytes, KeepModules: true, MinimumIsolation: host.Isolation(o.isolation),
		CacheError: func(err error) { logger.Error("the scheduler runs without a cache of compiled plugins", "err", err) },
	})
	if err != nil {
		return 1, err
	}
	defer rt.Close(context.Background())
	if _, why := rt.Engine(); why != nil {
		logger.Warn("calls of plugins take about 50 times as long", "err", why)
	}

	registries, err := oci.ReadConfig(o.registries)
	if err != nil {
		return 1, err
	}
	registries.Logger = logger
	artifacts, err := oci.New(registries)
	if err != nil {
		return 1, err
	}
	rt.AddSources(host.Sources{OCI: artifacts.Source})
	// Served with the scheduler's own metrics.
	metrics := o.register(legacyregistry.Registerer(), rt, artifacts)

	if o.checkPlugins {
		if err := check(o.plugins, rt, logger); err != nil {
			return 1, err
		}
		fmt.Printf("ok: %d plugins\n", len(o.plugins))
		return 0, nil
	}
	observer := host.Observers(metrics, status, program.FreeAfterBuilds())
	o.objects = followCluster(context.Background(), o, rt, observer, secrets, logger)
	if o.objects != nil && o.objects.failure == nil {
		legacyregistry.Registerer().MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: clusterplugins.StaleMetric, Help: clusterplugins.StaleHelp}, func() float64 { return o.objects.watch.Silent().Seconds() }))
	}
	loaded := &loadedPlugins{configured: o.plugins, cluster: o.objects}
	if o.management != "" {
		stop, err := manage(o.management, loaded, logger)
		if err != nil {
			return 1, err
		}
		defer stop()
	}
	if o.status != "" {
		stop, err := o.serveStatus(rt, loaded, status, logger)
		if err != nil {
			return 1, err
		}
		defer stop()
	}
	var options []app.Option
	for _, name := range o.names() {
		factory := kube.New(name, rt, func(c *sched.PluginConfig) { c.Logger, c.Observer = logger, observer })
		if o.objects != nil {
			factory = o.objects.factory(name, factory)
		}
		options = append(options, app.WithPlugin(name, loaded.factory(factory)))
	}
	command := app.NewSchedulerCommand(options...)
	o.flags(command.Flags())
	withUsage(command)
	logger.Info("the scheduler starts", "program", "kubewasm-scheduler", "version", program.ThisBuild().String())
	return cli.Run(command), nil
}

// register registers the metrics of plugins, and returns their observer. The configuration is that
// of the start, or the program ends.
func (o *options) register(to prometheus.Registerer, rt *host.Runtime, artifacts *oci.Client) *hostmetrics.Collector {
	if o.nativeOnly {
		to = hostmetrics.NativeOnly(to)
	}
	metrics := hostmetrics.New(rt)
	metrics.Declare(func() error { return nil }, func() (declared []hostmetrics.Declared) {
		for _, p := range o.plugins {
			d := hostmetrics.Declared{Plugin: p.profile + "/" + p.name, Mode: p.mode, FailurePolicy: p.failurePolicy}
			if p.cluster && o.objects != nil {
				d.Mode, d.FailurePolicy, _ = o.objects.settings(p.profile, p.name)
			}
			declared = append(declared, d)
		}
		return declared
	})
	to.MustRegister(program.ThisBuild().Collector("kubewasm-scheduler"), metrics, ocimetrics.New(artifacts))
	return metrics
}

// withUsage adds the flags of options to the usage of kube-scheduler, which has its own.
func withUsage(command *cobra.Command) {
	own := pflag.NewFlagSet("plugin flags", pflag.ContinueOnError)
	new(options).flags(own)
	usage, help := command.UsageFunc(), command.HelpFunc()
	command.SetUsageFunc(func(c *cobra.Command) error {
		err := usage(c)
		fmt.Fprintf(c.OutOrStderr(), "\nPlugin flags:\n\n%s", own.FlagUsages())
		return err
	})
	command.SetHelpFunc(func(c *cobra.Command, args []string) {
		help(c, args)
		fmt.Fprintf(c.OutOrStdout(), "\nPlugin flags:\n\n%s", own.FlagUsages())
	})
}

// configuredPlugin is a plugin of a profile with a module, or one that the cluster declares.
type configuredPlugin struct {
	profile, name string
	args          json.RawMessage
	mode          host.Mode
	failurePolicy host.FailurePolicy
	cluster       bool
}

// names returns the names of the plugins, each once.
func (o *options) names() (names []string) {
	for _, p := range o.plugins {
		if !slices.Contains(names, p.name) {
			names = append(names, p.name)
		}
	}
	return names
}

// check loads the plugins without a cluster. The error joins those of all that cannot be loaded.
func check(configured []configuredPlugin, rt *host.Runtime, logger *slog.Logger) error {
	var errs []error
	for _, p := range configured {
		if p.cluster {
			if err := configfile.YAML(p.args, new(clusterArgs)); err != nil {
				errs = append(errs, fmt.Errorf("profile %q: plugin %q: arguments: %w", p.profile, p.name, err))
			}
			continue // Its module is that of an object.
		}
		plugin, err := kube.New(p.name, rt, func(c *sched.PluginConfig) { c.Logger = logger })(context.Background(), &runtime.Unknown{Raw: p.args, ContentType: runtime.ContentTypeJSON}, nil)
		if err != nil {
			errs = append(errs, fmt.Errorf("profile %q: %w", p.profile, err))
			continue
		}
		errs = append(errs, plugin.(kube.Plugin).Close(context.Background()))
	}
	return errors.Join(errs...)
}

// read reads the arguments, and the configuration that they name. What else is wrong with either,
// kube-scheduler reports.
func read(args []string) (*options, error) {
	o := new(options)
	flags := pflag.NewFlagSet("scheduler", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.BoolP("help", "h", false, "")
	file := flags.String("config", "", "")
	o.flags(flags)
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if *file == "" {
		if o.checkPlugins {
			return nil, errors.New("--check-plugins needs --config")
		}
		return o, nil
	}
	text, err := os.ReadFile(*file)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	var configuration struct {
		ClientConnection struct {
			Kubeconfig string `json:"kubeconfig"`
		} `json:"clientConnection"`
		Profiles []struct {
			SchedulerName string `json:"schedulerName"`
			PluginConfig  []struct {
				Name string          `json:"name"`
				Args json.RawMessage `json:"args"`
			} `json:"pluginConfig"`
		} `json:"profiles"`
	}
	if err := yaml.Unmarshal(text, &configuration); err != nil {
		return nil, fmt.Errorf("read the configuration %s: %w", *file, err)
	}
	o.kubeconfig = configuration.ClientConnection.Kubeconfig
	for _, profile := range configuration.Profiles {
		o.profiles = append(o.profiles, cmp.Or(profile.SchedulerName, corev1.DefaultSchedulerName))
		for _, plugin := range profile.PluginConfig {
			var args struct {
				Module        map[string]any     `json:"module"`
				Mode          host.Mode          `json:"mode"`
				FailurePolicy host.FailurePolicy `json:"failurePolicy"`
				Cluster       bool               `json:"cluster"`
			}
			// kube-scheduler reports arguments of another form.
			if json.Unmarshal(plugin.Args, &args) == nil && (args.Module != nil || args.Cluster) {
				name := cmp.Or(profile.SchedulerName, corev1.DefaultSchedulerName)
				o.plugins = append(o.plugins, configuredPlugin{name, plugin.Name, plugin.Args, args.Mode, args.FailurePolicy, args.Cluster})
			}
		}
	}
	return o, nil
}
