// Package sched runs guests as plugins of a scheduler. It is the engine of the adapters to
// kube-scheduler, each in a module of its own, which map the Go interface of one minor of
// Kubernetes onto a [Plugin]: kube137 is for 1.37. A scheduler imports its adapter, and this
// package for the options and for [PluginConfig], which is what the scheduler's configuration
// says of a plugin. The interface changes with each minor; guests do not, nor does this
// package, which asks for the oldest Kubernetes that is supported.
//
// A [Plugin] does at each extension point what its guest does, and answers neutrally where the
// guest has no function. Filter and
// Score run on as many instances of the guest as there are. An instance that has
// not seen a scheduling cycle is shown what happened in it first; so are the
// copies of a cycle in which preemption tries out which Pods to remove. What a guest
// reads of Pods and Nodes crosses to an instance once for each of their versions, and
// about Nodes that are equal in all that it has read of Nodes it is asked once, as long
// as nothing else happens in a cycle.
//
// [Plugin.Swap] replaces the module while the scheduler runs. A scheduling cycle
// ends on the module that it began on.
//
// Guests that were made for kube-scheduler-wasm-extension run unmodified. They may keep
// anything in memory from one extension point to the next, as in their own host: one
// instance serves a scheduling cycle, one call after the other, and a Pod that is being
// bound has one of its own, from Reserve to PostBind or Unreserve. As there, such a plugin
// must be enabled by multiPoint. GuestConfig, Args and LogSeverity of its configuration are its
// host's settings of the same names, and Limits.HeldInstances bounds how many Pods may be
// bound at a time.
package sched

//go:generate go run ./internal/adapters
