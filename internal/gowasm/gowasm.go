package gowasm

import (
	"encoding/binary"

	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// Optimize is a [wasmbin.Pass]: it returns the body of a function with its forward jumps
// and the addresses of its stack written as WebAssembly has them, one that compares strings by
// words if it is Go's comparison, or c.Body itself if it recognises nothing.
func Optimize(t wasmbin.FuncType, c *wasmbin.Code) []byte {
	if comparesBytes(t, c) {
		return withWords
	}
	f := function{body: c.Body, frames: make([]frame, 1, 16), edits: make([]edit, 0, len(c.Body)/32), head: head{next: none}}
	if f.addresses.ours = declaredByGo(t, c); !f.read() && f.addresses.ours {
		f.reset() // No function of Go after all.
		f.read()
	}
	if len(f.edits) == 0 {
		return c.Body
	}
	out := make([]byte, 0, len(c.Body)+len(f.edits))
	at := 0
	for i := range f.edits {
		e := &f.edits[i]
		out = append(append(out, c.Body[at:e.at]...), e.with[:e.n]...)
		at = e.end
	}
	return append(out, c.Body[at:]...)
}

// function is a function that is read, instruction by instruction.
type function struct {
	body  []byte
	edits []edit // in the order of the body

	frames  []frame
	head    head
	targets []target // of all tables
	number  assignment

	addresses addresses
}

// edit replaces the bytes of a body from at to end.
type edit struct {
	at, end int
	with    [16]byte
	n       uint8
}

// write sets what takes the place of the bytes: other bytes, and a number.
func (e *edit) write(number uint32, before ...byte) {
	e.n = uint8(copy(e.with[:], before))
	e.n += uint8(binary.PutUvarint(e.with[e.n:], uint64(number)))
}

// append adds an instruction with an index.
func (e *edit) append(op byte, index uint32) {
	e.with[e.n] = op
	e.n += 1 + uint8(binary.PutUvarint(e.with[e.n+1:], uint64(index)))
}

// reset begins anew, without addresses.
func (f *function) reset() {
	f.edits, f.frames, f.targets = f.edits[:0], append(f.frames[:0], frame{}), f.targets[:0]
	f.head, f.number, f.addresses = head{next: none}, assignment{}, addresses{}
}

// read notes what is to be changed in the body. It returns false, and notes nothing, if the
// body is malformed, or if its addresses are to be changed and it is no function of Go.
func (f *function) read() bool {
	end, pointers := 0, pointers{}
	for i := range wasmbin.Instructions(f.body) {
		if len(f.frames) == 0 || f.addresses.ours && !pointers.keep(i) {
			f.edits = f.edits[:0]
			return false
		}
		if f.addresses.ours {
			f.address(i)
		}
		f.jump(i)
		end = i.End
	}
	if end != len(f.body) {
		f.edits = f.edits[:0]
		return false
	}
	return true
}

// declaredByGo reports whether a function is declared as Go's compiler declares functions of
// Go: one i32 in and out, and as its first local another one.
func declaredByGo(t wasmbin.FuncType, c *wasmbin.Code) bool {
	return len(t.Params) == 1 && t.Params[0] == wasmbin.I32 && len(t.Results) == 1 && t.Results[0] == wasmbin.I32 &&
		len(c.Locals) >= 2 && c.Locals[0] != 0 && c.Locals[1] == byte(wasmbin.I32)
}

// pointers follows the stack pointer, a global, and the copy of it in the first local. In a
// function of Go the copy is taken at the beginning, and whenever one of the two is written,
// the other one is.
type pointers struct {
	op    int // the last instruction, and the index that it names
	index uint32
	taken bool // the copy
}

// keep reads an instruction, and reports whether the two are still the same.
func (p *pointers) keep(i *wasmbin.Instruction) bool {
	var ok bool
	switch {
	case p.op == wasmbin.OpLocalTee && p.index == stackPointer:
		ok = i.Op == wasmbin.OpGlobalSet && i.Index == stackGlobal
	case i.Op == wasmbin.OpGlobalSet && i.Index == stackGlobal:
		ok = false
	case i.Op == wasmbin.OpLocalSet && i.Index == stackPointer:
		ok = p.op == wasmbin.OpGlobalGet && p.index == stackGlobal
		p.taken = true
	default:
		ok = p.taken || i.At == 0
	}
	p.op, p.index = i.Op, i.Index
	return ok
}

// The places of the stack pointer, a global and the local that has a copy of it.
const (
	stackGlobal  = 0
	stackPointer = 1
)
