// Package codec holds the messages that cross the boundary between a host and its guests.
//
// [Encode] encodes Kubernetes objects. They travel as the protobuf messages of their own API,
// without the "k8s\0" envelope of stored objects and without managedFields, which are often half
// of an object and of no use to a plugin.
//
// The messages of kubewasm itself have a package for each adapter: [schedmsg], [admissionmsg] and
// [hookmsg]. They encode and decode the messages of the .proto files beside package abi.
//
// [schedmsg]: https://pkg.go.dev/github.com/kubewasm/kubewasm/codec/schedmsg
// [admissionmsg]: https://pkg.go.dev/github.com/kubewasm/kubewasm/codec/admissionmsg
// [hookmsg]: https://pkg.go.dev/github.com/kubewasm/kubewasm/codec/hookmsg
package codec
