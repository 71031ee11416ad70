package plugin

//go:wasmexport kubewasm_abi_v1
func exportMarker() uint64 { return uint64(mask) }

//go:wasmexport configure
func exportConfigure() int32 { return int32(configure()) }
