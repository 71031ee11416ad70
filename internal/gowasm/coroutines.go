package gowasm

import (
	"slices"

	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// Coroutines describes the functions of Go's compiler. Such a function takes PC_B, the number
// of a block. If the goroutine has to wait, or its stack to move, it returns 1, and so do its
// callers, up to the loop that has called the first. Later the loop calls the innermost again,
// with the block at which it goes on, and after it each of its callers.
var Coroutines = wasmbin.Coroutines{
	// SP, CTXT, g, RET0 to RET3 and PAUSE, by cmd/link/internal/wasm.
	Globals: slices.Concat(
		[]wasmbin.GlobalType{{Type: wasmbin.I32, Mutable: true}},
		slices.Repeat([]wasmbin.GlobalType{{Type: wasmbin.I64, Mutable: true}}, 6),
		[]wasmbin.GlobalType{{Type: wasmbin.I32, Mutable: true}},
	),
	Form:  form,
	Place: place,
}

// goroutineGlobal is the global that has the address of the runtime's g.
const goroutineGlobal = 2

func form(t wasmbin.FuncType, c *wasmbin.Code) wasmbin.Form {
	if len(t.Params) == 1 && t.Params[0] == wasmbin.I32 && len(t.Results) == 1 && t.Results[0] == wasmbin.I32 {
		if declaredByGo(t, c) {
			return wasmbin.Resumed
		}
		return wasmbin.Plain
	}
	for i := range wasmbin.Instructions(c.Body) {
		if i.Op == wasmbin.OpCallIndirect {
			return wasmbin.Resumes
		}
	}
	return wasmbin.Plain
}

// place leaves g and g.stack.hi - SP. The address of g is not trusted: a guest that only
// looks like one of Go has anything there.
func place(code []byte) []byte {
	const stackHigh = 8 // g.stack.hi
	g := []byte{wasmbin.OpGlobalGet, goroutineGlobal, wasmbin.OpI32WrapI64}
	code = append(code, g...)
	code = append(append(code, g...), wasmbin.OpI64ExtendI32U, wasmbin.OpI64Const, stackHigh+4, wasmbin.OpI64Add)
	code = append(code, wasmbin.OpMemorySize, 0, wasmbin.OpI64ExtendI32U, wasmbin.OpI64Const, 16, wasmbin.OpI64Shl)
	code = append(code, wasmbin.OpI64LeU, wasmbin.OpIf, byte(wasmbin.I32))
	code = append(append(code, g...), wasmbin.OpI32Load, 2, stackHigh)
	code = append(code, wasmbin.OpElse, wasmbin.OpI32Const, 0, wasmbin.OpEnd)
	return append(code, wasmbin.OpGlobalGet, stackGlobal, wasmbin.OpI32Sub)
}
