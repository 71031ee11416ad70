// Package policy has views of k8s.io/api/policy/v1, for guests: PodDisruptionBudgets and evictions.
// Package core describes the use of views and the time for which they are valid.
package policy
