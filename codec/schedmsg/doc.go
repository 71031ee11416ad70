// Package schedmsg encodes and decodes the messages of abi/sched.proto, which a
// scheduler and its guests exchange beside Kubernetes objects. The code is
// written by hand: it encodes the types of the scheduler's framework and of
// Kubernetes as they are, which kubewasm gen would copy into structs first.
package schedmsg
