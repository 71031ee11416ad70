// Package networking has views of k8s.io/api/networking/v1, for guests: Ingresses, NetworkPolicies
// and ranges of addresses. Package core describes the use of views and the time for which they are
// valid.
package networking
