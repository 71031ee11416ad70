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
package runtimehook
