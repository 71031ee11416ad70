// Package policy has views of k8s.io/api/policy/v1, for guests:
// PodDisruptionBudgets and evictions. How views work, and for how long they are
// good, says package core.
package policy
