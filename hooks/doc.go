// Package hooks runs runtime hooks: guests that decide on the resources of QoS
// classes, pods and containers, and the writer that brings their decisions into
// the cgroups.
//
// A plugin is a pure function from a request to a decision. An [Engine] asks the
// plugins that want a request, in order, checks what they decide and puts it
// together; two plugins that decide one field differently are an error that
// names both. An [Applier] compares the decided resources with the cgroup files
// under a directory, of version 1 or 2, and writes those that differ:
//
//	req := &hookmsg.Request{Stage: hookmsg.Reconcile, Level: hookmsg.LevelContainer, …}
//	decision, err := engine.Decide(ctx, req)
//	if err != nil { … }
//	cgroup, err := hooks.CgroupOf(req)
//	if err != nil { … }
//	changes, err := applier.Apply(ctx, hooks.Target{Cgroup: cgroup, Resources: decision.Resources})
//
// A plugin may decide on the resources of cgroups. Whatever else it decides of a
// container, its environment, annotations, mounts and devices, is refused unless its
// [Grants] name it.
//
// The two halves know nothing of each other: a container runtime may carry a
// decision as well. A node agent has more between them: a [State] holds what was
// decided last on each cgroup, an [Enforcer] keeps the cgroups at it, and two
// running modes put decisions there: package standalone, by looking at what runs,
// and package proxy, by answering the runtime. Either writes to a cgroup only if it
// is the one that the kubelet makes for the pod's UID ([Layout.CheckPod]), whoever
// says so.
package hooks
