// Package view is what the typed views of Kubernetes objects are made of.
//
// A view is a value with a pointer to what was read of a message so far. A
// message is read one level at a time, when its first field is asked for: one
// pass in one loop over the level notes where each field lies. Accessors read
// from there, and what they made of it is remembered.
//
// A message is either protobuf or JSON: the accessors are the same. This is all
// that there is to the view of a message, and a generator writes it for any:
//
//	// Container is a view of …
//	type Container struct {
//		d       *container
//		version uint32
//	}
//
//	type container struct {
//		view.Message
//		fields [4]view.Field // By the numbers of the fields.
//		ports  view.List[port, Port]
//	}
//
//	var containerNames = view.Names{1: "name", 2: "image", 3: "ports"}
//
//	var noContainer = container{Message: view.Message{Version: view.None}}
//
//	func (c Container) data() *container {
//		if c.d != nil && c.d.Version == c.version {
//			return c.d
//		}
//		return c.read()
//	}
//
//	func (c Container) read() *container {
//		d := c.d
//		if d == nil {
//			return &noContainer
//		}
//		d.Read(c.version, d.fields[:], containerNames)
//		d.ports.Reset()
//		return d
//	}
//
//	func (c Container) Name() string {
//		d := c.data()
//		return d.Text(&d.fields[1])
//	}
//
// # Memory
//
// In a guest, decoding is not what costs: garbage is. 11 KB of it for each
// version of a Node cost more than reading its labels and taints. So the memory
// of an object from the host, its bytes and what was read of them, is used again
// for the object's next version. This is why a view carries the version that it
// is of: a view of an earlier version answers what it was asked before and panics
// at anything else, and it never sees the bytes of another version. Strings that
// accessors return are copies then, made when they are first asked for, and may
// be kept for ever.
//
// Bytes that a guest makes views of itself are never overwritten, and strings
// share their memory.
//
// # Speed
//
// The Go compiler's code for wasm is slow at calls, at jumps, at copying structs
// and at writing pointers, in this order: a jump goes through a table at the head
// of its function, a call besides through the memory. So loops work on locals and
// leave what is rare to functions of their own, and nothing here hands larger
// structs around.
package view
