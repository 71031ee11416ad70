//go:build go1.27

package memory

import (
	"reflect"
	"unsafe"
)

// Pointer returns p as a *T, T being t. This is what any Go version does; it makes
// a guest 85 KB larger than pointer_go126.go, which knows how types lie in memory.
func Pointer(t reflect.Type, p unsafe.Pointer) any { return value(reflect.PointerTo(t), p) }
