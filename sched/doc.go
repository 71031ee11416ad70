// Package sched runs guests as plugins of kube-scheduler.
//
// [New] makes a factory for app.WithPlugin: the scheduler's configuration then
// names the module in the plugin's arguments, see [Args]. [Load] makes a plugin of
// a module directly. Several plugins may run side by side, each under its own
// name.
//
// A plugin does at each extension point of k8s.io/kube-scheduler/framework v0.37 what its
// guest does, and nothing where the guest has no function: it has the methods of QueueSort,
// Filter, PostFilter, Score, PlacementGenerate and EnqueueExtensions only if the guest does
// something there, and answers neutrally at the others, at all of which the scheduler's
// metrics show it. Filter and
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
// must be enabled by multiPoint. Args.GuestConfig, Args.Args and Args.LogSeverity are its
// host's settings of the same names, and Args.HeldInstances bounds how many Pods may be
// bound at a time.
package sched

//go:generate go run ./internal/adapters
