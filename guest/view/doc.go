// Package view is what the typed views of Kubernetes objects are made of. Code
// that kubewasm gen generates is built on it; a
// plugin uses the generated types, and of this package no more than its maps.
//
// A view is a value with a pointer to what was read of a message so far. A
// message is read one level at a time, when its first field is asked for: one
// pass in one loop over the level notes where each field lies. Accessors read
// from there, and what they made of it is remembered.
//
// A message is either protobuf or JSON: the accessors are the same. This is all
// that there is to the view of a message:
//
//	// Container is a view of …
//	type Container view.View
//
//	// TypeOfContainer is for generated code.
//	var TypeOfContainer = view.Type{Names: []string{1: "name", 2: "image", 6: "ports"}}
//
//	func (c Container) Name() string { return view.View(c).Text(1) }
//
//	func (c Container) Ports() []ContainerPort {
//		return view.List[ContainerPort](view.View(c), 6, &TypeOfContainerPort)
//	}
//
// So a type costs a guest a list of names, if an accessor that it calls leads to
// it, and each accessor a call.
//
// # Memory
//
// In a guest, decoding is not what costs: garbage is. 11 KB of it for each
// version of a Node cost more than reading its labels and taints. So the memory
// of an object from the host, its bytes and what was read of them, is used again
// for the object's next version. This is why a view carries the version that it
// is of: a view of an earlier version answers what it was asked before, until
// the next version is read in its place, and panics at anything else. It never
// sees the bytes of another version. Strings that accessors return are copies
// then, made when they are first asked for, and may be kept for ever; one that
// the version before had in the same place is used again.
//
// Bytes that a guest makes views of itself are never overwritten, and strings
// share their memory. The objects of requests and the items of lists come one after
// another in a [Slot]: the next view uses the memory of what was read of the one before,
// but not its bytes.
//
// # Parts
//
// Of Pods and Nodes a host encodes what a guest asks for. So metadata, spec and status of
// one that is looked at (see [FromRefByParts]) are objects of their own. Of each those fields are fetched that are read: the first time one by one,
// each behind those before, and later on at once those that were read of any such object,
// but for name, uid and resourceVersion. Up to four labels and annotations are looked up
// one by one before all of them are fetched. So a host knows the read set of a plugin
// (see the SPEC of package abi, 4.10).
//
// # Speed
//
// The Go compiler's code for wasm is slow at calls, at jumps, at copying structs
// and at writing pointers, in this order: a jump goes through a table at the head
// of its function, a call besides through the memory. So loops work on locals and
// leave what is rare to functions of their own, and nothing here hands larger
// structs around.
package view
