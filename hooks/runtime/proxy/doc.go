// Package proxy is the running mode that answers the container runtime. A [Handler] receives an
// event of a pod or a container, asks the plugins, and splits their decision. One part goes back to
// the runtime by the transport, and the other is written to the cgroups here. The whole decision
// goes into the state, which the standalone mode can enforce as well.
//
//	handler, err := proxy.New(proxy.Config{Engine: engine, State: state, Enforcer: enforcer, Supports: hookmsg.FieldCFSQuota})
//	if err != nil { … }
//	defer handler.Wait()
//	answer, err := handler.Handle(ctx, req, cgroup) // In the transport, for each event.
//
// Choose it if a container must not start before its plugins have decided, or if they decide on
// more than cgroups: its environment, annotations, mounts and devices. Package standalone needs no
// support by the runtime, and becomes consistent a moment later.
//
// The transports are in the module hooks/runtime: Koordinator's RuntimeHookService and containerd's
// NRI. Programs use those, and need this package only for a new transport.
package proxy
