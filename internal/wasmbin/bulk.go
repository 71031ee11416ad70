package wasmbin

import "slices"

// pieceBytes is the number of bytes that a bulk operation moves at a time. wazero does each with
// one call of native code, which Go's garbage collector waits for, and so does every other
// goroutine: to fill 256 MiB at once kept them waiting for 290 ms. So a longer operation, whose
// length is known only when it runs, goes through a function that the rewriter adds, which calls
// yield between the pieces. Tables are small enough ([Options.MaxTableElements]), and growing a
// memory moves nothing.
const pieceBytes = 1 << 20

// pieceFunction is an added function with the parameters of a bulk operation, which
// does the same: it checks all bounds before it writes anything. The fuel for all of
// it was taken before.
type pieceFunction struct {
	op      int
	segment uint32 // of memory.init
}

// pieceType is the type of all these functions.
var pieceType = FuncType{Params: []ValType{I32, I32, I32}}

// pieceFunction returns the index of the function for a bulk operation, which is added if there is
// none yet, and the encoded type of a block with its parameters. There is none for a segment no
// longer than a piece: a longer operation on it traps.
func (rw *rewriter) pieceFunction(op int, segment uint32) (index uint32, blockType []byte, ok bool) {
	if op != OpMemoryInit {
		segment = 0
	} else if uint64(segment) >= uint64(len(rw.Datas)) || len(rw.Datas[segment].Init) <= pieceBytes {
		return 0, nil, false
	}
	f := pieceFunction{op, segment}
	i := slices.Index(rw.pieces, f)
	if i < 0 {
		i = len(rw.pieces)
		rw.pieces = append(rw.pieces, f)
	}
	return rw.firstAdded() + rw.coroutineFunctions() + uint32(i), appendVarint(nil, int64(rw.typeIndex(pieceType))), true
}

// addPieces adds the functions that the bodies call. Their types are there already.
func (rw *rewriter) addPieces() {
	for _, f := range rw.pieces {
		rw.Functions = append(rw.Functions, uint32(rw.typeIndex(pieceType)))
		rw.Codes = append(rw.Codes, Code{Body: f.body(rw.yield)})
	}
}

// The parameters of a bulk operation.
const (
	pieceTo = iota
	pieceFrom
	pieceLength
)

// body returns the code of the function.
func (f pieceFunction) body(yield uint32) (out []byte) {
	code := func(b ...byte) { out = append(out, b...) }
	get := func(local byte) { code(OpLocalGet, local) }
	piece := func() { out = appendVarint(append(out, OpI32Const), pieceBytes) }
	move := func(local, op byte) { // The local goes on, or back, by a piece.
		get(local)
		piece()
		code(op, OpLocalSet, local)
	}
	bulk := func() { // The operation, with the operands on the stack.
		code(prefixMisc, byte(f.op))
		switch f.op {
		case OpMemoryInit:
			out = appendUvarint(out, uint64(f.segment))
			code(0)
		case OpMemoryCopy:
			code(0, 0)
		default:
			code(0)
		}
	}
	all := func() {
		get(pieceTo)
		get(pieceFrom)
		get(pieceLength)
		bulk()
	}
	// trapBeyond runs the whole operation if the range from the value on the stack ends beyond the
	// number that limit leaves there: it traps, and writes nothing.
	trapBeyond := func(limit func()) {
		code(OpI64ExtendI32U)
		get(pieceLength)
		code(OpI64ExtendI32U, OpI64Add)
		limit()
		code(OpI64GtU, OpIf, BlockTypeEmpty)
		all()
		code(OpReturn, OpEnd)
	}
	memory := func() { code(OpMemorySize, 0, OpI64ExtendI32U, OpI64Const, 16, OpI64Shl) }
	// pieces repeats a piece while more than one is left.
	pieces := func(piece func()) {
		code(OpLoop, BlockTypeEmpty)
		piece()
		out = appendUvarint(append(out, OpCall), uint64(yield))
		move(pieceLength, OpI32Sub)
	}
	again := func() {
		get(pieceLength)
		piece()
		code(OpI32GtU, OpBrIf, 0, OpEnd)
	}
	forward := func() {
		pieces(func() {
			get(pieceTo)
			get(pieceFrom)
			piece()
			bulk()
		})
		move(pieceTo, OpI32Add)
		if f.op != OpMemoryFill {
			move(pieceFrom, OpI32Add)
		}
		again()
	}

	get(pieceTo)
	switch f.op {
	case OpMemoryFill:
		trapBeyond(memory)
		forward()
	case OpMemoryInit:
		trapBeyond(memory)
		get(pieceFrom)
		trapBeyond(func() { out = appendVarint(append(out, OpI64Const), 1<<32-1) })
		// Zero bytes from the end of the range: it traps if the segment ends before.
		code(OpI32Const, 0)
		get(pieceFrom)
		get(pieceLength)
		code(OpI32Add, OpI32Const, 0)
		bulk()
		forward()
	case OpMemoryCopy:
		get(pieceFrom)
		get(pieceTo)
		get(pieceFrom)
		code(OpI32GtU, OpSelect)
		trapBeyond(memory)
		// The ranges may overlap: bytes must be read before they are overwritten.
		get(pieceTo)
		get(pieceFrom)
		code(OpI32LeU, OpIf, BlockTypeEmpty)
		forward()
		code(OpElse)
		pieces(func() {
			for _, local := range []byte{pieceTo, pieceFrom} {
				get(local)
				get(pieceLength)
				piece()
				code(OpI32Sub, OpI32Add)
			}
			piece()
			bulk()
		})
		again()
		code(OpEnd)
	}
	all()
	return append(out, OpEnd)
}
