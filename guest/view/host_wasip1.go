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
