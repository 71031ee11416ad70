package wasmbin

// wazero's compiler makes one instruction of an `and` whose result is compared with 0
// and branched upon, also where the 0 stands first, and does not turn the comparison
// round then: of `0 < (a & b)` it makes `(a & b) < 0`. LLVM has constants last, but Go
// writes x > 0 with the 0 first. And on arm64 the instruction leaves another carry than a
// comparison with 0 does, so unsigned comparisons are wrong in either order. So such a
// branch gets the opposite comparison and an i32.eqz, which the compiler makes nothing
// of.

// comparison is what the last instructions say about a branch that follows.
type comparison struct {
	// from is the instruction before, but for an end or a nop.
	from place
	// ands says of each local whether it was set to the result of an `and`, or to what
	// such a local had: then it has the number of the function.
	ands     []uint32
	function uint32
	// ordered is the last comparison of integers for less or more if its second operand
	// may be the result of an `and`, or it is unsigned and that is 0, and next where the
	// instruction behind it begins.
	ordered place
	next    int
}

// begin begins a function with so many locals.
func (c *comparison) begin(locals uint64) {
	if uint64(len(c.ands)) < locals {
		c.ands = make([]uint32, locals)
	}
	*c = comparison{ands: c.ands, function: c.function + 1, next: none}
}

// isAnd reports whether an instruction may leave the result of an `and`: wazero sees
// through locals and globals.
func (c *comparison) isAnd(p place) bool {
	switch p.op {
	case opI32And, opI64And, opGlobalGet:
		return true
	case opLocalGet, opLocalTee:
		return uint64(p.imm) < uint64(len(c.ands)) && c.ands[p.imm] == c.function
	}
	return false
}

// compare notes an instruction, and changes the comparison before it if it is a branch.
func (b *bodyRewriter) compare() {
	s := &b.scanner
	c := &b.comparison
	switch op := s.op; op {
	case opNop, opEnd:
		if c.next == s.at {
			c.next = s.pos
		}
		return
	case opLocalSet, opLocalTee:
		if c.isAnd(c.from) && uint64(s.imm) < uint64(len(c.ands)) {
			c.ands[s.imm] = c.function
		}
	case opI32LtS, opI32GtS, opI32LeS, opI32GeS, opI64LtS, opI64GtS, opI64LeS, opI64GeS:
		if c.isAnd(c.from) {
			c.ordered, c.next = place{op: op, at: s.at}, s.pos
		}
	case opI32LtU, opI32GtU, opI32LeU, opI32GeU, opI64LtU, opI64GtU, opI64LeU, opI64GeU:
		if zero := (c.from.op == opI32Const || c.from.op == opI64Const) && s.buf[c.from.at+1] == 0; zero || c.isAnd(c.from) {
			c.ordered, c.next = place{op: op, at: s.at}, s.pos
		}
	case opIf, opBrIf:
		if c.next != s.at {
			break
		}
		b.edits = append(b.edits, edit{at: c.ordered.at, end: s.at, kind: editUnfused, fill: inverse(c.ordered.op)})
	}
	c.from = place{s.op, s.at, s.imm}
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
