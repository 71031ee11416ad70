package wasmbin

import (
	"encoding/binary"
	"math"
)

// What Go's compiler writes for a variable on its stack is
//
//	local.get $sp  i64.extend_i32_u  i64.const 24  i64.add  i32.wrap_i64  ...  i64.store
//
// and not the offset that a store could have: five instructions for one, a tenth of all
// code. wazero translates each, and checks the bounds of each address anew, where
// several offsets from one address share a check. So the rewriter writes the offset,
// and has the furthest one checked first.
//
// It is not quite the same: an address that the addition takes beyond 4 GiB is one at
// the beginning of the memory before, and a trap now. So this is only for guests of
// Go, whose stack never lies there.

// address is an address on the operand stack that was added up as above.
type address struct {
	edit   int    // What leaves the addition out, once it is known who takes the address.
	cut    int    // Where the addition ends in the body.
	depth  int    // How many operands lie below it.
	offset uint32 // What is added.
	stack  bool   // It is that of the stack, with or without something added.
}

// maxOffset is the greatest offset that is written. Go's frames are smaller.
const maxOffset = 1 << 20

// operands follows what lies on the operand stack between two branches or calls.
type operands struct {
	depth     int // How many operands there are, beside those from before.
	addresses []address
	last      [4]place // The last instructions, the last one last.
	// check is the edit in front of the first access to the stack, none before that, and
	// end where the furthest access ends.
	check int
	end   uint64
}

// place is an instruction in the body, with the first index of its immediates.
type place struct {
	op, at int
	imm    uint32
}

// forget begins anew.
func (o *operands) forget() { *o = operands{addresses: o.addresses[:0], check: none} }

// golang notes an instruction of a guest of Go.
func (b *bodyRewriter) golang() {
	s := &b.scanner
	o := &b.operands
	if s.op == opNop {
		return
	}
	if s.op >= len(takes) || takes[s.op] < 0 || b.current == none {
		o.forget()
		return
	}
	pops := int(takes[s.op])
	if s.op >= opI32Load && s.op <= opI64Store32 && len(o.addresses) > 0 {
		b.access(o.depth - pops)
	}
	noted := place{s.op, s.at, s.imm}
	if s.op == opI32Eqz && b.negate(o.last[3]) {
		noted.op = opNop
	}
	for n := len(o.addresses); n > 0 && o.addresses[n-1].depth >= o.depth-pops; n-- {
		o.addresses = o.addresses[:n-1] // Taken.
	}
	o.depth += int(heights[s.op])
	switch {
	case s.op == opI32WrapI64 && o.last[1].op == opI64ExtendI32U && o.last[2].op == opI64Const && o.last[3].op == opI64Add:
		if offset, n := varint(s.buf[o.last[2].at+1:], 10); n > 0 && offset >= 0 && offset <= maxOffset {
			o.addresses = append(o.addresses, address{
				edit: len(b.edits), cut: s.pos, depth: o.depth - 1, offset: uint32(offset), stack: o.last[0].op == opLocalGet && o.last[0].imm == stackPointer,
			})
			b.edits = append(b.edits, edit{at: o.last[1].at, end: o.last[1].at, kind: editCut})
		}
	case s.op == opLocalGet && s.imm == stackPointer:
		o.addresses = append(o.addresses, address{edit: none, depth: o.depth - 1, stack: true})
	case (s.op == opLocalSet || s.op == opLocalTee) && s.imm == stackPointer:
		o.check = none
	}
	o.last[0], o.last[1], o.last[2], o.last[3] = o.last[1], o.last[2], o.last[3], noted
}

// access writes an offset into a load or a store whose address has that many operands
// below it, if that was added up.
func (b *bodyRewriter) access(depth int) {
	s := &b.scanner
	o := &b.operands
	n := len(o.addresses)
	for n > 0 && o.addresses[n-1].depth > depth {
		n--
	}
	if n == 0 || o.addresses[n-1].depth != depth {
		return
	}
	a := &o.addresses[n-1]
	_, n = binary.Uvarint(s.buf[s.immAt:]) // The alignment.
	own, _ := binary.Uvarint(s.buf[s.immAt+n:])
	offset := own + uint64(a.offset)
	if offset > math.MaxUint32-16 {
		return
	}
	if a.stack {
		b.reach(offset + uint64(accessBytes[s.op-opI32Load]))
	}
	if a.edit == none {
		return
	}
	b.edits[a.edit].end = a.cut
	b.edits[b.current].cost -= 4
	b.edits = append(b.edits, edit{at: s.at, end: s.pos, kind: editAccess, value: uint32(offset), fill: byte(s.op)})
}

// reach notes an access to the stack up to an offset from its pointer.
func (b *bodyRewriter) reach(end uint64) {
	s := &b.scanner
	o := &b.operands
	switch {
	case o.check == none:
		o.check, o.end = len(b.edits), end
		b.edits = append(b.edits, edit{at: s.at, end: s.at, kind: editCheck})
	case end > o.end:
		o.end = end
		b.edits[o.check].value = uint32(end)
	}
}

// accessBytes are how many bytes the loads and stores access, in their order.
var accessBytes = [...]byte{4, 8, 4, 8, 1, 1, 2, 2, 1, 1, 2, 2, 4, 4, 4, 8, 4, 8, 1, 2, 1, 2, 4}

// stackPointer is the local in which each function of Go has the pointer to its stack.
const stackPointer = 1

// negate makes one of a comparison of integers and the i32.eqz behind it, which Go's
// compiler writes in front of nearly each if. But for one, see [ordered].
func (b *bodyRewriter) negate(p place) bool {
	s := &b.scanner
	e := edit{at: p.at, end: s.pos, kind: editNegated}
	switch op := p.op; {
	case op == opI64Eqz:
		// Two instructions as before, of which wazero makes one.
		e.kind = editNotZero
	case op < opI32Eq, op > opI64GeU, b.ordered.kept == p.at:
		return false
	default:
		e.fill = inverse(op)
		b.edits[b.current].cost--
	}
	b.edits = append(b.edits, e)
	return true
}

// takes says how many operands an instruction takes, at least as many as it does, or -1 if
// it is none of the plain ones.
var takes = func() (t [256]int8) {
	for op := range t {
		switch {
		case op < opDrop || op > opSelect && op < opLocalGet || op > opI64Extend32S:
			t[op] = -1
		case op == opDrop, op == opLocalSet, op == opGlobalSet:
			t[op] = 1
		case op == opSelect:
			t[op] = 3
		case heights[op] == 1:
			t[op] = 0
		case heights[op] == 0:
			t[op] = 1
		default:
			t[op] = 2
		}
	}
	return t
}()
