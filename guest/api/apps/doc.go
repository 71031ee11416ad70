// Package apps has views of k8s.io/api/apps/v1, for guests: Deployments,
// StatefulSets, DaemonSets and ReplicaSets. How views work, and for how long they
// are good, says package core.
package apps
