// Package networking has views of k8s.io/api/networking/v1, for guests: Ingresses,
// NetworkPolicies and ranges of addresses. How views work, and for how long they
// are good, says package core.
package networking
