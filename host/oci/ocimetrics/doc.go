// Package ocimetrics exports the activity of the sources of an [oci.Client] as metrics for
// Prometheus:
//
//	prometheus.MustRegister(ocimetrics.New(client))
//
// The label source is the reference of the configuration.
package ocimetrics
