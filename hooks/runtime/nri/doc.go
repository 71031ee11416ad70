// Package nri is a plugin of containerd's and CRI-O's Node Resource Interface
// (github.com/containerd/nri) that asks the plugins of a
// [github.com/kubewasm/kubewasm/hooks/runtime/proxy.Handler].
//
//	plugin, err := nri.New(nri.Config{Engine: engine, State: state, Enforcer: enforcer, Name: "kubewasm", Index: "50"})
//	if err != nil { … }
//	err = plugin.Run(ctx)
//
// Choose it on nodes with containerd or CRI-O; package runtimehook is for nodes with
// Koordinator's runtime proxy.
//
// It connects after the guests are warm, and reconnects at growing intervals after the runtime has
// gone away. On each connection the runtime lists running pods and containers, and the plugins are
// asked about all of them. It answers before the runtime's timeout. It never calls the runtime
// during an answer, which would be a deadlock in NRI.
//
// Fields missing in NRI, and decisions on pods, are written to the cgroups. When a pod is resized
// in place, the kubelet writes the pod's cgroup after it has called the runtime. So that cgroup is
// enforced again for some seconds, even without the standalone mode. Some runtimes, such as
// containerd 2.2, do not announce the resize. With these, a pod is decided on again if one of its
// containers requests more than the pod has.
//
// After a restart of the agent, the requested resources of older pods are unknown until the kubelet
// updates them or a list of pods has them. NRI lists the values in force, and for pods those of
// their creation.
//
// # Failing closed
//
// An error returned by a plugin always fails the request. By default nothing else does: while the
// process hangs or is not connected, containers start undecided. They are decided on as soon as it
// has connected again, except for fields that a runtime accepts only at the creation.
//
// [Config.FailClosed] fails the requests that a connected plugin does not answer: the request
// during which it dies, and each request while it hangs, after the runtime's whole timeout. It has
// no effect before the first connection and after the last one. It applies to all events, so the
// end of a pod waits for the timeout as well.
//
// The required plugins of NRI's default validator fail the creation of containers while the plugin
// is not connected. They have no effect if a connected plugin does not answer. The runtime's
// configuration lists them, for example that of containerd:
//
//	[plugins."io.containerd.nri.v1.nri".default_validator]
//	  enable = true
//	  required_plugins = ["kubewasm"]
//	  tolerate_missing_plugins_annotation = "kubewasm.dev/tolerate-no-agent"
//
// The second setting is the key of an annotation for pods that must start without the plugin: the
// agent, static pods, and the pods of the network. Any author of pods can set it, unless an
// admission policy forbids it. With the annotation required-plugins.noderesource.dev, a pod
// requires plugins itself.
//
// Only both together ensure that no container starts undecided.
//
// # In another plugin
//
// An existing NRI plugin can ask hooks in addition to its work, see the example of [Adjust].
// [PodRequest], [PodUpdateRequest] and [ContainerRequest] return requests for
// [github.com/kubewasm/kubewasm/hooks.Engine.Decide], [Files] the limits of huge pages and of swap
// for them, and [Adjust] and [AdjustUpdate] add the decision to the plugin's answer.
//
// Decisions on pods and fields that NRI does not carry are written by a
// [github.com/kubewasm/kubewasm/hooks/runtime/proxy.Handler], which takes the same requests, with
// [ContainerCgroup]. It answers the fields in its Supports, which must be [Supported], with
// [SupportedFile] as its SupportsFile.
//
// # Started by the runtime
//
// A runtime starts the file "50-kubewasm" in its plugin directory with that name and index, without
// arguments and with no other environment. It waits 5 s for the connection, so the modules should
// be in the compilation cache. Unlike systemd and a DaemonSet, it does not restart the plugin.
package nri
