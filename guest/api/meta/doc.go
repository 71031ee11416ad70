// Package meta has views of k8s.io/apimachinery/pkg/apis/meta/v1, for guests.
//
// A view reads a field in place, from the bytes of its object, and remembers it. Strings may be
// kept; package core describes the time for which a view is valid.
package meta
