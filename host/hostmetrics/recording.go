package hostmetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/cut"
)

// The series of recordings, by their directories.
var (
	recordingCalls = prometheus.NewDesc("kubewasm_recording_calls_total",
		"Calls of recorded plugins, by result: recorded, or dropped because the queue was full.", []string{"path", "result"}, nil)
	recordingBytes = prometheus.NewDesc("kubewasm_recording_bytes_total",
		"Bytes written to a recording.", []string{"path"}, nil)
	recordingFailures = prometheus.NewDesc("kubewasm_recording_failures_total",
		"Failed writes to a recording.", []string{"path"}, nil)
)

func describeRecordings(ch chan<- *prometheus.Desc) {
	ch <- recordingCalls
	ch <- recordingBytes
	ch <- recordingFailures
}

func collectRecordings(ch chan<- prometheus.Metric, rt *host.Runtime) {
	seen := map[string]bool{}
	for path, s := range rt.Recorders() {
		if path = cut.Valid(path); seen[path] {
			continue // Two paths that differ in bytes that are not UTF-8.
		}
		seen[path] = true
		counter := func(d *prometheus.Desc, n uint64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), append([]string{path}, labels...)...)
		}
		counter(recordingCalls, s.Recorded, "recorded")
		counter(recordingCalls, s.Dropped, "dropped")
		counter(recordingBytes, s.Bytes)
		counter(recordingFailures, s.Failures)
	}
}
