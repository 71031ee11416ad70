// Package proxy is the running mode that answers the container runtime: a [Handler]
// takes an event of a pod or a container, asks the plugins, and splits their decision
// into the part that the transport carries back to the runtime and the part that is
// written to the cgroups here. The whole decision goes into the state, which the
// standalone mode can enforce as well.
//
//	handler, err := proxy.New(proxy.Config{Engine: engine, State: state, Enforcer: enforcer, Supports: hookmsg.FieldCFSQuota})
//	if err != nil { … }
//	defer handler.Wait()
//	answer, err := handler.Handle(ctx, req, cgroup) // In the transport, for each event.
//
// Choose it where a container must not start before its plugins have decided, or where
// they decide on more than cgroups: its environment, annotations, mounts and devices.
// Package standalone needs no help of the runtime, and is consistent a moment later.
//
// The transports are in the module hooks/runtime: Koordinator's RuntimeHookService and
// containerd's NRI. A program uses those, and this package only to write another one.
package proxy
