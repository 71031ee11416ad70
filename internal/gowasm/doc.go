// Package gowasm knows the code that Go's compiler writes for WebAssembly, and takes three
// detours out of it. [Optimize] is a [wasmbin.Pass]: it changes one body at a time, before
// that is metered. Metering and limits do not depend on it; without it guests of Go are
// slower and nothing else. An operator turns it off by host.RuntimeConfig.DisableGoPass.
//
// # The pieces
//
// Times are of the same row without the piece and with it, interleaved in one process
// (minima of 41 rounds, amd64).
//
// Jumps (jumps.go): Go's compiler writes each jump as a branch to the head of one loop and an
// indirect branch from there. A jump forward gets the label of its block instead. Go JSON
// takes 1.33 times as long without it, Go sort 1.15, a cycle that asks about each of 1,000
// Nodes 1.10. In a function of Go's form a test for the first block comes before the indirect
// branch: Go JSON takes 1.1 times as long without it.
//
// Addresses (addresses.go): Go's compiler adds up the address of each variable on its stack.
// The load or store gets an offset instead, and one check of the bounds stands for all
// accesses between two branches. A cycle that asks about each of 1,000 Nodes takes 1.28
// times as long without it, Go JSON 1.12, Go sort 1.11; 1.2 of the 1.28 are the one check.
//
// Strings (strings.go): Go compares strings of the same length byte by byte, 24 instructions
// for each. Eight bytes are compared at a time instead. A cycle that asks about each of 1,000
// Nodes, and compares names of zones, takes 1.16 times as long without it.
//
// # What is recognised
//
// A jump forward is changed by its form alone: a loop that begins with a br_table by a local, and a
// constant that is stored in that local right before the branch to the loop. That is right
// in any module, so nothing else is asked of the function.
//
// Addresses are changed only in a function of Go's form: one i32 in and out; the first local
// an i32 that is a copy of global 0, taken at the beginning, and wherever one of the two is
// written, so is the other; and the addition in the five instructions that Go's compiler
// writes. The comparison of strings is one function, which has exactly the bytes that it has in
// Go's library. Anything else is left alone, byte for byte. Names are not looked at.
//
// # What a guest can tell
//
// Results, traps, memory, globals and calls of the host are the same, as long as the stack
// lies within the memory, which that of Go does. Where the bytes that a function accesses
// from its stack pointer, 64 KiB at most, end beyond the memory, the function traps at the
// first access instead of the one that is beyond; and where they end beyond 4 GiB, it traps
// instead of going on at address 0. The host keeps nothing of a call that traps, and gives
// no memory the last page of the 4 GiB, so that only a function with a stack pointer outside
// of any memory differs: no compiled one has that. A comparison of strings that end beyond the
// memory may trap where one byte at a time finds a difference before: Go has no such strings.
//
// Fuel differs: it counts the instructions that are left, and the three of a check. JSON in
// Go takes a tenth less, a tight loop over the stack up to a hundredth more. It is the same
// on each machine and engine, and changes only with this package: host.rewritingVersion.
package gowasm
