// Package scheduling has views of k8s.io/api/scheduling/v1, for guests: PriorityClasses. Package
// core describes the use of views and the time for which they are valid.
package scheduling
