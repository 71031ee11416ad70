// Package meta has views of k8s.io/apimachinery/pkg/apis/meta/v1, for guests.
//
// A view reads a field where it lies in the bytes of its object and remembers
// it. Strings may be kept; for how long a view is good says package core.
package meta
