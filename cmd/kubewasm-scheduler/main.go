// Command kubewasm-scheduler is a kube-scheduler with plugins that are WebAssembly.
//
// It takes the flags of kube-scheduler. A plugin of its configuration whose args name a
// module, by file, url or oci, is that module; config.yaml is a complete configuration. The
// environment variable KUBEWASM_REGISTRIES names a file that says how registries are reached
// and what is trusted, which oci needs: docs/operating.md. build.sh builds the program for each supported minor of Kubernetes, Dockerfile an image of it, and
// the chart runs it beside the cluster's own scheduler: docs/scheduler.md has the steps.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/hostmetrics"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/host/oci/ocimetrics"
	"github.com/kubewasm/kubewasm/internal/foreign"
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

func run() (int, error) {
	o, err := read(os.Args[1:])
	if err != nil {
		return 1, err
	}
	var cache string
	if dir, err := os.UserCacheDir(); err == nil {
		cache = filepath.Join(dir, "kubewasm", "compiled")
	}
	logger := slog.New(slog.NewTextHandler(foreign.NewWriter(os.Stderr), nil))
	// The chart has a volume of 512 MiB for it.
	rt, err := host.NewRuntime(host.RuntimeConfig{
		CacheDir: cache, CacheBytes: 384 << 20, KeepModules: true,
		CacheError: func(err error) { logger.Error("the scheduler runs without a cache of compiled plugins", "err", err) },
	})
	if err != nil {
		return 1, err
	}
	defer rt.Close(context.Background())
	if _, why := rt.Engine(); why != nil {
		logger.Warn("calls of plugins take about 50 times as long", "err", why)
	}

	registries, err := oci.ReadConfig(os.Getenv("KUBEWASM_REGISTRIES"))
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

	var options []app.Option
	for _, name := range o.plugins {
		options = append(options, app.WithPlugin(name, kube.New(name, rt, sched.WithLogger(logger), sched.WithObserver(metrics))))
	}
	command := app.NewSchedulerCommand(options...)
	command.Flags().Bool(nativeOnlyFlag, false, "leave the classic buckets of histograms of plugins out of /metrics, for a Prometheus that scrapes native histograms")
	return cli.Run(command), nil
}

const nativeOnlyFlag = "native-histograms-only"

// options is the part of the arguments and of the configuration that concerns plugins.
type options struct {
	// plugins are the names of the plugins that have a module.
	plugins []string
	// declared are the plugins of the profiles.
	declared   []hostmetrics.Declared
	nativeOnly bool
}

// register registers the metrics of plugins, and returns their observer. The configuration is that
// of the start, or the program ends.
func (o *options) register(to prometheus.Registerer, rt *host.Runtime, artifacts *oci.Client) *hostmetrics.Collector {
	if o.nativeOnly {
		to = hostmetrics.NativeOnly(to)
	}
	metrics := hostmetrics.New(rt)
	metrics.Declare(func() error { return nil }, func() []hostmetrics.Declared { return o.declared })
	to.MustRegister(metrics, ocimetrics.New(artifacts))
	return metrics
}

// read reads the arguments, and the configuration that they name. What else is wrong with either,
// kube-scheduler reports.
func read(args []string) (*options, error) {
	o := new(options)
	flags := pflag.NewFlagSet("scheduler", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.BoolP("help", "h", false, "")
	flags.BoolVar(&o.nativeOnly, nativeOnlyFlag, false, "")
	file := flags.String("config", "", "")
	if err := flags.Parse(args); err != nil || *file == "" {
		return o, err
	}
	text, err := os.ReadFile(*file)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	var configuration struct {
		Profiles []struct {
			SchedulerName string `json:"schedulerName"`
			PluginConfig  []struct {
				Name string `json:"name"`
				Args struct {
					Module        map[string]any     `json:"module"`
					Mode          host.Mode          `json:"mode"`
					FailurePolicy host.FailurePolicy `json:"failurePolicy"`
				} `json:"args"`
			} `json:"pluginConfig"`
		} `json:"profiles"`
	}
	if err := yaml.Unmarshal(text, &configuration); err != nil {
		return nil, fmt.Errorf("read the configuration %s: %w", *file, err)
	}
	for _, profile := range configuration.Profiles {
		for _, plugin := range profile.PluginConfig {
			if plugin.Args.Module == nil {
				continue
			}
			if !slices.Contains(o.plugins, plugin.Name) {
				o.plugins = append(o.plugins, plugin.Name)
			}
			name := cmp.Or(profile.SchedulerName, corev1.DefaultSchedulerName) + "/" + plugin.Name
			o.declared = append(o.declared, hostmetrics.Declared{Plugin: name, Mode: plugin.Args.Mode, FailurePolicy: plugin.Args.FailurePolicy})
		}
	}
	return o, nil
}
