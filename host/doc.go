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
// # Whose the bytes are
//
// What a guest hands over lies in its memory and is lent: the bytes of [Instance.Read]
// and [DialectInstance.Memory], and those that [FromGuest] passes on. They are valid until
// the guest runs again, and no longer than to [Instance.Release]: the instance then
// serves another caller, or its memory is unmapped. Whoever keeps them copies them, and
// a string made of them in place is these bytes. Everything else that the package
// returns or tells an [Observer] is a copy, and stays valid: reasons, output, errors
// with all that they wrap. What a caller hands in remains the caller's: Config.Guest and
// the module of [Bytes] must not change until the plugin is closed, standard input not
// before [DialectInstance.Run] returns.
//
// # Logs
//
// One thing has one key in the logs of all packages: "plugin" is the name of a plugin,
// "policy" that of a policy or a group, "function" the export that runs, "err" an error,
// "reason" and "stack" those of a trap, "fields" names of fields; "pod" is namespace/name,
// "container" and "cgroup" a name and a path. What a guest logs beyond its text is in the
// group "guest". A level is a level of the host's logger, so the host chooses what is kept.
//
// # Debugging
//
// With KUBEWASM_DEBUG=memory in the environment, a Runtime makes the memory of an
// instance unreadable while no caller has it, and for ever once the instance is closed.
// Whoever keeps lent bytes too long then ends the process with an "unexpected fault
// address" where they are read, or reads 0xdb on systems other than Linux. An instance
// that is released twice panics. Each call costs two system calls more, 25 us for a Go
// guest, and each closed instance costs address space of Limits.MemoryBytes. The tests
// of this module run that way.
//
// The package knows no Kubernetes: the adapters sched, admission and hooks
// offer their host functions as [Import] values.
package host
