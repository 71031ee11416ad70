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
// and an i32.eqz, which the compiler fuses with a branch as a comparison for equality only.

// ordered follows the straight code since the last label or conditional branch.
type ordered struct {
	// and is set after an `and`.
	and bool
	// op is the instruction before, but for a nop, and at where it begins.
	op, at int
}

// straight notes that straight code begins.
func (o *ordered) straight() { *o = ordered{} }

// compare notes an instruction, and changes it if it is a comparison that a branch could get
// wrong.
func (b *bodyRewriter) compare() {
	s := &b.scanner
	o := &b.ordered
	switch op := s.op; op {
	case OpNop:
		return
	case OpI32And, OpI64And:
		o.and = true
	case OpLoop, OpIf, OpElse, OpEnd, OpBrIf:
		o.straight()
	case OpI32LtS, OpI32GtS, OpI32LeS, OpI32GeS, OpI64LtS, OpI64GtS, OpI64LeS, OpI64GeS:
		b.unfuse(false)
	case OpI32LtU, OpI32GtU, OpI32LeU, OpI32GeU, OpI64LtU, OpI64GtU, OpI64LeU, OpI64GeU:
		b.unfuse(true)
	}
	o.op, o.at = s.op, s.at
}

// unfuse separates a comparison from a branch after it, unless a constant as its second
// operand rules out that it is one that the compiler gets wrong.
func (b *bodyRewriter) unfuse(unsigned bool) {
	s := &b.scanner
	o := &b.ordered
	if !o.and || b.current == none {
		return
	}
	if o.op == OpI32Const || o.op == OpI64Const {
		if v, _ := varint(s.buf[o.at+1:], 10); !unsigned || v != 0 {
			return
		}
	}
	if s.pos < len(s.buf) && s.buf[s.pos] == OpI32Eqz {
		return // Taken apart already.
	}
	b.edits = append(b.edits, edit{at: s.at, end: s.pos, kind: editUnfused, op: inverse(s.op)})
}

// inverse returns the opposite of a comparison of two integers.
func inverse(op int) byte {
	first := OpI32Eq
	if op >= OpI64Eq {
		first = OpI64Eq
	}
	return byte(first) + inverses[op-first]
}

// inverses are the opposites of the comparisons, in their order: eq, ne, lt_s, lt_u, gt_s,
// gt_u, le_s, le_u, ge_s, ge_u.
var inverses = [...]byte{1, 0, 8, 9, 6, 7, 4, 5, 2, 3}
