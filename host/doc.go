// Package host runs guests of the kubewasm ABI: from a module's source to a
// call that costs tens of nanoseconds.
//
// A [Runtime] holds what the plugins of a process share, above all the
// compilation cache. [Runtime.Load] fetches a module, verifies its digest,
// checks its imports against what the host offers and its exports against the
// ABI, adds a meter to it, compiles it, instantiates it once and configures it: a [Plugin] that
// Load returns has answered already.
//
// An [Instance] serves one call at a time. [Plugin.Acquire] takes one from a
// bounded pool, [Instance.Call] calls a function that was resolved when the
// instance was made, and [Instance.Release] gives it back:
//
//	inst, err := plugin.Acquire(ctx)
//	if err != nil { … }
//	defer inst.Release()
//	code, err := inst.Call(ctx, abi.Filter, cycle, pod, node)
//
// An instance whose guest trapped, or was stopped by its fuel, its timeout or its
// caller, begins anew before it serves another call. [Plugin.Swap] replaces the
// module while calls go on.
//
// A guest of another, older ABI is of a [Dialect], which the caller describes.
//
// The package knows no Kubernetes: the adapters sched, admission and hooks
// offer their host functions as [Import] values.
package host
