// Package cri lists the pods on the node through the Container Runtime Interface, for package
// standalone:
//
//	discovery, err := cri.New(cri.Config{Endpoint: "unix:///run/containerd/containerd.sock"})
//	if err != nil { … }
//	defer discovery.Close()
//
// Choose it instead of the kubelet's endpoint if plugins read the annotations or the environment of
// containers: it has both in full. It lists a container right after its creation, some seconds
// before the kubelet does. It lacks annotations that the kubelet does not pass on. The cgroup of a
// pod comes from the runtime's records, never from an annotation.
package cri
