package wasmbin

// MaxModuleBytes is the size of the largest module that a source provides.
const MaxModuleBytes = 256 << 20
