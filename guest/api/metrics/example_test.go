package metrics_test

import (
	"fmt"

	"github.com/kubewasm/kubewasm/guest/api/metrics"
)

func Example() {
	m := metrics.NodeMetricsFromJSON([]byte(`{"metadata": {"name": "n1"}, "timestamp": "2026-11-30T10:00:00Z", "window": "20s", "usage": {"cpu": "1500m"}}`))
	cpu := m.Usage().Get("cpu")
	fmt.Println(m.Metadata().Name(), cpu.MilliValue(), m.Window())

	load := metrics.SampleFromJSON([]byte(`{"metadata": {"name": "n1"}, "value": 62.5}`))
	fmt.Println(load.Metadata().Name(), load.Value())
	// Output:
	// n1 1500 20s
	// n1 62.5
}
