package service

import (
	"unsafe"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/codes"
	"github.com/kubewasm/kubewasm/guest/internal/hostcall"
	"github.com/kubewasm/kubewasm/guest/internal/plugin"
)

// hostOrder is the initial value of the last position in messages of hosts.
const hostOrder = 0

//go:wasmimport kubewasm/service request
func hostRequest(buf unsafe.Pointer, limit uint32) uint32

//go:wasmimport kubewasm/service response
func hostResponse(ptr unsafe.Pointer, n uint32)

//go:wasmimport kubewasm/service answer
func hostAnswerImport(buf unsafe.Pointer, limit uint32) uint32

func hostAnswer(buf []byte) uint32 {
	return hostAnswerImport(unsafe.Pointer(unsafe.SliceData(buf)), uint32(len(buf)))
}

//go:wasmimport kubewasm/service serve
func hostServe(ptr unsafe.Pointer, n uint32)

//go:wasmexport services
func exportServices() {
	var names []byte
	for i := range services {
		names = append(append(names, services[i].name...), 0)
	}
	hostServe(unsafe.Pointer(unsafe.SliceData(names)), uint32(len(names)))
}

var buffer abi.Buffer

// Serve is the export of a method: it calls p with the host's request. It is for generated
// code.
func Serve[P any](m *Method[P], p P) int32 {
	request := buffer.Fill(func(buf []byte) uint32 {
		return hostRequest(unsafe.Pointer(unsafe.SliceData(buf)), uint32(len(buf)))
	})
	response, kept, err := m.run(p, request)
	if kept {
		buffer = abi.Buffer{}
	}
	plugin.Yield()
	if err != nil {
		hostcall.StatusReason(err.Error())
		return int32(codeOf(err))
	}
	// An empty response needs no host call.
	if len(response) != 0 {
		hostResponse(unsafe.Pointer(unsafe.SliceData(response)), uint32(len(response)))
	}
	return int32(codes.OK)
}
