package gowasm

import (
	"bytes"
	"slices"

	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// Go compares strings of the same length byte by byte, in a function of its library that is
// written by hand and has been the same since Go 1.11: memeqbody of
// internal/bytealg/equal_wasm.s. In front of its loop comes one that takes eight bytes at a
// time, the last of them once more if the length is no multiple of eight. Both read nothing
// but the bytes that are to be compared.

var equalType = wasmbin.FuncType{
	Params:  []wasmbin.ValType{wasmbin.I64, wasmbin.I64, wasmbin.I64}, // two addresses and a length
	Results: []wasmbin.ValType{wasmbin.I64},
}

// sameAddress is how the function begins, and equalBytes the rest of it.
var (
	sameAddress = []byte("\x20\x00\x20\x01\x51\x04\x40\x42\x01\x0f\x0b")
	equalBytes  = []byte("\x03\x40\x20\x02\x50\x04\x40\x42\x01\x0f\x0b" +
		"\x20\x00\xa7\x31\x00\x00\x20\x01\xa7\x31\x00\x00\x52\x04\x40\x42\x00\x0f\x0b" +
		"\x20\x00\x42\x01\x7c\x21\x00\x20\x01\x42\x01\x7c\x21\x01\x20\x02\x42\x01\x7d\x21\x02\x0c\x00\x0b\x00\x00\x0b")
)

// equalWords compares eight bytes or more. Local 2 becomes the address of the first string's
// last eight bytes, and local 1 the distance to the other string.
var equalWords = []byte{
	wasmbin.OpLocalGet, 2, wasmbin.OpI64Const, 8, wasmbin.OpI64GeU, wasmbin.OpIf, wasmbin.BlockTypeEmpty,
	wasmbin.OpLocalGet, 1, wasmbin.OpLocalGet, 0, wasmbin.OpI64Sub, wasmbin.OpLocalSet, 1,
	wasmbin.OpLocalGet, 0, wasmbin.OpLocalGet, 2, wasmbin.OpI64Add, wasmbin.OpI64Const, 8, wasmbin.OpI64Sub, wasmbin.OpLocalSet, 2,
	wasmbin.OpLoop, wasmbin.BlockTypeEmpty,
	wasmbin.OpLocalGet, 0, wasmbin.OpLocalGet, 2, wasmbin.OpI64LtU, wasmbin.OpIf, wasmbin.BlockTypeEmpty,
	wasmbin.OpLocalGet, 0, wasmbin.OpI32WrapI64, wasmbin.OpI64Load, 0, 0,
	wasmbin.OpLocalGet, 0, wasmbin.OpLocalGet, 1, wasmbin.OpI64Add, wasmbin.OpI32WrapI64, wasmbin.OpI64Load, 0, 0,
	wasmbin.OpI64Ne, wasmbin.OpIf, wasmbin.BlockTypeEmpty, wasmbin.OpI64Const, 0, wasmbin.OpReturn, wasmbin.OpEnd,
	wasmbin.OpLocalGet, 0, wasmbin.OpI64Const, 8, wasmbin.OpI64Add, wasmbin.OpLocalSet, 0,
	wasmbin.OpBr, 1,
	wasmbin.OpEnd, wasmbin.OpEnd,
	wasmbin.OpLocalGet, 2, wasmbin.OpI32WrapI64, wasmbin.OpI64Load, 0, 0,
	wasmbin.OpLocalGet, 2, wasmbin.OpLocalGet, 1, wasmbin.OpI64Add, wasmbin.OpI32WrapI64, wasmbin.OpI64Load, 0, 0,
	wasmbin.OpI64Eq, wasmbin.OpI64ExtendI32U, wasmbin.OpReturn,
	wasmbin.OpEnd,
}

// equalBody is the function as it is, and withWords as it becomes.
var (
	equalBody = slices.Concat(sameAddress, equalBytes)
	withWords = slices.Concat(sameAddress, equalWords, equalBytes)
)

// comparesBytes reports whether a function is memeqbody.
func comparesBytes(t wasmbin.FuncType, c *wasmbin.Code) bool {
	return bytes.Equal(c.Body, equalBody) && c.NumLocals == 0 &&
		slices.Equal(t.Params, equalType.Params) && slices.Equal(t.Results, equalType.Results)
}
