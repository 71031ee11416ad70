package wasmbin

import (
	"bytes"
	"slices"
)

// Go compares strings byte by byte in WebAssembly, in two functions of its library that
// were written by hand and are the same in every guest: 24 instructions for a byte. The
// rewriter knows them by their bodies, and gives them others that take eight bytes at a
// time, and read nothing but the bytes that are to be compared.

// replacement is the body of a function of a library, and what takes its place.
type replacement struct {
	typ    FuncType
	locals []byte // groups, as a body has them
	body   []byte
	by     []byte
}

// The two functions as Go has had them since 1.11, in internal/bytealg: memeqbody of
// equal_wasm.s, and memcmp of compare_wasm.s, which that says emscripten compiled.
var replacements = []replacement{
	{
		typ: FuncType{Params: []ValType{I64, I64, I64}, Results: []ValType{I64}},
		body: []byte("\x20\x00\x20\x01\x51\x04\x40\x42\x01\x0f\x0b\x03\x40\x20\x02\x50\x04\x40\x42\x01\x0f\x0b" +
			"\x20\x00\xa7\x31\x00\x00\x20\x01\xa7\x31\x00\x00\x52\x04\x40\x42\x00\x0f\x0b" +
			"\x20\x00\x42\x01\x7c\x21\x00\x20\x01\x42\x01\x7c\x21\x01\x20\x02\x42\x01\x7d\x21\x02\x0c\x00\x0b\x00\x00\x0b"),
		by: equal,
	},
	{
		typ:    FuncType{Params: []ValType{I32, I32, I32}, Results: []ValType{I32}},
		locals: []byte{2, byte(I32)},
		body:   compare,
		by:     slices.Concat(skipEqual, compare),
	},
}

// compare is memcmp.
var compare = []byte("\x20\x02\x04\x7f\x03\x40\x20\x00\x2c\x00\x00\x22\x03\x20\x01\x2c\x00\x00\x22\x04\x46\x04\x40" +
	"\x20\x00\x41\x01\x6a\x21\x00\x20\x01\x41\x01\x6a\x21\x01\x41\x00\x20\x02\x41\x7f\x6a\x22\x02\x45\x0d\x03\x1a\x0c\x01\x0b\x0b" +
	"\x20\x03\x41\xff\x01\x71\x20\x04\x41\xff\x01\x71\x6b\x05\x41\x00\x0b\x0f\x00\x0b")

// skipEqual stands in front of compare: it leaves what is equal, eight bytes at a time.
var skipEqual = []byte{
	opLoop, blockTypeEmpty,
	opLocalGet, 2, opI32Const, 8, opI32GeU, opIf, blockTypeEmpty,
	opLocalGet, 0, opI64Load, 0, 0, opLocalGet, 1, opI64Load, 0, 0, opI64Eq, opIf, blockTypeEmpty,
	opLocalGet, 0, opI32Const, 8, opI32Add, opLocalSet, 0,
	opLocalGet, 1, opI32Const, 8, opI32Add, opLocalSet, 1,
	opLocalGet, 2, opI32Const, 8, opI32Sub, opLocalSet, 2,
	opBr, 2,
	opEnd, opEnd, opEnd,
}

// equal is instead of memeqbody. The addresses are 64 bits wide, as Go's are.
var equal = []byte{
	opLocalGet, 0, opLocalGet, 1, opI64Eq, opIf, blockTypeEmpty, opI64Const, 1, opReturn, opEnd,

	// Eight bytes and more: word by word up to the last one, which ends where the
	// bytes do. Local 2 is where that is, local 1 how far behind the first string
	// the other one lies.
	opLocalGet, 2, opI64Const, 8, opI64GeU, opIf, blockTypeEmpty,
	opLocalGet, 1, opLocalGet, 0, opI64Sub, opLocalSet, 1,
	opLocalGet, 0, opLocalGet, 2, opI64Add, opI64Const, 8, opI64Sub, opLocalSet, 2,
	opLoop, blockTypeEmpty,
	opLocalGet, 0, opLocalGet, 2, opI64LtU, opIf, blockTypeEmpty,
	opLocalGet, 0, opI32WrapI64, opI64Load, 0, 0,
	opLocalGet, 0, opLocalGet, 1, opI64Add, opI32WrapI64, opI64Load, 0, 0,
	opI64Ne, opIf, blockTypeEmpty, opI64Const, 0, opReturn, opEnd,
	opLocalGet, 0, opI64Const, 8, opI64Add, opLocalSet, 0,
	opBr, 1,
	opEnd, opEnd,
	opLocalGet, 2, opI32WrapI64, opI64Load, 0, 0,
	opLocalGet, 2, opLocalGet, 1, opI64Add, opI32WrapI64, opI64Load, 0, 0,
	opI64Eq, opI64ExtendI32U, opReturn,
	opEnd,

	// Four to seven: the first four, and the last four.
	opLocalGet, 2, opI64Const, 4, opI64GeU, opIf, blockTypeEmpty,
	opLocalGet, 0, opI32WrapI64, opI32Load, 0, 0, opLocalGet, 1, opI32WrapI64, opI32Load, 0, 0, opI32Eq,
	opLocalGet, 0, opLocalGet, 2, opI64Add, opI64Const, 4, opI64Sub, opI32WrapI64, opI32Load, 0, 0,
	opLocalGet, 1, opLocalGet, 2, opI64Add, opI64Const, 4, opI64Sub, opI32WrapI64, opI32Load, 0, 0,
	opI32Eq, opI32And, opI64ExtendI32U, opReturn,
	opEnd,

	// One to three: the first, the middle and the last one, which may be the same.
	opLocalGet, 2, opI64Eqz, opIf, blockTypeEmpty, opI64Const, 1, opReturn, opEnd,
	opLocalGet, 0, opI32WrapI64, opI32Load8U, 0, 0, opLocalGet, 1, opI32WrapI64, opI32Load8U, 0, 0, opI32Eq,
	opLocalGet, 0, opLocalGet, 2, opI64Const, 1, opI64ShrU, opI64Add, opI32WrapI64, opI32Load8U, 0, 0,
	opLocalGet, 1, opLocalGet, 2, opI64Const, 1, opI64ShrU, opI64Add, opI32WrapI64, opI32Load8U, 0, 0,
	opI32Eq, opI32And,
	opLocalGet, 0, opLocalGet, 2, opI64Add, opI64Const, 1, opI64Sub, opI32WrapI64, opI32Load8U, 0, 0,
	opLocalGet, 1, opLocalGet, 2, opI64Add, opI64Const, 1, opI64Sub, opI32WrapI64, opI32Load8U, 0, 0,
	opI32Eq, opI32And, opI64ExtendI32U, opEnd,
}

// replace gives a function another body if it is one of those that are known, which only
// guests of Go have.
func (c *Code) replace(typ *FuncType) bool {
	for i := range replacements {
		r := &replacements[i]
		if len(c.Body) == len(r.body) && bytes.Equal(c.Body, r.body) && bytes.Equal(c.Locals, r.locals) && slices.Equal(typ.Params, r.typ.Params) && slices.Equal(typ.Results, r.typ.Results) {
			c.Body = r.by
			return true
		}
	}
	return false
}
