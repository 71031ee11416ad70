// Package state has the state that all instances of a plugin share. The memory of a guest belongs to
// one instance, and a plugin has several: a quota that is counted in a variable lets as many Pods in
// as there are instances. This state lies in the host, is bounded by its configuration
// (limits.stateEntries, limits.stateBytes), and needs the grant "state".
//
// A call of the guest is a transaction. It sees the state of one moment and its own writes, and its
// writes count together, or not at all: not if it traps or returns an error, nor if it refuses, with
// Unschedulable for example, unless it has called [Keep]. If another call has changed meanwhile what
// it has read, and it has written something, the host calls the function again. A counter that is
// changed by [Add] alone does not conflict.
//
// The state outlives traps, instances, and versions of the plugin that declare the same form of it
// with a directive:
//
//	//kubewasm:state v1
//
// It does not outlive the scheduler's process: see [Once].
package state
