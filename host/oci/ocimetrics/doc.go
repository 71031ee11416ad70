// Package ocimetrics exports what the sources of an [oci.Client] do as metrics for
// Prometheus:
//
//	prometheus.MustRegister(ocimetrics.New(client))
//
// The label source is the reference of the configuration.
package ocimetrics
