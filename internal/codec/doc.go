// Package codec encodes Kubernetes objects for guests.
//
// They travel as the protobuf messages of their own API, without the "k8s\0" envelope of
// stored objects. managedFields are left out: they are often half of an object and of no
// use to a plugin. [Encode] encodes an object of any kind. A [FieldSet] has some fields of
// Pods and Nodes, and an [Encoder] encodes these.
//
// The messages of kubewasm itself are encoded by internal/hookwire, internal/admissionmsg
// and internal/schedmsg.
package codec
