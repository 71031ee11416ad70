// Package cgroup writes decided resources into the cgroups of pods and containers, of version 1 or
// 2, and keeps them there. It depends on neither guests nor Kubernetes, so any program with
// resources for a cgroup can use it.
//
// An [Applier] compares the resources with the files of a cgroup, once, and writes the differing
// ones in an order accepted by the kernel:
//
//	applier, err := cgroup.NewApplier(cgroup.ApplierConfig{Root: "/sys/fs/cgroup"})
//	if err != nil { … }
//	defer applier.Close()
//	changes, err := applier.Apply(ctx, cgroup.Target{
//		Cgroup:    "kubepods/burstable/pod8dbc5577",
//		Resources: &hookmsg.Resources{CPUShares: new(int64(512))},
//	})
//
// An [Enforcer] keeps the cgroups of a node at a [State]. It repairs files changed by other
// writers, retries values refused by the kernel after a wait, and gives way to a writer that keeps
// changing a file. Choose it for a daemon, and an Applier for a single write.
//
// A [Layout] describes the paths of a pod's cgroups as created by the kubelet and the runtime. Its
// checks reject a path outside of the pod, regardless of its source.
//
// Cgroups, core scheduling and resctrl are parts of Linux. On other systems the package compiles,
// and its tests run on directories of the same shape. [NewApplier] reports that there are no cgroups.
package cgroup
