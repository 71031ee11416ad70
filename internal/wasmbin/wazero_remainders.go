package wasmbin

// wazero's compiler has a mistake in remainders on arm64, which is corrected after version
// 1.12 (https://github.com/wazero/wazero/pull/2508): the quotient lies in the register of the
// result until it is multiplied, and may be overwritten in between if registers are scarce.
// So a rem b becomes a - a / b * b there.

// remainder records a remainder to expand.
func (b *bodyRewriter) remainder() {
	s := &b.scanner
	if !b.divide || b.current == none {
		return
	}
	b.edits = append(b.edits, edit{at: s.at, end: s.pos, kind: editRemainder, op: byte(s.op)})
	b.remainders[wide(byte(s.op))] = true
}

// wide returns 1 for a remainder of 64 bits and 0 for one of 32.
func wide(op byte) int {
	if op >= OpI64RemS {
		return 1
	}
	return 0
}

// appendRemainder appends the replacement of a remainder, whose operands are on the stack.
func (b *bodyRewriter) appendRemainder(out []byte, op byte) []byte {
	i := wide(op)
	dividend, divisor := b.dividends[i], b.dividends[i]+1
	local := func(op byte, index uint64) { out = appendUvarint(append(out, op), index) }
	constant, equal, multiply, subtract := byte(OpI32Const), byte(OpI32Eq), byte(OpI32Mul), byte(OpI32Sub)
	if i == 1 {
		constant, equal, multiply, subtract = OpI64Const, OpI64Eq, OpI64Mul, OpI64Sub
	}
	local(OpLocalSet, divisor)
	local(OpLocalSet, dividend)
	if op == OpI32RemS || op == OpI64RemS {
		// Of -1 the remainder is 0 as of 1, and the quotient may be beyond all numbers.
		out = append(out, constant, 1)
		local(OpLocalGet, divisor)
		local(OpLocalGet, divisor)
		out = append(out, constant, 0x7f, equal, OpSelect)
		local(OpLocalSet, divisor)
	}
	local(OpLocalGet, dividend)
	local(OpLocalGet, dividend)
	local(OpLocalGet, divisor)
	out = append(out, op-2) // The division.
	local(OpLocalGet, divisor)
	return append(out, multiply, subtract)
}
