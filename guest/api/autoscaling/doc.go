// Package autoscaling has views of k8s.io/api/autoscaling/v2, for guests: HorizontalPodAutoscalers.
// Package core describes the use of views and the time for which they are valid.
package autoscaling
