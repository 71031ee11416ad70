//go:build go1.27

package config

import (
	"reflect"
	"unsafe"
)

// pointerTo returns p as a *T, T being t. This is what any Go version does; it
// makes a guest 85 KB larger than pointer_go126.go, which knows how types lie in
// memory.
func pointerTo(t reflect.Type, p unsafe.Pointer) (pointer any) {
	*wordsOf(&pointer) = words{typeOf(reflect.PointerTo(t)), p}
	return pointer
}
