// Package scheduling has views of k8s.io/api/scheduling/v1, for guests:
// PriorityClasses. How views work, and for how long they are good, says package
// core.
package scheduling
