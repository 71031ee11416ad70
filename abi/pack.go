package abi

// Pack puts a status code and a second 32-bit result into one i64:
// second << 32 | code. Both halves keep their bits, whether they are read as
// signed or as unsigned numbers.
func Pack(second, code uint32) uint64 { return uint64(second)<<32 | uint64(code) }

// Unpack returns the two halves of a packed result.
func Unpack(packed uint64) (second, code uint32) { return uint32(packed >> 32), uint32(packed) }

// PackScore packs the result of score.
func PackScore(score int32, code Code) uint64 { return Pack(uint32(score), uint32(code)) }

// UnpackScore returns the parts of the result of score.
func UnpackScore(packed uint64) (score int32, code Code) {
	s, c := Unpack(packed)
	return int32(s), Code(int32(c))
}

// PackVerdict packs the result of validate and mutate. status is the HTTP status code of a
// denial, 0 for the default, 403.
func PackVerdict(status uint32, v Verdict) uint64 { return Pack(status, uint32(v)) }

// UnpackVerdict returns the parts of the result of validate or mutate.
func UnpackVerdict(packed uint64) (status uint32, v Verdict) {
	s, c := Unpack(packed)
	return s, Verdict(int32(c))
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

// NextVersion returns the version after v. It never returns 0, so that a
// version that wraps round does not become "no object".
func NextVersion(v uint32) uint32 {
	if v++; v == 0 {
		return 1
	}
	return v
}
