// Package runtimehook serves Koordinator's RuntimeHookService, which its runtime
// proxy calls between the kubelet and the container runtime, with the plugins of
// a [github.com/kubewasm/kubewasm/hooks/proxy.Handler].
//
//	server, err := runtimehook.New(runtimehook.Config{
//		Engine: engine, State: state, Enforcer: enforcer,
//		Socket:       "/var/run/kubewasm/hooks.sock",
//		Registration: "/etc/runtime/hookserver.d/kubewasm.json",
//	})
//	if err != nil { … }
//	err = server.Run(ctx)
//
// The proxy overwrites what an answer leaves out, so an answer repeats what the
// request had and changes what was decided. What the protocol has no field for
// (burst, idle, group identity, memory protection) is written to the cgroup.
//
// The proxy keeps what was answered and sends it back with each update, so a value
// that is what was answered is taken for that, and not for what the kubelet asks for.
// After its own restart it knows neither cgroups nor resources nor the environment of
// the containers that were there, and changes nothing of their updates. The pod's
// cgroup is looked up on the node then, the environment in the state; what the runtime
// has written is taken for what the kubelet asks for, decided on, and replaced in the
// cgroup some milliseconds later. The environment never has what comes from the image.
package runtimehook
