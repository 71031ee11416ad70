// Package objects turns what a host has into the bytes that a guest reads.
//
// Kubernetes objects travel as the protobuf messages of their own API, without
// the "k8s\0" envelope of stored objects and without managedFields, which are
// often half of an object and of no use to a plugin. A [Table] encodes each
// version of an object once, however many plugins and instances ask for it, and
// gives it the [abi.Ref] by which guests know it. A [Projection] leaves out what a
// guest does not read.
//
// The messages of kubewasm itself are in the packages below: hookmsg and
// admissionmsg, each with its .proto source.
package objects
