// Package standalone is the running mode that needs no support by a runtime. A [Reconciler] lists
// the pods on the node, asks the plugins about each QoS class, pod and container, and keeps the
// cgroups at their decisions.
//
//	r, err := standalone.New(standalone.Config{
//		Engine: engine, State: state, Enforcer: enforcer,
//		Discovery: standalone.File("/etc/kubewasm/pods.yaml"), // Or a Kubelet, or the CRI.
//	})
//	if err != nil { … }
//	err = r.Run(ctx)
//
// Choose it if the container runtime offers no hooks, or in addition to package proxy, which
// answers the runtime. It repairs files changed by others, and decides again when a plugin is
// swapped. Its consistency is eventual: a container runs for a moment before its cgroup is found.
// If that is too late, use package proxy, with the same plugins and the same state.
//
// Inotify only triggers it. After an event of a file or a cgroup it reads before it writes. It
// compares everything if events are lost, and at every Config.Resync.
//
// A field that a plugin owns and no longer sets is restored, see [Reconciler.Restore].
//
// A pod's cgroup is the one that the kubelet creates for its UID. A pod listed by Discovery with a
// different cgroup is an error and is not changed.
//
// A [Partial] discovery lacks the environment of containers and the annotations kept by the
// runtime. With such a discovery, a plugin that declares a read of them is an error. It needs the
// discovery of the CRI.
package standalone
