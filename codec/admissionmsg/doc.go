// Package admissionmsg holds the messages of admission plugins: the Request that a host hands to a
// guest beside the objects, and the [Result] that completes a verdict beyond its number.
//
// abi/admission.proto is their definition, for guests in any language. The codec is
// written by hand on google.golang.org/protobuf/encoding/protowire: a request is
// encoded from the Kubernetes type without an allocation, so there is no struct
// that kubewasm gen could write. A test compares it with admission.proto, and
// with the decoder of Kubernetes.
package admissionmsg
