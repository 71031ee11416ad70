package hostmetrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// NewHistogram returns a histogram with classic buckets, whose upper bounds are buckets, and a native
// one beside them, with at most 100 buckets that are at most 10 % wide. Prometheus gets the native one
// if it scrapes native histograms.
func NewHistogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
	}, labels)
}

// NativeOnly returns a Registerer that registers collectors with to, without the classic buckets of
// their native histograms. It is for programs whose every Prometheus scrapes native histograms. A
// scrape in the text format, which has no native histograms, gets their sums and counts.
func NativeOnly(to prometheus.Registerer) prometheus.Registerer { return nativeRegisterer{to} }

type nativeRegisterer struct{ to prometheus.Registerer }

// Register implements [prometheus.Registerer].
func (r nativeRegisterer) Register(c prometheus.Collector) error { return r.to.Register(nativeOnly{c}) }

// MustRegister implements [prometheus.Registerer].
func (r nativeRegisterer) MustRegister(collectors ...prometheus.Collector) {
	for _, c := range collectors {
		r.to.MustRegister(nativeOnly{c})
	}
}

// Unregister implements [prometheus.Registerer].
func (r nativeRegisterer) Unregister(c prometheus.Collector) bool {
	return r.to.Unregister(nativeOnly{c})
}

type nativeOnly struct{ prometheus.Collector }

func (c nativeOnly) Collect(to chan<- prometheus.Metric) {
	pipe(c.Collector.Collect, func(m prometheus.Metric) { to <- withoutBuckets{m} })
}

// pipe calls each with the metrics of collect.
func pipe(collect func(chan<- prometheus.Metric), each func(prometheus.Metric)) {
	ch := make(chan prometheus.Metric)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for m := range ch {
			each(m)
		}
	}()
	collect(ch)
	close(ch)
	<-done
}

// withoutBuckets is a metric without the classic buckets of a native histogram.
type withoutBuckets struct{ prometheus.Metric }

func (m withoutBuckets) Write(to *dto.Metric) error {
	err := m.Metric.Write(to)
	if to.Histogram != nil && to.Histogram.Schema != nil {
		to.Histogram.Bucket = nil
	}
	return err
}
