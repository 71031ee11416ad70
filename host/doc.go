// Package host runs guests of the kubewasm ABI: from a module's source to a
// call that costs tens of nanoseconds.
//
// A [Runtime] holds the shared state of the plugins of a process, above all the compilation cache.
// [Runtime.Load] fetches a module, verifies its digest, and checks its imports against the
// functions of the host and its exports against the ABI. It adds a meter to the module, compiles
// it, instantiates it once and configures it. So a [Plugin] returned by Load has already answered a
// call.
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
// caller, is reset before it serves another call. [Plugin.Swap] replaces the
// module while calls go on.
//
// A guest of an older ABI is of a [Dialect], which the caller describes.
//
// # Whose the bytes are
//
// Bytes that lie in a guest's memory are lent: those of [Instance.Read] and
// [DialectInstance.Memory], and those that [FromGuest] passes on. They are valid until the
// guest runs again or the instance is released: it then serves another caller, or its
// memory is unmapped. A caller that keeps them copies them; a string that shares their
// memory is no copy. Everything else that the package returns, or passes to an [Observer],
// is a copy and stays valid: reasons, output, errors with all that they wrap. Bytes that a
// caller passes in remain the caller's. Config.GuestConfig and the module of [Bytes] must
// not change until the plugin is closed, standard input not before [DialectInstance.Run]
// returns.
//
// # Logs
//
// One thing has one key in the logs of all packages: "plugin" is the name of a plugin, "policy"
// that of a policy or a group, "function" the running export, "err" an error, "reason" and "stack"
// those of a trap, "fields" names of fields; "pod" is namespace/name, "node" and "container" names,
// "cgroup" a path, "reference" and "digest" those of an artifact or a module, "duration" the time
// that something took. The attributes of a guest's log lines are in the group "guest". A level is a
// level of the host's logger, so the host's configuration decides on the lines to keep.
//
// # Debugging
//
// With KUBEWASM_DEBUG=process, all guests run in child processes, see [IsolationProcess].
//
// With KUBEWASM_DEBUG=memory in the environment, a Runtime makes the memory of an instance
// unreadable while no caller has it, and for good once the instance is closed. A read of lent bytes
// that were kept too long then ends the process with an "unexpected fault address"; on systems
// other than Linux it finds 0xdb. An instance that is released twice panics. Each call costs two
// more system calls, 25 us for a Go guest, and each closed instance costs address space of
// Limits.MemoryBytes. The tests of this module run that way.
//
// The package knows no Kubernetes: the adapters sched, admission and hooks
// offer their host functions as [Import] values.
package host
