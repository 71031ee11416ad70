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
// cgroups.
package nri
