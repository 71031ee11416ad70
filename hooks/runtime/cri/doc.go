// Package cri lists the pods on the node by the Container Runtime Interface, for package
// standalone:
//
//	discovery, err := cri.New(cri.Config{Endpoint: "unix:///run/containerd/containerd.sock"})
//	if err != nil { … }
//	defer discovery.Close()
//
// Choose it instead of the kubelet's endpoint where plugins read the annotations or the
// environment of containers: it has both in full. It lists a container as soon as it is
// made, some seconds before the kubelet does. It has no annotations that the kubelet does
// not hand down. The cgroup of a pod is taken from the runtime's own records, never from
// an annotation.
package cri
