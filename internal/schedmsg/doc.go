// Package schedmsg encodes and decodes the messages of abi/sched.proto: what a
// scheduler and its guests tell one another beside Kubernetes objects.
package schedmsg
