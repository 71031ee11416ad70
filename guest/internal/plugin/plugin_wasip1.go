package plugin

//go:wasmexport kubewasm_abi_v1
func exportMarker() uint64 { return uint64(mask) }

//go:wasmexport configure
func exportConfigure() int32 { return int32(configure()) }

// Check does nothing: the native tests of a plugin find a method with the wrong type.
func Check[I any](p any) {}
