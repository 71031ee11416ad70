// Package wasmbin rewrites guests so that the host stays in control of them. It is correct for any
// module and knows no compiler; knowledge about the code of one compiler lies in a [Pass].
//
// [Rewrite] takes the binary of a WebAssembly module and returns one that behaves the same, but
//
//   - counts fuel and calls the host when it has none left, which gives the host
//     budgets that are exact and repeatable, deadlines that stop loops and
//     recursion, and a turn for Go's garbage collector;
//   - counts the stack that its functions take, so that endless recursion stops at a limit of the
//     host;
//   - fills and copies memory a megabyte at a time, with a turn for the host between;
//   - can grow its memory and its tables only so far;
//   - exports its mutable globals, so that the host can snapshot and restore an
//     instance;
//   - avoids code that wazero's compiler would compile wrongly;
//   - keeps its names, for stack traces.
//
// It refuses a module that is malformed, that wazero finds invalid, or that would take the
// compiler much longer than other code of its size.
//
// # The steps
//
// In the order in which a module goes through them, with the file to read:
//
//  1. The binary is decoded down to the bodies of functions, within limits on the number of
//     everything (decode.go, limits.go; instructions.go reads bodies).
//  2. The memory, the tables and the names are checked and capped, and the imports and
//     exports described (rewrite.go).
//  3. The [Pass], if there is one, changes bodies.
//  4. All bodies are surveyed: for the calls to charge for the stack (stack.go), and for the time
//     that the compiler would take (complexity.go).
//  5. The host validates the original binary ([Options.Validate]).
//  6. Each body is metered (meter.go, bulk.go). On the way, comparisons and remainders that
//     wazero compiles wrongly are replaced (wazero_branches.go, wazero_remainders.go).
//  7. Function indexes elsewhere are renumbered, globals exported, custom sections kept or
//     dropped (rewrite.go, names.go), and the module is encoded (encode.go).
//
// It covers everything that wazero v1.12 accepts: the MVP, sign extension, multiple values,
// saturating conversions, bulk memory, reference types, SIMD, extended constant expressions, tail
// calls, threads, exceptions with exnref, and typed function references. wazero has no second
// memory, no 64-bit memory and no relaxed SIMD, so these are refused.
//
// # The host's side
//
// A metered guest imports [YieldModule].[YieldName], a function without
// parameters and results, and exports [FuelGlobal], a mutable i64. The host
//
//  1. instantiates a host module of that name, whose function checks its budget, deadline and
//     context, and either sets the fuel of the calling module for the next slice, or panics with
//     its own error, which the guest's caller gets back and a guest cannot catch;
//  2. sets the fuel before each call, as the last one may have left it negative;
//  3. computes the fuel of a call by subtraction;
//  4. panics also when [StackGlobal] is negative, and sets that global anew after a call that did
//     not return.
//
// Fuel is charged before it is spent: a deficit found by a yield was granted already, and must be
// taken from the next slice. A yield between the pieces of a bulk operation finds no deficit.
//
// # Charges
//
// Each instruction costs 1, but for those that only mark a place (nop, block,
// loop, else, end). Bulk operations cost, besides, 1 for [BytesPerFuel] bytes or
// for an element of a table, and [FuelPerPage] for a page of memory. The charge
// for a run is the number of the instructions that ran, of those that the pass
// left. Only a trap or an exception that leaves straight code in the
// middle leaves the rest of that code charged. So a call costs the same each time,
// on each machine, and on wazero's compiler and interpreter alike.
//
// A function with many charges counts in a local, and writes the count to [FuelGlobal] before
// anything else reads or changes that: calls, yields and its own end. A trap, except that of
// unreachable, loses the function's count since then, less than the host gave at a time. So a call
// that traps may have spent more than the global shows.
//
// The fuel is compared at the head of each loop and at the entry of each
// function that calls others or is large, so between two comparisons only
// straight code can run.
//
// # Cost
//
// Against the plain guest on wazero's compiler (BenchmarkMetering, minima):
// tight loops x1.0, a loop of nothing but branches x1.1, recursive fib x1.1;
// JSON, sorting and hashing in a guest of standard Go x1.1 without a pass, strings
// and matrices in one of TinyGo x1.2.
package wasmbin
