// Package autoscaling has views of k8s.io/api/autoscaling/v2, for guests:
// HorizontalPodAutoscalers. How views work, and for how long they are good, says
// package core.
package autoscaling
