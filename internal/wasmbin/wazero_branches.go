package wasmbin

// wazero's compiler fuses an `and`, a comparison of its result with 0 and a branch into one
// instruction, even if the 0 is the first operand, and does not reverse the comparison then: of `0
// < (a & b)` it makes `(a & b) < 0`. Also, on arm64 that instruction sets the carry differently
// from a comparison with 0, so unsigned comparisons are wrong in either order.
//
// The compiler sees through locals, globals and blocks, so the code before a comparison does not
// show its operands. But it fuses only within one of its basic blocks: an ordered comparison (less
// or more) without an `and` before it in the same straight code stays as it is. One with an `and`
// becomes the opposite comparison and an i32.eqz, which the compiler fuses with a branch only as a
// comparison for equality.

// ordered follows the straight code since the last label or conditional branch.
type ordered struct {
	// and is set after an `and`.
	and bool
	// op is the instruction before, except for a nop, and at its beginning.
	op, at int
}

// straight records that straight code begins.
func (o *ordered) straight() { *o = ordered{} }

// compare records an instruction, and changes it if it is a comparison that a branch could get
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

// unfuse separates a comparison from a branch after it, unless a constant as its second operand
// shows that the compiler gets it right.
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
