// Package kube137test makes the arguments that the kube-scheduler of Kubernetes 1.37 passes to
// plugins, for programs without a scheduler: tests and benchmarks. The scheduler's own
// constructors are in k8s.io/kubernetes, which a library cannot import.
package kube137test
