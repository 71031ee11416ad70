// Package nri is a plugin of containerd's and CRI-O's Node Resource Interface
// (github.com/containerd/nri) that asks the plugins of a
// [github.com/kubewasm/kubewasm/hooks/proxy.Handler].
//
//	plugin, err := nri.New(nri.Config{Engine: engine, State: state, Enforcer: enforcer, Name: "kubewasm", Index: "50"})
//	if err != nil { … }
//	err = plugin.Run(ctx)
//
// It connects when the guests are warm, and again, ever more seldom, when the
// runtime goes away. On each connection the runtime lists what runs, and all of
// it is decided on anew. It answers before the runtime loses patience, and never
// calls the runtime while it answers: NRI waits for itself then.
//
// What NRI has no field for, and all that is decided on pods, is written to the
// cgroups. When a pod is resized in place, the kubelet writes the pod's cgroup after the
// runtime was told. So it is looked at again for some seconds, also by a node agent
// without the standalone mode. A runtime that tells nothing of that, such as containerd
// 2.2, has a pod decided on again when one of its containers outgrows it.
//
// What pods and containers from before a restart of the agent ask for is not known until
// the kubelet updates them or a list of what runs has it: NRI lists what is in force, of
// pods even what was at their creation.
package nri
