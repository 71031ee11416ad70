package wasmbin

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// asGo adds what the rewriter knows a guest of Go by.
func (m *module) asGo() {
	r := &replacements[0]
	m.fn("", r.typ.Params, r.typ.Results, nil)
	m.Codes[len(m.Codes)-1].Body = r.body
}

// added is an address as Go's compiler adds it up.
func added(address []byte, offset int) []byte {
	return asm(address, opI64ExtendI32U, i64c(int64(offset)), opI64Add, opI32WrapI64)
}

// memarg is a load or store with an offset.
func memarg(op byte, offset uint32) []byte { return asm(int(op), 0, u(offset)) }

// TestOffsetsOfGo has one line for each form of code in which an address is added up,
// or is not what it seems: of the stack, in local 1, or another one, in local 0.
func TestOffsetsOfGo(t *testing.T) {
	for pointer := range 2 {
		t.Run(fmt.Sprintf("local %d", pointer), func(t *testing.T) { testOffsetsOfGo(t, pointer) })
	}
}

func testOffsetsOfGo(t *testing.T, pointer int) {
	sp, x := get(pointer), get(1-pointer)
	for name, test := range map[string]struct {
		code []byte
		// left is how many additions are left.
		left int
		// fuel is what is no longer spent.
		saved int64
	}{
		"load":                    {asm(added(sp, 24), memarg(opI64Load, 0), set(2)), 0, 4},
		"load with an offset":     {asm(added(sp, 24), memarg(opI64Load, 64), set(2)), 0, 4},
		"load of a byte":          {asm(added(sp, 24), memarg(0x30, 1), set(2)), 0, 4},
		"store of a local":        {asm(added(sp, 32), x, memarg(opI64Store, 8)), 0, 4},
		"store of a constant":     {asm(added(sp, 32), i64c(-5), memarg(opI64Store32, 8)), 0, 4},
		"store of what is loaded": {asm(added(sp, 32), added(sp, 40), memarg(opI64Load, 0), memarg(opI64Store, 0)), 0, 8},
		"store of a sum": {asm(added(sp, 32), x, added(sp, 40), memarg(opI64Load, 0), opI64Add, 0x7a,
			memarg(opI64Store, 0)), 0, 8},
		"store of an address":              {asm(added(sp, 32), added(sp, 48), opI64ExtendI32U, memarg(opI64Store, 0)), 1, 4},
		"store of an address that is kept": {asm(added(sp, 32), added(sp, 48), opLocalTee, pointer, opI64ExtendI32U, memarg(opI64Store, 0)), 1, 4},
		"a nop between":                    {asm(sp, opI64ExtendI32U, opNop, i64c(8), opI64Add, opI32WrapI64, opNop, memarg(opI64Load, 0), set(2)), 0, 4},
		"an address that is computed":      {asm(added(asm(sp, i32c(16), opI32Add), 8), memarg(opI64Load, 0), set(2)), 0, 4},
		"a branch between":                 {asm(added(sp, 8), i32c(1), opIf, blockTypeEmpty, opEnd, memarg(opI64Load, 0), set(2)), 1, 0},
		"an address for two":               {asm(added(sp, 8), opLocalTee, pointer, memarg(opI64Load, 0), set(2), sp, x, memarg(opI64Store, 0)), 1, 0},
		"an address that is added to":      {asm(added(sp, 8), i32c(8), opI32Add, memarg(opI64Load, 0), set(2)), 1, 0},
		"an address that is a value":       {asm(sp, added(sp, 8), memarg(0x36, 0)), 1, 0},
		"an address that is dropped":       {asm(sp, added(sp, 8), opDrop, memarg(opI64Load, 0), set(2)), 1, 0},
		"one of two addresses":             {asm(sp, added(sp, 8), i32c(1), opSelect, memarg(opI64Load, 0), set(2)), 1, 0},
		"a negative number":                {asm(added(sp, -8), memarg(opI64Load, 0), set(2)), 1, 0},
		"a large number":                   {asm(added(asm(sp, i32c(-maxOffset-1), opI32Add), maxOffset+1), memarg(opI64Load, 0), set(2)), 1, 0},
		"an offset that overflows":         {asm(i32c(0), opIf, blockTypeEmpty, added(sp, 8), memarg(opI64Load, 1<<32-8), set(2), opEnd), 1, 0},
		"an operand from before":           {asm(sp, opBlock, blockTypeEmpty, opEnd, added(sp, 8), memarg(opI64Load, 0), memarg(opI64Store, 80)), 0, 4},
		"a fill":                           {asm(added(sp, 8), i32c(7), i32c(9), prefixMisc, 0x0b, 0), 1, 0},
		"a copy":                           {asm(added(sp, 8), added(sp, 48), i32c(9), prefixMisc, 0x0a, 0, 0), 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			left, saved := offsetsOf(t, pointer, 4096, asm(test.code, get(2)))
			if diff := cmp.Diff([]int64{int64(test.left), test.saved}, []int64{int64(left), saved}); diff != "" {
				t.Errorf("additions that are left, fuel that is saved: want -, have +\n%s", diff)
			}
		})
	}
}

// TestNegationsOfGo has each comparison of integers and an i32.eqz behind it.
func TestNegationsOfGo(t *testing.T) {
	for op := byte(opI32Eq); op <= opI64GeU; op++ {
		operands := asm(get(1), get(2))
		if op <= opI32GeU {
			operands = asm(get(1), opI32WrapI64, get(2), opI32WrapI64)
		} else if op == opI64Eqz {
			operands = get(1)
		}
		_, saved := offsetsOf(t, 0, 4096, asm(operands, int(op), opI32Eqz, opI64ExtendI32U))
		if want := int64(1); op != opI64Eqz && saved != want {
			t.Errorf("comparison %#x: fuel %d saved, want %d", op, saved, want)
		}
		offsetsOf(t, 0, 4096, asm(operands, int(op), opI32Eqz, opI32Eqz, opI32Eqz, opI64ExtendI32U))
	}
}

// TestRandomCodeOfGo runs random code of what the rewriter looks for, and of some that it
// does not.
func TestRandomCodeOfGo(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		pointer := r.IntN(2)
		number := func() int { return []int{1 - pointer, 2}[r.IntN(2)] }
		var value, address func(depth int) []byte
		address = func(depth int) []byte {
			switch r.IntN(4) {
			case 0:
				return get(pointer)
			default:
				return added(get(pointer), 8*r.IntN(30))
			}
		}
		value = func(depth int) []byte {
			switch n := r.IntN(8); {
			case depth > 3 || n == 0:
				return get(number())
			case n == 1:
				return i64c(int64(r.Uint64()))
			case n < 5:
				return asm(address(depth), memarg([]byte{opI64Load, 0x30, 0x31, 0x34, 0x35}[r.IntN(5)], uint32(8*r.IntN(20))))
			case n == 5:
				return asm(value(depth+1), opLocalTee, number(), opNop)
			default:
				return asm(value(depth+1), value(depth+1), []int{opI64Add, opI64Sub, 0x7e, 0x83, 0x84, 0x85}[r.IntN(6)])
			}
		}
		var code []byte
		for range 1 + r.IntN(12) {
			switch r.IntN(4) {
			case 0:
				code = append(code, asm(value(0), set(number()))...)
			case 1:
				code = append(code, asm(value(0), value(0), opI64Eq+r.IntN(10), opI32Eqz, opIf, blockTypeEmpty, value(0), set(number()), opEnd)...)
			default:
				code = append(code, asm(address(0), value(0), memarg([]byte{opI64Store, opI64Store32, 0x3c}[r.IntN(3)], uint32(8*r.IntN(20))))...)
			}
		}
		// Some accesses are beyond the end of the memory.
		at := []int{4096, 1<<16 - 8*r.IntN(60)}[r.IntN(2)]
		if offsetsOf(t, pointer, at, asm(code, get(2))); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// offsetsOf runs code as that of a guest of Go and as that of another one, with an address
// in a local. It must return the same and leave the same in memory, or trap in both. It
// returns how many additions of an address are left, and what fuel is saved.
func offsetsOf(t *testing.T, pointer, at int, code []byte) (left int, saved int64) {
	t.Helper()
	const page = 1 << 16
	contents := make([]byte, page)
	for i := range contents {
		contents[i] = byte(i*i + i/7)
	}
	params, args := types(I32, I64), []uint64{uint64(at), 0x1234_5678_9abc_def0}
	if pointer == 1 {
		slices.Reverse(params)
		slices.Reverse(args)
	}
	for engine, config := range engines {
		type outcome struct {
			Results []uint64
			Memory  []byte
			Trap    bool
		}
		var outcomes [2]outcome
		var fuels [2]int64
		for i := range outcomes {
			var m module
			m.Memories = []Limits{{Min: 1}}
			m.fn("f", params, types(I64), types(I64), code)
			if i == 1 {
				m.asGo()
			}
			m.Exports = append(m.Exports, Export{"memory", ExternMemory, 0})
			g := newMetered(t, config(), &m)
			g.mod.Memory().Write(0, contents)
			results, spent, err := g.call("f", 1_000_000, args...)
			if err != nil && !strings.Contains(err.Error(), "out of bounds") {
				t.Fatalf("%s: %v", engine, err)
			}
			memory, _ := g.mod.Memory().Read(0, page)
			outcomes[i], fuels[i] = outcome{results, bytes.Clone(memory), err != nil}, spent
			if err != nil {
				outcomes[i].Memory = nil // It may trap before what else it does.
			}
		}
		if diff := cmp.Diff(outcomes[0], outcomes[1]); diff != "" {
			t.Errorf("%s: another guest -, guest of Go +\n%s", engine, diff)
		}
		if now := fuels[0] - fuels[1]; engine != "compiler" && saved != 0 && now != saved {
			t.Errorf("%s saves %d, not %d", engine, now, saved)
		}
		saved = fuels[0] - fuels[1]
	}
	var m module
	m.Memories = []Limits{{Min: 1}}
	m.fn("f", params, types(I64), types(I64), code)
	m.asGo()
	out, _ := rewriteFor(t, m.Encode(), Options{Meter: true})
	d, err := Decode(out)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(d.Codes[0].Body, []byte{opI64Add, opI32WrapI64}), saved
}
