package config

import (
	"reflect"
	"unsafe"
)

// What reflect.Value does in other programs: see RATIONALE.md, "Why does the
// decoder of configurations write through pointers?".

// slice is a slice of any type as it lies in memory.
type slice struct {
	data     unsafe.Pointer
	len, cap int
}

// words is an interface value as it lies in memory. Of a reflect.Type the data is
// the type itself.
type words struct{ typ, data unsafe.Pointer }

func wordsOf(v *any) *words { return (*words)(unsafe.Pointer(v)) }

func typeOf(t reflect.Type) unsafe.Pointer { return (*words)(unsafe.Pointer(&t)).data }

// allocate returns a new variable of type t.
func allocate(t reflect.Type) unsafe.Pointer { return unsafeNew(typeOf(t)) }

// allocateArray returns n new variables of type t, one behind the other.
func allocateArray(t reflect.Type, n int) unsafe.Pointer { return unsafeNewArray(typeOf(t), n) }

// makeMap returns a new map of type t.
func makeMap(t reflect.Type) unsafe.Pointer { return makemap(typeOf(t), 0) }

// assign stores what is at element under the key in m, a map of type t whose keys
// are strings.
func assign(t reflect.Type, m unsafe.Pointer, key *string, element unsafe.Pointer) {
	mapassign(typeOf(t), m, unsafe.Pointer(key), element)
}

// The runtime keeps the names and the types of these functions for the packages
// that use them as this one does: https://go.dev/issue/67401.

//go:linkname unsafeNew reflect.unsafe_New
func unsafeNew(t unsafe.Pointer) unsafe.Pointer

//go:linkname unsafeNewArray reflect.unsafe_NewArray
func unsafeNewArray(t unsafe.Pointer, n int) unsafe.Pointer

//go:linkname makemap reflect.makemap
func makemap(t unsafe.Pointer, size int) unsafe.Pointer

//go:linkname mapassign reflect.mapassign
func mapassign(t, m, key, element unsafe.Pointer)
