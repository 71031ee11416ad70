// Package sched runs guests as plugins of a scheduler. It is the engine of the adapters to
// kube-scheduler, each in a separate module, which map the Go interface of one minor of Kubernetes
// onto a [Plugin]: kube137 is for 1.37. A scheduler imports its adapter, and this package for the
// options and for [PluginConfig], the arguments of a plugin in the scheduler's configuration. The
// interface changes with each minor; guests do not, nor does this package, which requires the
// oldest supported Kubernetes.
//
// A [Plugin] calls its guest at each extension point, and answers neutrally where the guest has no
// function. Filter and Score run on all instances of the guest in parallel. An instance that has
// not seen a scheduling cycle gets the history of the cycle replayed first. So do the copies of a
// cycle in which preemption tries out the removal of Pods. The fields that a guest reads of Pods
// and Nodes cross to an instance once for each of their versions. About Nodes that are equal in all
// fields that it has read of Nodes the guest is asked once, as long as nothing else happens in a
// cycle.
//
// [Plugin.Swap] replaces the module while the scheduler runs. A scheduling cycle
// ends on the module that it began on.
//
// Guests made for kube-scheduler-wasm-extension run unmodified. They may keep anything in memory
// from one extension point to the next, as in their own host: one instance serves a scheduling
// cycle, one call after the other, and a Pod that is being bound has a separate one, from Reserve
// to PostBind or Unreserve. As there, such a plugin must be enabled by multiPoint. GuestConfig,
// Args and LogSeverity of its configuration are its host's settings of the same names, and
// Limits.HeldInstances bounds the number of Pods that may be bound at a time.
package sched

//go:generate go run ./internal/adapters
