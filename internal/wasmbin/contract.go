package wasmbin

import "strconv"

// The contract of the rewriter and the host. A guest may use no name that begins with
// ReservedPrefix for an import, the import's module or an export.
const (
	// ReservedPrefix begins every name that the rewriter adds.
	ReservedPrefix = "kubewasm:"

	// YieldModule and YieldName are the import () -> () that a metered guest calls when its fuel is
	// negative, and between two megabytes of a bulk operation even if its fuel is not negative. The
	// host either makes the global FuelGlobal of the calling instance non-negative and returns, or
	// panics, which ends the guest's call with that error. A guest whose fuel is still negative
	// yields again at once. A guest whose StackGlobal is negative calls it, too; the host must
	// panic then, and the guest traps if it does not.
	YieldModule = ReservedPrefix + "meter"
	YieldName   = "yield"

	// FuelGlobal is the exported mutable i64 global that holds the fuel left.
	// It begins at [Options.Fuel].
	FuelGlobal = ReservedPrefix + "fuel"

	// StackGlobal is the exported mutable i32 global that holds the stack left, in bytes. It begins
	// at [Options.StackBytes], and is back there when a call has returned; after a call that did
	// not return, the host must set it.
	StackGlobal = ReservedPrefix + "stack"

	// ProfilerModule is the module from which a guest that is rewritten with [Options.Profile]
	// imports functions: those of [Profiler].
	ProfilerModule = ReservedPrefix + "profiler"

	// globalPrefix, with an index, names the exports of the mutable globals
	// that a guest defines.
	globalPrefix = ReservedPrefix + "global/"
)

// The price list: an instruction costs 1, except that block, loop, else, end
// and nop are free, as they become no machine code. Bulk
// operations cost, besides, by length.
const (
	// BytesPerFuel is the number of bytes that memory.copy, memory.fill and memory.init move for
	// one unit of fuel. Table operations cost one for each element.
	BytesPerFuel = 1 << bytesShift
	// FuelPerPage is the price of a page of memory.grow: the kernel has to
	// find, clear and map it.
	FuelPerPage = 1 << pageShift

	bytesShift = 3
	pageShift  = 13
)

// globalName is the export of the guest's global of that index.
func globalName(index uint32) string { return globalPrefix + strconv.FormatUint(uint64(index), 10) }
