package view

import (
	"unsafe"

	"github.com/kubewasm/kubewasm/abi"
)

//go:wasmimport k8s.io/api object
func hostObjectImport(ref uint64, buf unsafe.Pointer, limit uint32) uint32

// hostObject asks for the bytes of an object by the buffer-limit rule.
func hostObject(ref abi.Ref, buf []byte) uint32 {
	return hostObjectImport(uint64(ref), unsafe.Pointer(unsafe.SliceData(buf)), uint32(len(buf)))
}

//go:wasmimport k8s.io/api object_part
func hostPartImport(ref uint64, part uint32, fields uint64, buf unsafe.Pointer, limit uint32) uint32

// hostPart asks for some fields of a part of an object, a bit for each, by the
// buffer-limit rule.
func hostPart(ref abi.Ref, part uint32, fields uint64, buf []byte) uint32 {
	return hostPartImport(uint64(ref), part, fields, unsafe.Pointer(unsafe.SliceData(buf)), uint32(len(buf)))
}

//go:wasmimport k8s.io/api object_entry
func hostEntryImport(ref uint64, field uint32, ptr unsafe.Pointer, n uint32, buf unsafe.Pointer, limit uint32) uint32

// hostEntry asks for the value of a key in a map of an object's metadata by the
// buffer-limit rule; abi.NoEntry if there is none.
func hostEntry(ref abi.Ref, field uint32, key string, buf []byte) uint32 {
	return hostEntryImport(uint64(ref), field, unsafe.Pointer(unsafe.StringData(key)), uint32(len(key)), unsafe.Pointer(unsafe.SliceData(buf)), uint32(len(buf)))
}

// refEpoch returns a number that changes when refs mean other objects: never in a guest.
func refEpoch() uint64 { return 0 }
