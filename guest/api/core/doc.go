// Package core has views of k8s.io/api/core/v1, for guests: of a Pod, a Node and
// everything else in it.
//
// A view is made of an object's bytes, protobuf or JSON, and costs nothing until a field is read;
// values that were read once are remembered. Missing messages read as empty ones.
//
//	for _, c := range pod.Spec().Containers() {
//		if strings.HasSuffix(c.Image(), ":latest") { … }
//	}
//
// The accessors have the names of the fields in k8s.io/api. For fields that are pointers, a second
// accessor reports whether the field is there:
//
//	if pod.Spec().HasPriority() { … pod.Spec().Priority() … }
//
// Strings may be kept for ever. A view is of one version of its object. Once the host has shown the
// guest another version, the view returns values that were read before and panics at any other
// read. So a plugin keeps strings, not views, from one call to the next; the Pod of a scheduling
// cycle stays as it is while the cycle lasts.
package core
