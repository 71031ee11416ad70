package wasmbin

// wazero fills memory by copying what it has filled so far: one byte, two, four.
// Each step is a call of memmove that saves all registers and waits for the bytes
// of the step before, and so is a copy of a fixed size. Go's compiler writes both
// for every variable of more than a few words. So what has a constant size and is
// small becomes stores, of the same price.
const (
	maxFill = 256
	maxCopy = 128 // As many vector registers as a processor has for it.
)

// constant is an i32.const.
type constant struct {
	at, end int // In the body.
	value   uint32
}

// constant notes an i32.const.
func (b *bodyRewriter) constant() {
	s := &b.scanner
	b.constants[0], b.constants[1] = b.constants[1], constant{s.at, s.pos, s.constant()}
}

// constantLength returns the length of a bulk operation if it stands in the code, 0
// otherwise.
func (b *bodyRewriter) constantLength() uint32 {
	if length := b.constants[1]; length.end == b.scanner.at {
		return length.value
	}
	return 0
}

// constantBulk replaces a memory.fill or memory.copy of a small length that stands
// in the code.
func (b *bodyRewriter) constantBulk(length uint32) {
	s := &b.scanner
	value, size := b.constants[0], b.constants[1]
	switch {
	case b.keepBulk || b.current == none:
	case s.op == opMemoryFill && length <= maxFill && value.end == size.at:
		b.edits = append(b.edits, edit{at: value.at, end: s.pos, kind: editFill, value: length, fill: byte(value.value)})
		b.stores = true
	case s.op == opMemoryCopy && length <= maxCopy:
		b.edits = append(b.edits, edit{at: size.at, end: s.pos, kind: editCopy, value: length})
		b.stores = true
	}
}

// access is a load or a store of some bytes, with the opcodes for it.
type access struct {
	bytes       uint32
	load, store []byte
}

var accesses = []access{
	{16, []byte{prefixVec, 0x00}, []byte{prefixVec, 0x0b}},
	{8, []byte{0x29}, []byte{0x37}},
	{4, []byte{0x28}, []byte{0x36}},
	{2, []byte{0x2f}, []byte{0x3b}},
	{1, []byte{0x2d}, []byte{0x3a}},
}

// pieces calls f with the accesses that together cover size bytes, in ascending
// order of their offsets; the last one ends where the bytes do.
func pieces(size uint32, f func(a *access, offset uint32)) {
	i := 0
	for accesses[i].bytes > size {
		i++
	}
	a := &accesses[i]
	offset := uint32(0)
	for ; offset+a.bytes < size; offset += a.bytes {
		f(a, offset)
	}
	// The last one may cover again what the one before has. A smaller one, if it
	// is enough.
	last := a
	for i++; i < len(accesses) && accesses[i].bytes >= size-offset; i++ {
		last = &accesses[i]
	}
	f(last, size-last.bytes)
}

// appendFill fills e.value bytes at the address on the stack, which it keeps in a
// local. The stores go from the last byte to the first: if there is no memory for
// one, nothing is written.
func appendFill(out []byte, e *edit, address uint64) []byte {
	out = appendUvarint(append(out, opLocalSet), address)
	type piece struct {
		*access
		offset uint32
	}
	var list [maxFill/16 + 1]piece
	n := 0
	pieces(e.value, func(a *access, offset uint32) { list[n], n = piece{a, offset}, n+1 })
	for n--; n >= 0; n-- {
		p := list[n]
		out = appendUvarint(append(out, opLocalGet), address)
		switch word := uint64(e.fill) * 0x0101010101010101; {
		case p.bytes == 16:
			out = append(out, prefixVec, 0x0c) // v128.const
			for range 16 {
				out = append(out, e.fill)
			}
		case p.bytes == 8:
			out = appendVarint(append(out, opI64Const), int64(word))
		default:
			out = appendVarint(append(out, opI32Const), int64(int32(word)))
		}
		out = appendAccess(out, p.store, p.offset)
	}
	return out
}

// appendCopy copies e.value bytes between the addresses on the stack, which it
// keeps in locals. All is loaded before anything is stored, as the two may overlap,
// and the last bytes are stored first, as in appendFill.
func appendCopy(out []byte, e *edit, from, to uint64) []byte {
	out = appendUvarint(append(out, opLocalSet), from)
	out = appendUvarint(append(out, opLocalSet), to)
	var stores []byte
	pieces(e.value, func(a *access, offset uint32) {
		out = appendUvarint(append(out, opLocalGet), to)
		out = appendUvarint(append(out, opLocalGet), from)
		out = appendAccess(out, a.load, offset)
		stores = append(appendAccess(nil, a.store, offset), stores...)
	})
	return append(out, stores...)
}

// appendAccess appends a load or store, which promises nothing about where the
// address lies.
func appendAccess(out, opcode []byte, offset uint32) []byte {
	return appendUvarint(append(append(out, opcode...), 0), uint64(offset))
}
