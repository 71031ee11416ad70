package wasmbin

// Go's compiler has no structured control flow to write down. It numbers the blocks
// of a function and nests a block of WebAssembly for each in a loop that begins with a
// br_table: a jump sets a local to the number of where it goes, and branches to the
// loop. So each jump goes past the meter, and by way of an indirect branch, of which
// all jumps of the function share one. Where the block in question is still open, as
// it is for each jump forward, the rewriter branches to it at once.

// dispatch is the head of a loop that does nothing but branch by a local:
//
//	loop  block ... block  local.get $local  br_table $to
type dispatch struct {
	local uint32
	// to are the frames that the table goes to, those of bodyRewriter.targets from
	// here up to end; the last one is for all other numbers.
	to, end int
}

// target is a frame: how many are around it, and where its block begins, since others
// have the same place one after the other.
type target struct{ depth, at int }

// head is the head of a loop as far as it has been read.
type head struct {
	loop  int // the frame of the loop
	next  int // where the head goes on
	get   int // where the local.get is, 0 before that
	local uint32
}

// assignment is a local.set.
type assignment struct {
	at, end int // In the body.
	local   uint32
}

// dispatching follows the head of a loop.
func (b *bodyRewriter) dispatching() {
	s := &b.scanner
	h := &b.head
	switch top := len(b.frames) - 1; {
	case s.op == opLoop && s.block == blockEmpty:
		*h = head{loop: top, next: s.pos}
	case s.at != h.next:
	case s.op == opBlock && s.block == blockEmpty && h.get == 0:
		h.next = s.pos
	case s.op == opLocalGet && h.get == 0:
		h.get, h.local, h.next = s.at, s.imm, s.pos
	case s.op == opBrTable && h.get != 0:
		d := dispatch{local: h.local, to: len(b.targets)}
		for _, label := range s.to {
			t := target{depth: top - int(label)}
			if t.depth <= h.loop {
				return // Out of the loop, or to where it is.
			}
			t.at = b.frames[t.depth].at
			b.targets = append(b.targets, t)
		}
		d.end = len(b.targets)
		b.frames[h.loop].dispatch = d
		if b.fromGo && d.end > d.to+1 {
			// Nearly each call begins at the first block.
			b.edits = append(b.edits, edit{at: h.get, end: h.get, kind: editFirst, value: h.local, label: s.to[0]})
		}
	}
}

// jump returns the label that a br can have instead of its own.
func (b *bodyRewriter) jump() uint32 {
	s := &b.scanner
	top := len(b.frames) - 1
	if int64(s.imm) > int64(top) || b.set.end != s.at || b.constants[1].end != b.set.at {
		return s.imm
	}
	d := &b.frames[top-int(s.imm)].dispatch
	if d.end == 0 || d.local != b.set.local {
		return s.imm
	}
	t := b.targets[min(d.to+int(min(b.constants[1].value, uint32(len(b.targets)))), d.end-1)]
	if t.depth > top || b.frames[t.depth].at != t.at {
		return s.imm // It is behind: a jump back.
	}
	label := uint32(top - t.depth)
	b.edits = append(b.edits, edit{at: s.immAt, end: s.pos, kind: editIndex, value: label})
	return label
}
