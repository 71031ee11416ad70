// Package cgroup writes decided resources into the cgroups of pods and containers, of
// version 1 or 2, and keeps them there. It knows neither guests nor Kubernetes: any
// program that has resources for a cgroup can use it.
//
// An [Applier] compares the resources with the files of a cgroup, once, and writes those
// that differ in an order that the kernel accepts:
//
//	applier, err := cgroup.NewApplier(cgroup.ApplierConfig{Root: "/sys/fs/cgroup"})
//	if err != nil { … }
//	defer applier.Close()
//	changes, err := applier.Apply(ctx, cgroup.Target{
//		Cgroup:    "kubepods/burstable/pod8dbc5577",
//		Resources: &hookmsg.Resources{CPUShares: new(int64(512))},
//	})
//
// An [Enforcer] keeps the cgroups of a node at a [State]: it repairs what others write,
// waits and retries after the kernel refused a value, and gives way to a writer that
// does not stop. Choose it for a daemon, and an Applier for a single write.
//
// A [Layout] is where the kubelet and the runtime put the cgroups of a pod. Its checks
// reject a path that is not the pod's own, whatever the source that names it.
//
// Cgroups, core scheduling and resctrl are parts of Linux. On other systems the package
// compiles, and its tests run on directories of the same shape; [NewApplier] finds no
// cgroups there and says so.
package cgroup
