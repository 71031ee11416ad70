package lookup

import (
	"runtime"
	"unsafe"

	"github.com/kubewasm/kubewasm/abi"
)

// A guest that does not use these does not import them, so it needs no grant.

//go:wasmimport k8s.io/api get_object
func importGetObject(ptr unsafe.Pointer, n uint32, buf unsafe.Pointer, limit uint32) uint32

//go:wasmimport k8s.io/api list_objects
func importListObjects(ptr unsafe.Pointer, n uint32, buf unsafe.Pointer, limit uint32) uint32

// buffer is that of the last answer.
var buffer abi.Buffer

func at(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

func text(s string) unsafe.Pointer { return unsafe.Pointer(unsafe.StringData(s)) }

func hostGet(question string) []byte {
	return buffer.Fill(func(b []byte) uint32 {
		return importGetObject(text(question), uint32(len(question)), at(b), uint32(len(b)))
	})
}

func hostList(question string) []byte {
	return buffer.Fill(func(b []byte) uint32 {
		return importListObjects(text(question), uint32(len(question)), at(b), uint32(len(b)))
	})
}

// fetched is the number of bytes allocated since the last garbage collection.
var fetched int

// collectAfter is the maximum number of bytes of objects that may be garbage. Go starts a
// collection by itself when the heap has doubled, but the collector needs several calls to finish,
// and a long list would fill the guest's memory before.
const collectAfter = 4 << 20

// fresh returns a copy of an answer.
func fresh(b []byte) []byte {
	if fetched += len(b); fetched > collectAfter {
		fetched = len(b)
		runtime.GC()
	}
	return append(make([]byte, 0, len(b)), b...)
}
