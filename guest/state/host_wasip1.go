package state

import (
	"unsafe"

	"github.com/kubewasm/kubewasm/abi"
)

// A guest that does not use these does not import them, so it needs no grant.

//go:wasmimport kubewasm/state get
func importGet(ptr unsafe.Pointer, n uint32, buf unsafe.Pointer, limit uint32) uint32

//go:wasmimport kubewasm/state put
func importPut(ptr unsafe.Pointer, n uint32, value unsafe.Pointer, bytes uint32, version int64) uint32

//go:wasmimport kubewasm/state delete
func importDelete(ptr unsafe.Pointer, n uint32, version int64) uint32

//go:wasmimport kubewasm/state add
func importAdd(ptr unsafe.Pointer, n uint32, delta, limit int64) uint32

//go:wasmimport kubewasm/state list
func importList(ptr unsafe.Pointer, n uint32, after unsafe.Pointer, bytes uint32, buf unsafe.Pointer, limit uint32) uint32

//go:wasmimport kubewasm/state keep
func hostKeep()

// buffer is that of the last answer.
var buffer abi.Buffer

func at(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

func text(s string) unsafe.Pointer { return unsafe.Pointer(unsafe.StringData(s)) }

func hostGet(key string) []byte {
	return buffer.Fill(func(b []byte) uint32 { return importGet(text(key), uint32(len(key)), at(b), uint32(len(b))) })
}

func hostPut(key string, value []byte, version int64) uint32 {
	return importPut(text(key), uint32(len(key)), at(value), uint32(len(value)), version)
}

func hostDelete(key string, version int64) uint32 {
	return importDelete(text(key), uint32(len(key)), version)
}

func hostAdd(key string, delta, limit int64) uint32 {
	return importAdd(text(key), uint32(len(key)), delta, limit)
}

func hostList(prefix, after string) []byte {
	return buffer.Fill(func(b []byte) uint32 {
		return importList(text(prefix), uint32(len(prefix)), text(after), uint32(len(after)), at(b), uint32(len(b)))
	})
}

// isFilled is set once the instance has seen a state that is not new.
var isFilled bool

func filled() bool { return isFilled }

func setFilled() { isFilled = true }
