//go:build !go1.27

package memory

import (
	"reflect"
	"unsafe"
)

// descriptor is a type as this Go version lays it out: internal/abi.Type.
type descriptor struct {
	size, pointerBytes             uintptr
	hash                           uint32
	flags, align, fieldAlign, kind uint8
	equal                          func(unsafe.Pointer, unsafe.Pointer) bool
	gcData                         *byte
	name, pointerToThis            int32
}

// Pointer returns p as a *T, where T is t, if *T has methods. If it has none, the result
// may be nil.
//
// The compiler keeps *T beside each T that has a name, or whose pointers have methods, and
// T knows where. reflect.PointerTo makes the other pointer types, too, by a concurrent map
// of the standard library. That map is 84 KB of a guest: examples/sched/zone has 2.54 MB
// with it, and a guest with a configuration may have 2.5 (package layout's tests).
func Pointer(t reflect.Type, p unsafe.Pointer) (pointer any) {
	typ := typeOf(t)
	if offset := (*descriptor)(typ).pointerToThis; offset != 0 {
		*(*words)(unsafe.Pointer(&pointer)) = words{resolveTypeOff(typ, offset), p}
	}
	return pointer
}

//go:linkname resolveTypeOff reflect.resolveTypeOff
func resolveTypeOff(typ unsafe.Pointer, offset int32) unsafe.Pointer
