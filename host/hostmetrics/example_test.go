package hostmetrics_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/hostmetrics"
)

// The Collector of a runtime is registered once and observes every plugin.
func Example() {
	ctx := context.Background()
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close(ctx)

	metrics := hostmetrics.New(rt)
	registry := prometheus.NewRegistry() // Or the one that the component has.
	registry.MustRegister(metrics)

	plugin, err := rt.Load(ctx, host.Config{
		Name:     "odd",
		Module:   host.ModuleConfig{File: "../testdata/good.wasm"},
		Limits:   host.Limits{Instances: 4},
		Observer: metrics,
	}, host.Adapter{Kind: abi.KindScheduler})
	if err != nil {
		log.Fatal(err)
	}
	inst, err := plugin.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for node := range uint64(3) {
		if _, err := inst.Call(ctx, abi.Filter, 0, 0, node); err != nil {
			log.Fatal(err)
		}
	}
	inst.Release()

	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).
		ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(page.Body.String()) {
		if strings.HasPrefix(line, "kubewasm_calls_total") && strings.Contains(line, "filter") ||
			strings.HasPrefix(line, "kubewasm_plugin_instances") {
			fmt.Print(line)
		}
	}
	// Output:
	// kubewasm_calls_total{function="filter",plugin="odd",result="abi"} 0
	// kubewasm_calls_total{function="filter",plugin="odd",result="canceled"} 0
	// kubewasm_calls_total{function="filter",plugin="odd",result="fuel"} 0
	// kubewasm_calls_total{function="filter",plugin="odd",result="ok"} 3
	// kubewasm_calls_total{function="filter",plugin="odd",result="stack"} 0
	// kubewasm_calls_total{function="filter",plugin="odd",result="timeout"} 0
	// kubewasm_calls_total{function="filter",plugin="odd",result="trap"} 0
	// kubewasm_plugin_instances{plugin="odd"} 1
	// kubewasm_plugin_instances_held{plugin="odd"} 0
	// kubewasm_plugin_instances_idle{plugin="odd"} 1
	// kubewasm_plugin_instances_limit{plugin="odd"} 4
}
