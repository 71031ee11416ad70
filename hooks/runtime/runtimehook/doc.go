// Package runtimehook serves Koordinator's RuntimeHookService, which its runtime
// proxy calls between the kubelet and the container runtime, with the plugins of
// a [github.com/kubewasm/kubewasm/hooks/runtime/proxy.Handler].
//
//	server, err := runtimehook.New(runtimehook.Config{
//		Engine: engine, State: state, Enforcer: enforcer,
//		Socket:       "/var/run/kubewasm/hooks.sock",
//		Registration: "/etc/runtime/hookserver.d/kubewasm.json",
//	})
//	if err != nil { … }
//	err = server.Run(ctx)
//
// Choose it on nodes with Koordinator's runtime proxy; package nri is for containerd and
// CRI-O without one.
//
// The proxy clears fields that are missing in an answer, so an answer repeats the fields of the
// request and changes the decided ones. Fields that the protocol lacks (burst, idle, group
// identity, memory protection) are written to the cgroup.
//
// The proxy keeps each answer and sends it back with the next update, so a value of an earlier
// answer does not count as the kubelet's request. After its own restart, it knows neither the
// cgroups nor the resources nor the environment of older containers, and passes on their updates
// unchanged. Then the pod's cgroup is looked up on the node and the environment in the state. The
// values written by the runtime count as the kubelet's request; they are decided on, and replaced
// in the cgroup some milliseconds later. The environment never includes variables of the image.
package runtimehook
