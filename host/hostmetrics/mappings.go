package hostmetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubewasm/kubewasm/host"
)

// The memory mappings of the process, where the system limits them.
var (
	mappingsDesc = prometheus.NewDesc("kubewasm_memory_mappings",
		"Memory mappings of the process, in which the machine code and the memories of guests are.", nil, nil)
	mappingsLimitDesc = prometheus.NewDesc("kubewasm_memory_mappings_limit",
		"How many memory mappings the process may have (vm.max_map_count). No plugin is loaded when seven eighths are in use.", nil, nil)
)

func describeMappings(ch chan<- *prometheus.Desc) {
	ch <- mappingsDesc
	ch <- mappingsLimitDesc
}

func collectMappings(ch chan<- prometheus.Metric, rt *host.Runtime) {
	used, most := rt.Mappings()
	if most == 0 {
		return
	}
	ch <- prometheus.MustNewConstMetric(mappingsDesc, prometheus.GaugeValue, float64(used))
	ch <- prometheus.MustNewConstMetric(mappingsLimitDesc, prometheus.GaugeValue, float64(most))
}
