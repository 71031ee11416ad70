package gowasm

import (
	"encoding/binary"

	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// Go's compiler has no structured control flow to write down. It numbers the blocks of a
// function and nests a block of WebAssembly for each in a loop that begins with a br_table:
//
//	loop  block ... block  local.get $number  br_table ...  end  ...
//
// A jump sets the local to the number of a block and branches to the loop:
//
//	i32.const 7  local.set $number  br $loop
//
// So all jumps share one indirect branch. A function of Go tests for the first block before it,
// since nearly each call begins there. Where the block that is wanted is still open, as
// it is for each jump forward, the branch gets its label instead of that of the loop. That is
// right in any function: between the head of the loop and the block nothing lies but the
// table, and the local keeps its number.

// frame is a block that is open.
type frame struct {
	at    int // where it begins in the body
	table table
}

// table is the br_table at the head of a loop, if it goes by a local and to blocks within
// the loop only: those of function.targets from to up to end, the default last. end is 0
// of any other frame.
type table struct {
	local   uint32
	to, end int
}

// target is a frame: how many are around it, and where its block begins, since blocks have
// the same place one after the other.
type target struct{ depth, at int }

// head is the head of a loop as far as it has been read.
type head struct {
	loop  int  // the frame of the loop
	next  int  // where the head goes on
	got   bool // the local.get was read
	local uint32
}

// assignment is an i32.const and a local.set after it.
type assignment struct {
	end    int // of what was read of it
	stored bool
	value  uint32
	local  uint32
}

// jump reads an instruction, and changes it if it is a jump whose block is open.
func (f *function) jump(i *wasmbin.Instruction) {
	top := len(f.frames) - 1
	switch i.Op {
	case wasmbin.OpBlock, wasmbin.OpLoop, wasmbin.OpIf, wasmbin.OpTryTable:
		f.frames = append(f.frames, frame{at: i.At})
		switch {
		case i.Op == wasmbin.OpLoop && i.Block == wasmbin.BlockEmpty:
			f.head = head{loop: top + 1, next: i.End}
		case i.Op == wasmbin.OpBlock && i.Block == wasmbin.BlockEmpty && i.At == f.head.next && !f.head.got:
			f.head.next = i.End
		}
	case wasmbin.OpEnd:
		f.frames = f.frames[:top]
	case wasmbin.OpLocalGet:
		if h := &f.head; i.At == h.next && !h.got {
			h.got, h.local, h.next = true, i.Index, i.End
		}
	case wasmbin.OpBrTable:
		if i.At == f.head.next && f.head.got {
			f.table(i)
		}
	case wasmbin.OpI32Const:
		if v, n := binary.Uvarint(f.body[i.At+1 : i.End]); n > 0 && f.body[i.End-1]&0x40 == 0 {
			f.number = assignment{end: i.End, value: uint32(v)} // Not negative.
		}
	case wasmbin.OpLocalSet:
		if a := &f.number; i.At == a.end && !a.stored {
			a.stored, a.local, a.end = true, i.Index, i.End
		}
	case wasmbin.OpBr:
		if a := &f.number; i.At == a.end && a.stored && int64(i.Index) <= int64(top) {
			if label, ok := f.label(top-int(i.Index), a); ok {
				e := edit{at: i.IndexAt, end: i.End}
				e.write(label)
				f.edits = append(f.edits, e)
			}
		}
	}
}

// table notes the br_table at the head of a loop.
func (f *function) table(i *wasmbin.Instruction) {
	top := len(f.frames) - 1
	t := table{local: f.head.local, to: len(f.targets)}
	for _, label := range i.Labels {
		depth := top - int(label)
		if depth <= f.head.loop {
			return // Out of the loop, or to where it is.
		}
		f.targets = append(f.targets, target{depth, f.frames[depth].at})
	}
	t.end = len(f.targets)
	f.frames[f.head.loop].table = t
	if f.addresses.ours {
		// Nearly each call begins at the first block.
		e := edit{at: i.At, end: i.At}
		e.write(i.Labels[0], wasmbin.OpI32Eqz, wasmbin.OpBrIf)
		e.append(wasmbin.OpLocalGet, t.local)
		f.edits = append(f.edits, e)
	}
}

// label returns the label of the block that a branch to the frame of a loop comes to. It
// reports false if there is no table, or the block was closed: a jump back.
func (f *function) label(loop int, a *assignment) (label uint32, ok bool) {
	t := &f.frames[loop].table
	if t.end == 0 || t.local != a.local {
		return 0, false
	}
	to := f.targets[min(uint64(t.to)+uint64(a.value), uint64(t.end-1))]
	top := len(f.frames) - 1
	if to.depth > top || f.frames[to.depth].at != to.at {
		return 0, false
	}
	return uint32(top - to.depth), true
}
