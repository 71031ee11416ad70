// Package apps has views of k8s.io/api/apps/v1, for guests: Deployments, StatefulSets, DaemonSets
// and ReplicaSets. Package core describes the use of views and the time for which they are valid.
package apps
