package wasmbin

import "math"

// The limits of a module. Entries of some bytes each become hundreds of bytes in the decoder, in
// wazero's compiler and in each instance, and microseconds of work: five megabytes of parameters of
// one type kept wazero busy for a minute. At these limits no kind of entry takes more than a second
// or 100 MB. Each is several times the number in the largest known guest, a Go guest of 18 MB that
// links the Kubernetes types.
const (
	// MaxFunctions is the greatest number of functions that a guest may define: at
	// five microseconds each, they take a second. A Go guest of 26 MB has 13,000.
	MaxFunctions = 200_000

	// MaxLocals is the greatest number of locals, parameters aside, that a function may declare,
	// the same as in browsers. wazero allocates eight bytes for each before any check, and a
	// declaration of four billion takes seven bytes of a binary.
	MaxLocals = 50_000

	// MaxBodyBytes is the size of the largest body of a function, which the compiler
	// has in memory as a whole; see maxFunctionMemory. The largest body in that Go
	// guest has 196 KB.
	MaxBodyBytes = 512 << 10

	// maxTotalLocals bounds the locals of all functions together, besides one
	// for each byte of the binary. Guests of Go, TinyGo, C and Rust declare one
	// local for about ten bytes.
	maxTotalLocals = 1 << 20

	maxTypes       = 50_000
	maxValues      = 1_000   // Parameters of a type, and results: the limits of browsers.
	maxTotalValues = 500_000 // Parameters and results of all types.
	maxImports     = 10_000
	maxTables      = 1_000
	maxTags        = 10_000
	maxGlobals     = 50_000
	maxExports     = 50_000
	// maxMemories is the limit of WebAssembly; more than one memory is refused as such.
	maxMemories = math.MaxInt32

	maxElementSegments = 10_000
	maxElements        = 500_000 // Of all segments. An instance keeps eight bytes for each.
	// maxDataSegments is the limit of browsers, which Go's linker heeds.
	maxDataSegments = 100_000

	maxCustoms = 10_000
	// maxNames is the maximum number of names of functions in the name section, beyond which it is
	// dropped.
	maxNames     = 1 << 20
	maxNameBytes = 100_000 // The limit of browsers.
)
