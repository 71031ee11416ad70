// Command scheduler is a kube-scheduler with plugins that are WebAssembly.
//
// It takes the flags of kube-scheduler. The plugins are named in the environment
// variable KUBEWASM_PLUGINS, separated by commas, by default the three guests in
// examples/sched; what each of them is, and where, stands in the pluginConfig of
// KubeSchedulerConfiguration. config.yaml is a complete one.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/component-base/cli"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/hostmetrics"
	"github.com/kubewasm/kubewasm/sched"
	"github.com/kubewasm/kubewasm/sched/kube137"
)

func main() {
	code, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "scheduler:", err)
	}
	os.Exit(code)
}

func run() (int, error) {
	var cache string
	if dir, err := os.UserCacheDir(); err == nil {
		cache = filepath.Join(dir, "kubewasm", "compiled")
	}
	rt, err := host.NewRuntime(host.RuntimeConfig{CacheDir: cache})
	if err != nil {
		return 1, err
	}
	defer rt.Close(context.Background())

	// Served with the scheduler's own metrics.
	metrics := hostmetrics.New(rt)
	legacyregistry.RawMustRegister(metrics)
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))

	var plugins []app.Option
	for _, name := range names() {
		plugins = append(plugins, app.WithPlugin(name, kube137.New(name, rt, sched.WithLogger(logger), sched.WithObserver(metrics))))
	}
	return cli.Run(app.NewSchedulerCommand(plugins...)), nil
}

// names returns the names of the plugins.
func names() []string {
	if list := os.Getenv("KUBEWASM_PLUGINS"); list != "" {
		return strings.Split(list, ",")
	}
	return []string{"zone", "image-locality", "gang"}
}
