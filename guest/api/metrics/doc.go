// Package metrics has views of metrics, for guests: NodeMetrics and PodMetrics of metrics.k8s.io/v1beta1,
// and Samples, the values of the queries that a plugin's configuration names. All come from look-ups, as
// JSON. They are some moments old: see their timestamps.
package metrics

//go:generate kubewasm gen --output-dir . metrics.yaml
//go:generate kubewasm gen --lang rust --output-dir ../../rust/src/api/metrics metrics.yaml
//go:generate kubewasm gen --lang c --output-dir ../../c/kubewasm/metrics metrics.yaml
//go:generate kubewasm gen --lang as --output-dir ../../assemblyscript/api/metrics metrics.yaml
