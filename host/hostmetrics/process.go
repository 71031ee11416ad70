package hostmetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubewasm/kubewasm/host"
)

// The process: the memory mappings, where the system limits them, and the engine.
var (
	mappingsDesc = prometheus.NewDesc("kubewasm_memory_mappings",
		"Memory mappings of the process, which hold the machine code and memories of guests.", nil, nil)
	mappingsLimitDesc = prometheus.NewDesc("kubewasm_memory_mappings_limit",
		"Maximum number of memory mappings of the process (vm.max_map_count). Plugins are not loaded when seven eighths are in use.", nil, nil)
)

var engineDesc = prometheus.NewDesc("kubewasm_engine_info",
	"The engine that runs guests, compiler or interpreter; always 1.", []string{"engine"}, nil)

func describeProcess(ch chan<- *prometheus.Desc) {
	ch <- engineDesc
	ch <- mappingsDesc
	ch <- mappingsLimitDesc
}

func collectProcess(ch chan<- prometheus.Metric, rt *host.Runtime) {
	engine, _ := rt.Engine()
	ch <- prometheus.MustNewConstMetric(engineDesc, prometheus.GaugeValue, 1, string(engine))
	used, most := rt.Mappings()
	if most == 0 {
		return
	}
	ch <- prometheus.MustNewConstMetric(mappingsDesc, prometheus.GaugeValue, float64(used))
	ch <- prometheus.MustNewConstMetric(mappingsLimitDesc, prometheus.GaugeValue, float64(most))
}
