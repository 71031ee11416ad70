// Package abi is the contract between a kubewasm host and its guests: which
// functions a guest exports, which it may import, how numbers are packed, how
// bytes cross the boundary and what a reference to an object means.
//
// The normative text, for guests in any language, is SPEC.md in this
// directory. This package says the same in Go, depends on the standard library
// only, and builds for the host as well as for GOOS=wasip1, so that both sides
// share one definition.
//
// Nothing but numbers crosses on the stack. Everything else lies in the guest's
// memory, which only the guest allocates:
//
//   - Bytes to the guest follow the buffer-limit rule: [Write] is the host's
//     side, [Buffer] the guest's.
//   - A result is a status code, or a status code and a second 32-bit number
//     packed into one i64: [Pack].
//   - An object argument is a [Ref]: a slot and the version of what lies in it.
package abi
