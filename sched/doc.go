// Package sched runs guests as plugins of kube-scheduler.
//
// [New] makes a factory for app.WithPlugin: the scheduler's configuration then
// names the module in the plugin's arguments. [Load] makes a plugin of a module
// directly.
//
// A plugin implements exactly those interfaces of
// k8s.io/kube-scheduler/framework that its guest does, since the framework
// looks at types. Filter and Score run on as many instances of the guest as
// there are; an instance that has not seen a scheduling cycle is shown its
// PreFilter first. Pods and Nodes cross to an instance once for each of their
// versions.
package sched
