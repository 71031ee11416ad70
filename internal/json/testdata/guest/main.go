// Guest reads JSON in WebAssembly for a test that compares.
package main

import (
	"runtime"
	"runtime/debug"
	"strings"
	"unsafe"

	"github.com/kubewasm/kubewasm/internal/json/testdata/trace"
)

var (
	out   []byte
	calls int
)

// The heap must not grow into the memory where documents are put: it is small, and
// has grown before.
func init() {
	debug.SetGCPercent(10)
	doc := []byte("[" + strings.Repeat(`{"a":["b\n"]},`, 2000) + "{}]")
	for range 200 {
		out = trace.Append(out[:0], doc, trace.Walker)
		runtime.Gosched()
	}
}

// traceJSON returns where the trace of the n bytes at doc lies, as the Reader by reads them, and in
// the upper half its length. The document may lie where the heap is not.
//
//go:wasmexport trace
func traceJSON(doc unsafe.Pointer, n, by uint32) uint64 {
	if calls++; calls%64 == 0 {
		runtime.Gosched() // A garbage collection that has begun goes on.
	}
	out = trace.Append(out[:0], unsafe.Slice((*byte)(doc), n), trace.Reader(by))
	return uint64(len(out))<<32 | uint64(uintptr(unsafe.Pointer(unsafe.SliceData(out))))
}

func main() {}
