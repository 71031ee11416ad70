package abi

import "github.com/kubewasm/kubewasm/abi/codes"

// Pack puts a status code and a second 32-bit result into one i64:
// second << 32 | code. Both halves keep their bits. The second is, for
// example, a score as an int32, or the HTTP status of a denial.
func Pack[C Code | Verdict | codes.Code](second uint32, code C) uint64 {
	return uint64(second)<<32 | uint64(uint32(code))
}

// Unpack returns the two halves of a packed result.
func Unpack[C Code | Verdict | codes.Code](packed uint64) (second uint32, code C) {
	return uint32(packed >> 32), C(int32(packed))
}

// Ref names a version of an object: version << 32 | slot, in an i64.
//
// A slot stands for one object for as long as the host needs it, and later for
// another. The version changes whenever the bytes of the slot change. So a
// guest keeps what it read from a slot until the version changes, and the
// number of slots bounds its memory. Versions start at 1: the zero Ref is no
// object.
//
// A scheduling cycle also has a Ref: the guest's state of a cycle ends when the
// version of its slot changes.
type Ref uint64

// MakeRef returns the Ref of a version of a slot.
func MakeRef(version, slot uint32) Ref { return Ref(uint64(version)<<32 | uint64(slot)) }

// Slot returns the slot, a small number that is used again.
func (r Ref) Slot() uint32 { return uint32(r) }

// Version returns the version of the object in the slot.
func (r Ref) Version() uint32 { return uint32(r >> 32) }
