// Package capabilitymetrics collects the counters of a provider of host capabilities as metrics of
// Prometheus:
//
//	registry.MustRegister(capabilitymetrics.New(provider))
package capabilitymetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities"
	"github.com/kubewasm/kubewasm/internal/cut"
)

// Collector collects the counters of a provider. It is safe for use by several goroutines.
type Collector struct{ provider *capabilities.Provider }

var _ prometheus.Collector = (*Collector)(nil)

// New returns the collector of a provider, to be registered once.
func New(provider *capabilities.Provider) *Collector { return &Collector{provider} }

var (
	callsDesc = prometheus.NewDesc("kubewasm_admission_capability_calls_total",
		"Calls of host capabilities by policies, by result.", []string{"policy", "operation", "result"}, nil)
	lookupsDesc = prometheus.NewDesc("kubewasm_admission_capability_cache_lookups_total",
		"Look-ups in the cache of answers, and misses that waited for an equal question.", []string{"result"}, nil)
	evictionsDesc = prometheus.NewDesc("kubewasm_admission_capability_cache_evictions_total",
		"Answers evicted from the cache.", nil, nil)
	entriesDesc = prometheus.NewDesc("kubewasm_admission_capability_cache_entries",
		"Answers in the cache.", nil, nil)
	cacheBytesDesc = prometheus.NewDesc("kubewasm_admission_capability_cache_bytes",
		"Memory of the answers in the cache.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{callsDesc, lookupsDesc, evictionsDesc, entriesDesc, cacheBytesDesc} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	s := c.provider.Stats()
	for _, n := range s.Calls {
		ch <- prometheus.MustNewConstMetric(callsDesc, prometheus.CounterValue, float64(n.Count), cut.Valid(n.Policy), n.Operation, n.Result)
	}
	for result, n := range map[string]uint64{"hit": s.Hits, "miss": s.Misses, "shared": s.Shared} {
		ch <- prometheus.MustNewConstMetric(lookupsDesc, prometheus.CounterValue, float64(n), result)
	}
	ch <- prometheus.MustNewConstMetric(evictionsDesc, prometheus.CounterValue, float64(s.Evictions))
	ch <- prometheus.MustNewConstMetric(entriesDesc, prometheus.GaugeValue, float64(s.Entries))
	ch <- prometheus.MustNewConstMetric(cacheBytesDesc, prometheus.GaugeValue, float64(s.Bytes))
}
