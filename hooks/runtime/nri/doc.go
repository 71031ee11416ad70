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
//
// # Failing closed
//
// An error that a plugin returns fails the request in any case. By default that is
// all: while the process hangs, and while none is connected, containers start
// undecided. They are decided on as soon as it has connected again, but for what a
// runtime takes at the creation alone.
//
// [Config.FailClosed] fails the requests that a connected plugin does not answer: the
// one in which it dies, and each one as long as it hangs, after the runtime's whole
// timeout. It says nothing of the requests after the connection has ended, and of
// those before the first one. It is about all events, so a pod that ends waits for
// the timeout as well.
//
// The required plugins of NRI's default validator fail the creation of containers
// while the plugin is not connected. They say nothing of a connected one that does
// not answer. The runtime's configuration lists them, containerd's for example:
//
//	[plugins."io.containerd.nri.v1.nri".default_validator]
//	  enable = true
//	  required_plugins = ["kubewasm"]
//	  tolerate_missing_plugins_annotation = "kubewasm.dev/tolerate-no-agent"
//
// The second setting is the key of an annotation for what has to start without the
// plugin: the agent's own pod, static pods, the pods of the network. An author of
// pods may set it as well, unless an admission policy keeps them from it. A pod's
// own annotation required-plugins.noderesource.dev requires plugins of its own.
//
// Only both together start no container undecided.
//
// # Started by the runtime
//
// A runtime starts what lies in its plugin directory as "50-kubewasm" with that name
// and index, without arguments and with no other environment, and waits for 5 s
// until it connects: the modules should be in the compilation cache. It does not
// start it again when it has ended, which systemd and a DaemonSet do.
package nri
