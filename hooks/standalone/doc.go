// Package standalone is the running mode without a runtime's help: a [Reconciler] lists
// the pods on the node, asks the plugins about each QoS class, pod and container, and
// keeps the cgroups at their decisions.
//
//	r, err := standalone.New(standalone.Config{
//		Engine: engine, State: state, Enforcer: enforcer,
//		Discovery: standalone.File("/etc/kubewasm/pods.yaml"), // Or a Kubelet, or the CRI.
//	})
//	if err != nil { … }
//	err = r.Run(ctx)
//
// Choose it where the container runtime offers no hooks, or beside package proxy, which
// answers the runtime: it repairs what others write, and decides again when a plugin is
// swapped. Its consistency is eventual: a container runs for a moment before its cgroup is
// found. Where that is too late, use package proxy, with the same plugins and the same
// state.
//
// Inotify only wakes it. After an event of a file or a cgroup it reads before it writes.
// When events are lost, and at every Config.Resync, it compares everything.
//
// A field that a plugin owns and does not set any more is given back, see
// [Reconciler.Restore].
//
// A pod's cgroup is the one that the kubelet makes for its UID. A pod that Discovery lists
// with another cgroup is an error and left alone.
//
// A [Partial] discovery does not know the environment of containers and the annotations
// that the runtime keeps. Beside one, a plugin that declares that it reads them is an
// error. It needs the discovery of the CRI.
package standalone
