// Package view reads Kubernetes objects in protobuf or JSON in place, field by field. Code that
// kubewasm gen writes is built on it.
//
// An author meets three of its types, as results of generated accessors: [StringMap],
// [Map] and [MessageMap]. Everything else is for generated code and for the SDK: [View]
// with its accessors, [Type], [List] and the other functions that read a field, and
// [FromRef], [FromProto], [FromJSON] and [Slot], which are the sources of the bytes.
//
// # Views
//
// A view is a pointer to the parsed part of a message, with a version. A message is parsed one
// level at a time, when its first field is read: one loop over the level records the place of each
// field. Accessors read from there and cache their results. They are the same for protobuf and
// JSON. The view of a message is:
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
// A type adds its list of names to a guest if the guest calls an accessor that leads to
// it, and each accessor that is called adds one function.
//
// # Memory
//
// Garbage costs a guest more than decoding does: 11 KB for each version of a Node cost
// more than reading its labels and taints. So the next version of an object from the host
// uses the memory of the version before: of its bytes and of its cached values. Until the
// next version is read, a view of an earlier version returns its cached values, and panics
// at anything else. It never reads the bytes of another version. Strings of such objects
// are copies and may be kept.
//
// The bytes given to [FromProto] and [FromJSON] are never overwritten, and strings share their
// memory. The objects of requests and the items of lists come one after another in a [Slot]: the
// next view uses the memory of the cached values of the previous one, but not its bytes.
//
// # Parts
//
// The host encodes the fields of Pods and Nodes that a guest reads. So the metadata, spec and
// status of a view from [FromRefByParts] are separate objects. They have few fields, and accessors
// search for theirs. The first time, each field is fetched when it is read. After that, all fields
// that were read of any such object are fetched together, except name, uid and resourceVersion. Up
// to four labels and annotations of an object are fetched one by one before all of them are, unless
// all were fetched of the version before. This is how the host knows the read set of a plugin: see
// 4.10 of the SPEC in package abi.
//
// # Speed
//
// In WebAssembly of the Go compiler a call is slow, then a jump, then copying a struct, then
// writing a pointer. So loops work on locals, rare cases are separate functions, and structs are
// passed by pointer.
package view
