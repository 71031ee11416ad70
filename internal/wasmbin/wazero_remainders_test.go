package wasmbin

import (
	"fmt"
	"testing"
)

// TestRemaindersWithoutRegisters takes remainders while many values are live, and holds the
// compiler's results against the interpreter's.
func TestRemaindersWithoutRegisters(t *testing.T) {
	wrong := 0
	for _, typ := range []ValType{I32, I64} {
		rems, add, mul, load := []int{OpI32RemS, OpI32RemU}, OpI32Add, 0x6c, byte(OpI32Load)
		if typ == I64 {
			rems, add, mul, load = []int{OpI64RemS, OpI64RemU}, OpI64Add, 0x7e, OpI64Load
		}
		var m module
		m.Memories = []Limits{{Min: 1}}
		m.Exports = append(m.Exports, Export{"memory", ExternMemory, 0})
		var names []string
		for live := 1; live < 60; live++ {
			locals := make([]ValType, live)
			for i := range locals {
				locals[i] = typ
			}
			for _, rem := range rems {
				name := fmt.Sprintf("%#x with %d", rem, live)
				names = append(names, name)
				var code []byte
				for i := range live {
					code = append(code, asm(i32c(int32(8*i)), memarg(load, 0), OpLocalTee, u(uint32(i+2)), OpDrop)...)
				}
				// Each remainder while all others are live: (x rem a) rem ... rem y.
				code = asm(code, get(0), get(1), rem)
				for i := range live {
					code = append(code, asm(OpLocalGet, u(uint32(i+2)), add, OpLocalGet, u(uint32(live-i+1)), rem)...)
				}
				for i := range live {
					code = append(code, asm(OpLocalGet, u(uint32(i+2)), mul, get(0), add)...)
				}
				m.fn(name, types(typ, typ), types(typ), locals, code)
			}
		}
		bin := m.Encode()
		rewritten, _ := rewriteFor(t, bin, Options{Meter: true, Fuel: 1 << 40, StackBytes: maxStack, ExpandRemainders: true})
		right, plain := instance(t, engines["interpreter"](), bin), instance(t, engines["compiler"](), bin)
		changed := instance(t, engines["compiler"](), rewritten)
		memory := make([]byte, 8*64)
		for i := range memory {
			memory[i] = byte(37*i + 1)
		}
		right.Memory().Write(0, memory)
		plain.Memory().Write(0, memory)
		changed.Memory().Write(0, memory)
		for _, name := range names {
			for _, v := range [][2]uint64{{100, 7}, {1<<31 - 5, 3}, {1 << 31, 1<<32 - 1}, {1 << 63, 1<<64 - 1}, {1<<64 - 100, 7}, {5, 0}} {
				if typ == I32 {
					v[0], v[1] = v[0]&(1<<32-1), v[1]&(1<<32-1)
				}
				want, wantErr := right.ExportedFunction(name).Call(t.Context(), v[:]...)
				got, err := changed.ExportedFunction(name).Call(t.Context(), v[:]...)
				if fmt.Sprint(want, outcomeOf(nil, wantErr)) != fmt.Sprint(got, outcomeOf(nil, err)) {
					t.Errorf("%v %s of %#x: %v, %v, want %v, %v", typ, name, v, got, err, want, wantErr)
				}
				if got, err := plain.ExportedFunction(name).Call(t.Context(), v[:]...); fmt.Sprint(want, outcomeOf(nil, wantErr)) != fmt.Sprint(got, outcomeOf(nil, err)) {
					wrong++
				}
			}
		}
	}
	t.Logf("wazero by itself is wrong in %d cases", wrong)
}
