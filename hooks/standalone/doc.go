// Package standalone is the running mode without a runtime's help: a
// [Reconciler] finds out what runs on the node, asks the plugins about each QoS
// class, pod and container, and keeps the cgroups at what they decide.
//
//	r, err := standalone.New(standalone.Config{
//		Engine: engine, State: state, Enforcer: enforcer,
//		Discovery: standalone.File("/etc/kubewasm/pods.yaml"), // Or a Kubelet, or the CRI.
//	})
//	if err != nil { … }
//	err = r.Run(ctx)
//
// Inotify is its hint, never its truth: a file that somebody writes, or a cgroup
// that comes or goes, wakes it, and it reads before it writes. When hints are
// lost, and every Config.Resync in any case, it looks at everything.
//
// A pod's cgroup is the one that the kubelet makes for its UID. What claims another,
// in whatever Discovery lists, is an error and left alone.
//
// A [Partial] discovery does not know the environment of containers and the annotations
// that the runtime keeps. A plugin that declares that it reads them is refused beside
// one. It needs the discovery of the CRI.
//
// The consistency is eventual: a container runs for a moment before its cgroup
// is found. Where that is too late, package proxy answers the runtime, with the
// same plugins and the same state.
package standalone
