// Package nri is a plugin of containerd's and CRI-O's Node Resource Interface
// (github.com/containerd/nri) that asks the plugins of a
// [github.com/kubewasm/kubewasm/hooks/proxy.Handler].
//
//	plugin, err := nri.New(nri.Config{Engine: engine, State: state, Enforcer: enforcer, Name: "kubewasm", Index: "50"})
//	if err != nil { … }
//	err = plugin.Run(ctx)
//
// Choose it on nodes with containerd or CRI-O; package runtimehook is for nodes with
// Koordinator's runtime proxy.
//
// It connects after the guests are warm, and again, at longer and longer intervals, after
// the runtime has gone away. On each connection the runtime lists what runs, and the
// plugins are asked about all of it. It answers before the runtime's timeout, and never
// calls the runtime while it answers, which would be a deadlock in NRI.
//
// Fields that NRI does not have, and decisions on pods, are written to the cgroups. When a
// pod is resized in place, the kubelet writes the pod's cgroup after it has called the
// runtime. So that cgroup is enforced again for some seconds, even without the standalone
// mode. Some runtimes, such as containerd 2.2, do not announce the resize: there a pod is
// decided on again when one of its containers asks for more than the pod has.
//
// After a restart of the agent, the resources that older pods ask for are not known until
// the kubelet updates them or a list of pods has them: NRI lists the values in force, and
// for pods those of their creation.
//
// # Failing closed
//
// An error that a plugin returns fails the request in any case. By default that is all:
// while the process hangs, and while none is connected, containers start undecided. They
// are decided on as soon as it has connected again, except for what a runtime takes only
// at the creation.
//
// [Config.FailClosed] fails the requests that a connected plugin does not answer: the one
// in which it dies, and each one while it hangs, after the runtime's whole timeout. It has
// no effect before the first connection and after the last one. It is about all events, so
// the end of a pod waits for the timeout as well.
//
// The required plugins of NRI's default validator fail the creation of containers while
// the plugin is not connected. They have no effect on a connected one that does not
// answer. The runtime's configuration lists them, containerd's for example:
//
//	[plugins."io.containerd.nri.v1.nri".default_validator]
//	  enable = true
//	  required_plugins = ["kubewasm"]
//	  tolerate_missing_plugins_annotation = "kubewasm.dev/tolerate-no-agent"
//
// The second setting is the key of an annotation for pods that must start without the
// plugin: the agent's own, static pods, those of the network. Any author of pods can set
// it, unless an admission policy forbids it. A pod's own annotation
// required-plugins.noderesource.dev requires plugins of its own.
//
// Only both together start no container undecided.
//
// # In a plugin of your own
//
// A plugin of NRI that exists asks hooks beside its own work, see the example of [Adjust].
// [PodRequest], [PodUpdateRequest] and [ContainerRequest] return what
// [github.com/kubewasm/kubewasm/hooks.Engine.Decide] is asked, and [Adjust] and
// [AdjustUpdate] add the decision to the plugin's answer.
//
// Decisions on pods and fields that NRI does not carry are written by a
// [github.com/kubewasm/kubewasm/hooks/proxy.Handler], which takes the same requests, with
// [ContainerCgroup]. It answers the fields that its Supports name, which are [Supported].
//
// # Started by the runtime
//
// A runtime starts the file "50-kubewasm" in its plugin directory with that name and
// index, without arguments and with no other environment, and waits 5 s until it connects:
// the modules should be in the compilation cache. It does not start it again after it has
// ended, as systemd and a DaemonSet do.
package nri
