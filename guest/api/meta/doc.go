// Package meta has views of k8s.io/apimachinery/pkg/apis/meta/v1, for guests.
//
// A view reads a field where it lies in the bytes of its object and remembers
// it; strings share the memory of the object and may be kept.
package meta
