package admissionmetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubewasm/kubewasm/admission/webhook/clustercache"
)

// Cluster collects the age of the objects that policies look up. It is safe for use by several
// goroutines.
type Cluster struct{ cluster *clustercache.Cluster }

var _ prometheus.Collector = (*Cluster)(nil)

// NewCluster returns the collector of a cluster, to be registered once.
func NewCluster(cluster *clustercache.Cluster) *Cluster { return &Cluster{cluster} }

var ageDesc = prometheus.NewDesc("kubewasm_admission_objects_age_seconds",
	"Time since the last answer of the API server to a list or watch of objects for look-ups; 0 while they are watched.", []string{"resource", "object_namespace"}, nil)

// Describe implements [prometheus.Collector].
func (c *Cluster) Describe(ch chan<- *prometheus.Desc) { ch <- ageDesc }

// Collect implements [prometheus.Collector].
func (c *Cluster) Collect(ch chan<- prometheus.Metric) {
	for _, a := range c.cluster.Ages() {
		ch <- prometheus.MustNewConstMetric(ageDesc, prometheus.GaugeValue, a.Age.Seconds(), a.Resource, a.Namespace)
	}
}
