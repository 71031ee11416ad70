// Package schedulingv1alpha3 has views of k8s.io/api/scheduling/v1alpha3, for guests: the
// scheduling of Pods in groups, to which Jobs of batch/v1 refer. Package core describes the use of
// views and the time for which they are valid.
package schedulingv1alpha3
