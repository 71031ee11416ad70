// Package memory reads and writes variables by their types, for packages that
// decode and encode values of any type.
//
// Other programs use reflect.Value for that. In a guest it takes too much room: to
// set or read a value can involve a method value, so the linker keeps the code
// that makes and calls functions at run time. See docs/rationale/guests.md, "Why does
// the decoder of configurations write through pointers?".
package memory

import (
	"reflect"
	"unsafe"
)

// words is an interface value as it lies in memory. Of a reflect.Type the data is
// the type itself.
type words struct{ typ, data unsafe.Pointer }

func typeOf(t reflect.Type) unsafe.Pointer { return (*words)(unsafe.Pointer(&t)).data }

func value(t reflect.Type, data unsafe.Pointer) (v any) {
	*(*words)(unsafe.Pointer(&v)) = words{typeOf(t), data}
	return v
}

// Of returns the type of the value in v and its address, which must not be written
// to. If v is nil, so is the type.
func Of(v any) (reflect.Type, unsafe.Pointer) {
	t, w := reflect.TypeOf(v), (*words)(unsafe.Pointer(&v))
	if t != nil && isPointer(t) {
		return t, unsafe.Pointer(&w.data)
	}
	return t, w.data
}

// Pointee returns the address that the pointer in v has.
func Pointee(v any) unsafe.Pointer { return (*words)(unsafe.Pointer(&v)).data }

// isPointer reports whether an interface value holds a value of type t itself, and
// not its address. It does not support structs.
func isPointer(t reflect.Type) bool {
	for t.Kind() == reflect.Array && t.Len() == 1 {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Chan, reflect.Func, reflect.UnsafePointer:
		return true
	}
	return false
}

// Held returns the value in the interface value of type t at p.
func Held(t reflect.Type, p unsafe.Pointer) any {
	if t.NumMethod() == 0 {
		return *(*any)(p)
	}
	return *(*interface{ M() })(p) // A type with methods, whichever, has a different layout.
}

// Slice is a slice of any type as it lies in memory.
type Slice struct {
	Data     unsafe.Pointer
	Len, Cap int
}

// New returns a new variable of type t.
func New(t reflect.Type) unsafe.Pointer { return unsafeNew(typeOf(t)) }

// NewArray returns an array of n new variables of type t.
func NewArray(t reflect.Type, n int) unsafe.Pointer { return unsafeNewArray(typeOf(t), n) }

// NewMap returns a new map of type t.
func NewMap(t reflect.Type) unsafe.Pointer { return makemap(typeOf(t), 0) }

// SetEntry stores the variable at element under the key in m, a map of type t
// whose keys are strings.
func SetEntry(t reflect.Type, m unsafe.Pointer, key string, element unsafe.Pointer) {
	mapassign(typeOf(t), m, unsafe.Pointer(&key), element)
}

// Entry returns the address of the element under the key in m, a map of type t
// whose keys are strings; nil if there is none.
func Entry(t reflect.Type, m unsafe.Pointer, key string) unsafe.Pointer {
	return mapaccess(typeOf(t), m, unsafe.Pointer(&key))
}

// Keys returns the keys of m, a map of type t whose keys are strings.
func Keys(t reflect.Type, m unsafe.Pointer) []string {
	v := reflect.ValueOf(value(t, m))
	keys := make([]string, 0, v.Len())
	for i := v.MapRange(); i.Next(); {
		keys = append(keys, i.Key().String())
	}
	return keys
}

// The runtime keeps the names and the types of these functions for packages that use them in this
// way: https://go.dev/issue/67401.

//go:linkname unsafeNew reflect.unsafe_New
func unsafeNew(t unsafe.Pointer) unsafe.Pointer

//go:linkname unsafeNewArray reflect.unsafe_NewArray
func unsafeNewArray(t unsafe.Pointer, n int) unsafe.Pointer

//go:linkname makemap reflect.makemap
func makemap(t unsafe.Pointer, size int) unsafe.Pointer

//go:linkname mapassign reflect.mapassign
func mapassign(t, m, key, element unsafe.Pointer)

//go:linkname mapaccess reflect.mapaccess
func mapaccess(t, m, key unsafe.Pointer) unsafe.Pointer
