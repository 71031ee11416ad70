// Package schedulingv1alpha3 has views of k8s.io/api/scheduling/v1alpha3, for
// guests: how Pods are scheduled in groups, which Jobs of batch/v1 refer to. How
// views work, and for how long they are good, says package core.
package schedulingv1alpha3
