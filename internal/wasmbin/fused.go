package wasmbin

// wazero's compiler makes one instruction of an `and`, a comparison of its result with 0 and
// a branch, also where the 0 stands first, and does not turn the comparison round then: of
// `0 < (a & b)` it makes `(a & b) < 0`. And on arm64 that instruction leaves another carry
// than a comparison with 0 does, so unsigned comparisons are wrong in either order.
//
// The compiler sees through locals, globals and blocks, so the operands of a comparison do
// not stand where it can be read what they are. But it fuses only what lies between two of
// its basic blocks: an ordered comparison (less or more) without an `and` in front of it in
// the same straight code stays what it is. One with an `and` becomes the opposite comparison
// and an i32.eqz, which the compiler fuses with no branch but as a comparison for equality.

// ordered follows the straight code since the last label or conditional branch.
type ordered struct {
	// and says that there was an `and`.
	and bool
	// from is the instruction before, but for a nop.
	from place
	// kept is where the last comparison is that must be left as it is, or none.
	kept int
}

// straight notes that straight code begins.
func (o *ordered) straight() { *o = ordered{kept: none} }

// compare notes an instruction, and changes it if it is a comparison that a branch could get
// wrong.
func (b *bodyRewriter) compare() {
	s := &b.scanner
	o := &b.ordered
	switch op := s.op; op {
	case opNop:
		return
	case opI32And, opI64And:
		o.and = true
	case opLoop, opIf, opElse, opEnd, opBrIf:
		o.straight()
	case opI32LtS, opI32GtS, opI32LeS, opI32GeS, opI64LtS, opI64GtS, opI64LeS, opI64GeS:
		b.unfuse(false)
	case opI32LtU, opI32GtU, opI32LeU, opI32GeU, opI64LtU, opI64GtU, opI64LeU, opI64GeU:
		b.unfuse(true)
	}
	o.from = place{s.op, s.at, s.imm}
}

// unfuse takes a comparison apart from a branch behind it, unless a constant as its second
// operand rules out that it is one that the compiler gets wrong.
func (b *bodyRewriter) unfuse(unsigned bool) {
	s := &b.scanner
	o := &b.ordered
	if !o.and || b.current == none {
		return
	}
	if from := o.from; from.op == opI32Const || from.op == opI64Const {
		if v, _ := varint(s.buf[from.at+1:], 10); !unsigned || v != 0 {
			return
		}
	}
	o.kept = s.at
	if s.pos < len(s.buf) && s.buf[s.pos] == opI32Eqz {
		return // Taken apart already.
	}
	b.edits = append(b.edits, edit{at: s.at, end: s.pos, kind: editUnfused, fill: inverse(s.op)})
}

// inverse returns the opposite of a comparison of two integers.
func inverse(op int) byte {
	first := opI32Eq
	if op >= opI64Eq {
		first = opI64Eq
	}
	return byte(first) + inverses[op-first]
}

// inverses are the opposites of the comparisons, in their order: eq, ne, lt_s, lt_u, gt_s,
// gt_u, le_s, le_u, ge_s, ge_u.
var inverses = [...]byte{1, 0, 8, 9, 6, 7, 4, 5, 2, 3}
