package hooks

import (
	"unsafe"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/internal/plugin"
)

//go:wasmimport k8s.io/hooks request
func hostRequest(buf unsafe.Pointer, limit uint32) uint32

//go:wasmimport k8s.io/hooks decision
func hostDecision(ptr unsafe.Pointer, n uint32)

var (
	buffer  abi.Buffer
	current call
)

//go:wasmexport hook
func exportHook() int32 {
	request := buffer.Fill(func(buf []byte) uint32 {
		return hostRequest(unsafe.Pointer(unsafe.SliceData(buf)), uint32(len(buf)))
	})
	code := current.hook(request, func(out []byte) {
		hostDecision(unsafe.Pointer(unsafe.SliceData(out)), uint32(len(out)))
	})
	plugin.Yield()
	return int32(code)
}
