// Package kube137 runs guests as plugins of the kube-scheduler of Kubernetes 1.37. It maps the Go
// interface of k8s.io/kube-scheduler/framework v0.37 onto package
// [github.com/kubewasm/kubewasm/sched], which documents the configuration and the behavior of
// plugins. The same guests run on the other supported minors, see the packages beside this one.
//
// [New] makes a factory for app.WithPlugin: the scheduler's configuration then names the module
// in the plugin's arguments, see [sched.PluginConfig]. [Load] makes a plugin of a module
// directly. Several plugins may run side by side, each under its own name.
//
// A plugin has the methods of QueueSort, Filter, PostFilter, Score, PlacementGenerate and
// EnqueueExtensions only if its guest does something there, and answers neutrally at all other
// extension points, at which the scheduler's metrics show it.
package kube137
