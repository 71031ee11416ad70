package hostcall

import "unsafe"

//go:wasmimport kubewasm config
func hostConfig(buf unsafe.Pointer, limit uint32) uint32

//go:wasmimport kubewasm status_reason
func hostStatusReason(ptr unsafe.Pointer, n uint32)

//go:wasmimport kubewasm log
func hostLog(level int32, ptr unsafe.Pointer, n uint32)

func config(buf []byte) uint32 {
	return hostConfig(unsafe.Pointer(unsafe.SliceData(buf)), uint32(len(buf)))
}

func statusReason(reason string) {
	hostStatusReason(unsafe.Pointer(unsafe.StringData(reason)), uint32(len(reason)))
}

func log(level int32, msg string) {
	hostLog(level, unsafe.Pointer(unsafe.StringData(msg)), uint32(len(msg)))
}
