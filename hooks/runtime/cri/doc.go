// Package cri finds out what runs on the node from the container runtime, by the
// Container Runtime Interface over its socket. It knows of a container as soon as
// it is made, where the kubelet's endpoint is some seconds behind; it knows
// nothing of annotations that the kubelet does not hand down. Where a pod's cgroup is
// it takes from the runtime's own records, never from an annotation. It has the whole
// environment of a container, and its annotations as NRI has them.
package cri
