package gowasm

import (
	"encoding/binary"

	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// What Go's compiler writes for a variable on its stack is
//
//	local.get $sp  i64.extend_i32_u  i64.const 24  i64.add  i32.wrap_i64  ...  i64.store
//
// and not the offset that the store could have: five instructions for one, a tenth of all
// code. wazero translates each, and checks the bounds of each address anew, where several
// offsets from one address share a check. So the store gets the offset. And in front of the
// first access to the stack between two branches or calls stands a load of the last byte
// that any of them reaches, which wazero makes the one check of them all:
//
//	local.get $sp  i32.load8_u 31  drop

// address is an address of the stack on the operand stack.
type address struct {
	edit   int    // what leaves the addition out as soon as an access takes the address, or none
	cut    int    // where the addition ends in the body
	depth  int    // how many operands lie below
	offset uint32 // what is added to the stack pointer
	old    bool   // the stack pointer was changed since
}

const (
	none = -1
	// maxReach is the furthest byte from the stack pointer that an access is given an offset
	// for: no memory is so large that all of this could lie beyond 4 GiB and the stack
	// pointer within. Frames of Go that reach further are left alone.
	maxReach = 64 << 10
)

// addresses follows what lies on the operand stack between two branches or calls.
type addresses struct {
	ours    bool // the function is one of Go
	depth   int  // how many operands there are, besides those from before
	pending []address
	// matched is how much of an addition was read, which begins at cut and adds offset.
	matched int
	cut     int
	offset  uint32
	// check is the edit in front of the first access to the stack, or none, and end where
	// the furthest access ends.
	check int
	end   uint32
}

// forget begins anew.
func (a *addresses) forget() {
	*a = addresses{ours: true, pending: a.pending[:0], check: none}
}

// address reads an instruction, and changes it if it accesses the stack.
func (f *function) address(i *wasmbin.Instruction) {
	a := &f.addresses
	takes, leaves, ok := wasmbin.Operands(i.Op)
	if !ok || i.At == 0 || i.Op == wasmbin.OpMemoryGrow {
		a.forget()
		return
	}
	if bytes := accessBytes(i.Op); bytes > 0 {
		f.access(i, a.depth-takes, bytes)
	}
	for n := len(a.pending); n > 0 && a.pending[n-1].depth >= a.depth-takes; n-- {
		a.pending = a.pending[:n-1] // Taken.
	}
	a.depth += leaves - takes
	switch step := a.matched; {
	case i.Op == wasmbin.OpLocalGet && i.Index == stackPointer:
		a.matched = 1
		a.pending = append(a.pending, address{edit: none, depth: a.depth - 1})
	case step == 1 && i.Op == wasmbin.OpI64ExtendI32U:
		a.matched, a.cut = 2, i.At
	case step == 2 && i.Op == wasmbin.OpI64Const:
		a.matched = 0
		if v, n := binary.Uvarint(f.body[i.At+1 : i.End]); n > 0 && f.body[i.End-1]&0x40 == 0 && v < maxReach {
			a.matched, a.offset = 3, uint32(v)
		}
	case step == 3 && i.Op == wasmbin.OpI64Add:
		a.matched = 4
	case step == 4 && i.Op == wasmbin.OpI32WrapI64:
		a.matched = 0
		a.pending = append(a.pending, address{edit: len(f.edits), cut: i.End, depth: a.depth - 1, offset: a.offset})
		f.edits = append(f.edits, edit{at: a.cut, end: a.cut})
	default:
		a.matched = 0
		if (i.Op == wasmbin.OpLocalSet || i.Op == wasmbin.OpLocalTee) && i.Index == stackPointer {
			a.check = none
			for n := range a.pending {
				a.pending[n].old = true
			}
		}
	}
}

// access gives a load or a store of so many bytes the offset of its address, if that is one
// of the stack and lies on so many operands.
func (f *function) access(i *wasmbin.Instruction, depth int, bytes uint32) {
	a := &f.addresses
	n := len(a.pending)
	for n > 0 && a.pending[n-1].depth > depth {
		n--
	}
	if n == 0 || a.pending[n-1].depth != depth {
		return
	}
	p := &a.pending[n-1]
	_, size := binary.Uvarint(f.body[i.IndexAt:]) // The alignment.
	own, _ := binary.Uvarint(f.body[i.IndexAt+size:])
	if own > maxReach || uint32(own)+p.offset+bytes > maxReach {
		return
	}
	offset := uint32(own) + p.offset
	if !p.old {
		f.reach(i.At, offset+bytes)
	}
	if p.edit == none {
		return
	}
	f.edits[p.edit].end = p.cut
	e := edit{at: i.At, end: i.End}
	e.write(offset, byte(i.Op), 0)
	f.edits = append(f.edits, e)
}

// reach notes an access to the stack, at a place of the body, up to the byte end from the
// stack pointer.
func (f *function) reach(at int, end uint32) {
	a := &f.addresses
	switch {
	case a.check == none:
		a.check, a.end = len(f.edits), end
		f.edits = append(f.edits, edit{at: at, end: at})
	case end > a.end:
		a.end = end
		e := &f.edits[a.check]
		e.write(end-1, wasmbin.OpLocalGet, stackPointer, wasmbin.OpI32Load8U, 0)
		e.with[e.n] = wasmbin.OpDrop
		e.n++
	}
}

// accessBytes returns how many bytes a load or a store accesses, 0 for anything else.
func accessBytes(op int) uint32 {
	if op < wasmbin.OpI32Load || op > wasmbin.OpI64Store32 {
		return 0
	}
	return bytesOf[op-wasmbin.OpI32Load]
}

// bytesOf are the bytes of the loads and stores, in the order of their opcodes.
var bytesOf = [...]uint32{4, 8, 4, 8, 1, 1, 2, 2, 1, 1, 2, 2, 4, 4, 4, 8, 4, 8, 1, 2, 1, 2, 4}
