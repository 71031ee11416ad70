package host

import (
	"reflect"
	"unsafe"

	"github.com/tetratelabs/wazero/api"
)

// maxIdleStack is the size of the stack that a handle of a function keeps between two calls, in
// bytes. Each handle has its stack in Go's heap. The stack begins with 10 KiB, doubles whenever a
// call needs more, up to 32 MiB with the default of Limits.StackBytes, and never shrinks. So a
// handle with a larger stack after its call is replaced by a new one.
const maxIdleStack = 128 << 10

// handles locates the stacks of the handles of a guest's functions. wazero has no
// call for it, and a counter of the depth in the guest would make a recursion a
// tenth slower. The zero value locates no stacks: then only a handle whose call
// failed is replaced.
type handles struct {
	// table is the first word of an api.Function that holds such a handle. A
	// function that the host defines has handles of another type.
	table unsafe.Pointer
	// stack is the offset of a []byte in the value to which the second word points.
	stack uintptr
}

// words are the two words of an interface value.
type words struct{ table, data unsafe.Pointer }

// handlesOf locates the stack in a handle, and reports whether it found one.
func handlesOf(fn api.Function) (handles, bool) {
	t := reflect.TypeOf(fn)
	if t == nil || t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return handles{}, false
	}
	f, ok := t.Elem().FieldByName("stack")
	if !ok || f.Type != reflect.TypeFor[[]byte]() || len(f.Index) != 1 {
		return handles{}, false
	}
	return handles{(*words)(unsafe.Pointer(&fn)).table, f.Offset}, true
}

// stackOf returns the size of the stack of a handle, in bytes.
func (h *handles) stackOf(fn api.Function) int {
	w := (*words)(unsafe.Pointer(&fn))
	if w.table != h.table || h.table == nil {
		return 0
	}
	return len(*(*[]byte)(unsafe.Add(w.data, h.stack)))
}

// shrink replaces a handle of the named export, whose call has returned, if its
// stack has grown.
func (i *Instance) shrink(fn *api.Function, name string) {
	if i.version.handles.stackOf(*fn) > maxIdleStack {
		*fn = i.module.ExportedFunction(name)
	}
}
