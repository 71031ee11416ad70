package wasmbin

import (
	"fmt"
	"testing"
)

// TestBranchesOnZeroComparedWithAnAnd compares 0 with the result of an `and` in each way,
// and branches, on both engines, where the result gets to the comparison in several
// ways.
func TestBranchesOnZeroComparedWithAnAnd(t *testing.T) {
	type width struct {
		typ         ValType
		and, eq, ge int
		zero        []byte
		unset       int
	}
	widths := []width{
		{I32, OpI32And, OpI32Eq, OpI32GeU, i32c(0), 5},
		{I64, OpI64And, OpI64Eq, OpI64GeU, i64c(0), 6},
	}
	forms := map[string]func(w *width, zero, and []byte, op int) []byte{
		"if":    func(_ *width, zero, and []byte, op int) []byte { return asm(zero, and, op) },
		"nop":   func(_ *width, zero, and []byte, op int) []byte { return asm(zero, and, OpNop, op, OpNop) },
		"local": func(_ *width, zero, and []byte, op int) []byte { return asm(and, set(2), zero, get(2), op) },
		"copy": func(_ *width, zero, and []byte, op int) []byte {
			return asm(and, set(2), get(2), set(3), zero, get(3), op)
		},
		"tee": func(_ *width, zero, and []byte, op int) []byte { return asm(zero, and, OpLocalTee, 2, op) },
		"global": func(_ *width, zero, and []byte, op int) []byte {
			return asm(and, OpGlobalSet, 0, zero, OpGlobalGet, 0, op)
		},
		"block":                    func(w *width, zero, and []byte, op int) []byte { return asm(zero, OpBlock, int(w.typ), and, OpEnd, op) },
		"local that was never set": func(w *width, _, and []byte, op int) []byte { return asm(get(w.unset), and, op) },
		"zero in a local": func(_ *width, zero, and []byte, op int) []byte {
			return asm(zero, set(3), and, set(2), get(3), get(2), op)
		},
		"zero of a block": func(w *width, zero, and []byte, op int) []byte {
			return asm(OpBlock, int(w.typ), zero, OpEnd, and, op)
		},
		"zero in five bytes": func(w *width, zero, and []byte, op int) []byte {
			return asm(zero[:1], 0x80, 0x80, 0x80, 0x80, 0x00, and, op)
		},
		"zero in five bytes, turned": func(w *width, zero, and []byte, op int) []byte {
			return asm(and, zero[:1], 0x80, 0x80, 0x80, 0x80, 0x00, op)
		},
		"others between": func(_ *width, zero, and []byte, op int) []byte {
			return asm(zero, and, get(0), get(1), OpDrop, OpDrop, op)
		},
		"a load between": func(_ *width, zero, and []byte, op int) []byte {
			return asm(zero, and, i32c(8), memarg(OpI32Load, 0), OpDrop, op)
		},
		"a store between": func(_ *width, zero, and []byte, op int) []byte {
			return asm(zero, and, i32c(8), i32c(1), memarg(OpI32Store, 0), op)
		},
		"others in front": func(_ *width, zero, and []byte, op int) []byte {
			return asm(i32c(8), memarg(OpI32Load, 0), OpDrop, zero, and, op)
		},
		"condition in a local": func(_ *width, zero, and []byte, op int) []byte { return asm(zero, and, op, set(4), get(4)) },
		"condition in a local, others between": func(_ *width, zero, and []byte, op int) []byte {
			return asm(zero, and, op, set(4), i32c(3), set(5), get(4))
		},
		"condition of a block": func(_ *width, zero, and []byte, op int) []byte {
			return asm(OpBlock, int(I32), zero, and, op, OpEnd)
		},
		"condition of blocks": func(_ *width, zero, and []byte, op int) []byte {
			return asm(OpBlock, int(I32), OpLoop, int(I32), zero, and, op, OpEnd, OpNop, OpEnd)
		},
		"condition of a block that is left": func(_ *width, zero, and []byte, op int) []byte {
			return asm(OpBlock, int(I32), zero, and, op, get(5), OpBrIf, 0, OpNop, OpEnd)
		},
		"condition of an arm": func(w *width, zero, and []byte, op int) []byte {
			return asm(get(5), OpI32Eqz, OpIf, int(I32), zero, and, op, OpElse, i32c(0), OpEnd)
		},
		"condition that is kept": func(_ *width, zero, and []byte, op int) []byte {
			return asm(zero, and, op, OpLocalTee, 4, OpIf, BlockTypeEmpty, OpEnd, get(4))
		},
		"turned": func(_ *width, zero, and []byte, op int) []byte { return asm(and, zero, op) },
		"eqz":    func(_ *width, zero, and []byte, op int) []byte { return asm(zero, and, op, 0x45) },
		"eqz twice": func(_ *width, zero, and []byte, op int) []byte {
			return asm(zero, and, op, 0x45, 0x45)
		},
	}
	branches := map[string]func(condition []byte) []byte{
		"if":    func(c []byte) []byte { return asm(c, OpIf, int(I32), i32c(1), OpElse, i32c(0), OpEnd) },
		"br_if": func(c []byte) []byte { return asm(OpBlock, 0x40, c, OpBrIf, 0, i32c(0), OpReturn, OpEnd, i32c(1)) },
	}
	wrong := 0
	for _, w := range widths {
		for _, pass := range []Pass{nil, TestPass} {
			var m module
			var names []string
			zeroGlobal := asm(w.zero, OpEnd)
			m.Memories = []Limits{{Min: 1}}
			m.Globals = []Global{{GlobalType{w.typ, true}, zeroGlobal}}
			for form, compare := range forms {
				for branch, with := range branches {
					for op := w.eq; op <= w.ge; op++ {
						name := fmt.Sprintf("%s %s %#x", form, branch, op)
						names = append(names, name)
						condition := compare(&w, w.zero, asm(get(0), get(1), w.and), op)
						m.fn(name, types(w.typ, w.typ), types(I32), types(w.typ, w.typ, I32, I32, I64), with(condition))
					}
				}
			}
			bin := m.Encode()
			rewritten, _ := rewriteFor(t, bin, Options{Meter: true, Fuel: 1 << 40, Pass: pass})
			right := instance(t, engines["interpreter"](), bin)
			plain, changed := instance(t, engines["compiler"](), bin), instance(t, engines["compiler"](), rewritten)
			for _, name := range names {
				for _, v := range [][2]uint64{{0, 1}, {1, 1}, {3, 6}, {1<<32 - 1, 1 << 31}, {1<<64 - 1, 1 << 63}} {
					if w.typ == I32 {
						v[0], v[1] = v[0]&(1<<32-1), v[1]&(1<<32-1)
					}
					want, err := right.ExportedFunction(name).Call(t.Context(), v[:]...)
					if err != nil {
						t.Fatal(err)
					}
					got, err := changed.ExportedFunction(name).Call(t.Context(), v[:]...)
					if err != nil || uint32(got[0]) != uint32(want[0]) {
						t.Errorf("%v, %s of %#x: %v, %v, want %v", w.typ, name, v, got, err, want)
					}
					if got, err := plain.ExportedFunction(name).Call(t.Context(), v[:]...); err != nil || uint32(got[0]) != uint32(want[0]) {
						wrong++
					}
				}
			}
		}
	}
	if wrong == 0 {
		t.Error("wazero branches right by itself: what fused.go does can go")
	}
	t.Logf("wazero by itself branches wrongly in %d cases", wrong)
}
