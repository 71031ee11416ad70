package ocimetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/internal/cut"
)

// collector reads the state of the sources of a client when it is asked for metrics. It is
// safe for use by several goroutines.
type collector struct{ client *oci.Client }

var _ prometheus.Collector = (*collector)(nil)

// New returns the collector of a client, to be registered once. It reads the state of the sources when
// it is asked for metrics.
func New(client *oci.Client) prometheus.Collector { return &collector{client} }

var (
	fetchesDesc = prometheus.NewDesc("kubewasm_oci_fetches_total",
		"Checks of a source in a registry or a layout, by result.", []string{"source", "result"}, nil)
	staleDesc = prometheus.NewDesc("kubewasm_oci_source_stale",
		"Whether the registry is unreachable, so that the serving module may be out of date.", []string{"source"}, nil)
	checkedDesc = prometheus.NewDesc("kubewasm_oci_source_checked_timestamp_seconds",
		"Time of the last successful check of a source.", []string{"source"}, nil)
	infoDesc = prometheus.NewDesc("kubewasm_oci_source_info",
		"The digest of the last fetched manifest; always 1.", []string{"source", "digest"}, nil)
	cacheDesc = prometheus.NewDesc("kubewasm_oci_cache_bytes",
		"Size of the cache on disk.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{fetchesDesc, staleDesc, checkedDesc, infoDesc, cacheDesc} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	seen := map[string]bool{}
	for _, s := range c.client.Sources() {
		if s.Reference = cut.Valid(s.Reference); seen[s.Reference] {
			continue // Two ways to write one reference; a series twice fails the scrape.
		}
		seen[s.Reference] = true
		for result, n := range map[string]uint64{
			"fetched": s.Fetched, "unchanged": s.Unchanged, "from_cache": s.FromCache, "refused": s.Refused, "failed": s.Failed,
		} {
			ch <- prometheus.MustNewConstMetric(fetchesDesc, prometheus.CounterValue, float64(n), s.Reference, result)
		}
		stale := 0.0
		if s.Stale {
			stale = 1
		}
		ch <- prometheus.MustNewConstMetric(staleDesc, prometheus.GaugeValue, stale, s.Reference)
		if !s.Checked.IsZero() {
			ch <- prometheus.MustNewConstMetric(checkedDesc, prometheus.GaugeValue, float64(s.Checked.UnixMilli())/1000, s.Reference)
		}
		if s.Digest != "" {
			ch <- prometheus.MustNewConstMetric(infoDesc, prometheus.GaugeValue, 1, s.Reference, cut.Valid(s.Digest))
		}
	}
	ch <- prometheus.MustNewConstMetric(cacheDesc, prometheus.GaugeValue, float64(c.client.CacheBytes()))
}
