package hostmetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubewasm/kubewasm/host"
)

// The process: the memory mappings, where the system limits them, and the engine.
var (
	mappingsDesc = prometheus.NewDesc("kubewasm_memory_mappings",
		"Memory mappings of the process, in which the machine code and the memories of guests are.", nil, nil)
	mappingsLimitDesc = prometheus.NewDesc("kubewasm_memory_mappings_limit",
		"How many memory mappings the process may have (vm.max_map_count). No plugin is loaded when seven eighths are in use.", nil, nil)
)

var engineDesc = prometheus.NewDesc("kubewasm_engine_info",
	"1 for the engine that runs guests: compiler or interpreter.", []string{"engine"}, nil)

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
