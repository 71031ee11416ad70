package gowasm

import (
	"encoding/binary"
	"slices"

	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// Optimize is a [wasmbin.Pass]: it returns the body of a function with its forward jumps
// and the addresses of its stack written as WebAssembly has them, or c.Body itself if it
// recognises neither.
func Optimize(t wasmbin.FuncType, c *wasmbin.Code) []byte {
	f := function{body: c.Body, frames: make([]frame, 1, 16), head: head{next: none}}
	f.addresses.ours = isGo(t, c)
	end := 0
	for i := range wasmbin.Instructions(c.Body) {
		if len(f.frames) == 0 {
			return c.Body // Something follows its end.
		}
		if f.addresses.ours {
			f.address(&i)
		}
		f.jump(&i)
		end = i.End
	}
	if end != len(c.Body) || len(f.edits) == 0 {
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
	with    [8]byte
	n       uint8
}

// write sets what takes the place of the bytes: other bytes, and a number.
func (e *edit) write(number uint32, before ...byte) {
	e.n = uint8(copy(e.with[:], before))
	e.n += uint8(binary.PutUvarint(e.with[e.n:], uint64(number)))
}

// isGo reports whether a function has the form in which Go's compiler writes functions of
// Go: one parameter, the number of the block where it begins, and as its first local a copy
// of the stack pointer, which is global 0. It begins by taking the copy, and whenever one of
// the two is written, the other one is.
func isGo(t wasmbin.FuncType, c *wasmbin.Code) bool {
	i32 := []wasmbin.ValType{wasmbin.I32}
	if !slices.Equal(t.Params, i32) || !slices.Equal(t.Results, i32) || len(c.Locals) < 2 || c.Locals[0] == 0 || c.Locals[1] != byte(wasmbin.I32) {
		return false
	}
	var last wasmbin.Instruction
	first := true
	for i := range wasmbin.Instructions(c.Body) {
		switch {
		case last.Op == wasmbin.OpLocalTee && last.Index == stackPointer:
			if i.Op != wasmbin.OpGlobalSet || i.Index != stackGlobal {
				return false
			}
		case i.Op == wasmbin.OpGlobalSet && i.Index == stackGlobal:
			return false
		case i.Op == wasmbin.OpLocalSet && i.Index == stackPointer:
			if last.Op != wasmbin.OpGlobalGet || last.Index != stackGlobal {
				return false
			}
			first = false
		case first && i.At > 0:
			return false
		}
		last = i
	}
	return !first
}

// The places of the stack pointer, a global and the local that has a copy of it.
const (
	stackGlobal  = 0
	stackPointer = 1
)
