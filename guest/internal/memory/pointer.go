package memory

import (
	"reflect"
	"unsafe"
)

// Pointer returns p as a *T, where T is t. Package reflect makes the types of pointers that the
// compiler has not kept, by a concurrent map that is 84 KB of a guest. To read the kept ones from
// their place in a release of Go would save it, until the next release.
func Pointer(t reflect.Type, p unsafe.Pointer) any { return value(reflect.PointerTo(t), p) }
