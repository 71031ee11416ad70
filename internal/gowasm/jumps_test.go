package gowasm_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero/api"

	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// The functions of these tests return the i64 of local 2. They have two parameters: the
// number of the block where they begin, and a count that goes down so that they end.
var stateType = wasmbin.FuncType{Params: []wasmbin.ValType{i32, i32}, Results: []wasmbin.ValType{i64}}

func stateCode(body ...any) wasmbin.Code {
	return code([]wasmbin.ValType{i64, i32}, append(body, get(2))...)
}

// states writes a function as Go's compiler does: numbered blocks in a loop that branches to
// the one whose number is in local 0. body returns the code of a block; jump, in it, what
// goes to another one from within some blocks of WebAssembly.
func states(n int, table []int, body func(i int, jump func(to, within int) []byte) []byte) wasmbin.Code {
	out := []byte{wasmbin.OpLoop, wasmbin.BlockTypeEmpty}
	for range n {
		out = append(out, wasmbin.OpBlock, wasmbin.BlockTypeEmpty)
	}
	out = binary.AppendUvarint(append(out, wasmbin.OpLocalGet, 0, wasmbin.OpBrTable), uint64(len(table)-1))
	for _, label := range table {
		out = binary.AppendUvarint(out, uint64(label))
	}
	out = append(out, wasmbin.OpEnd)
	for i := range n {
		out = append(out, body(i, func(to, within int) []byte {
			return binary.AppendUvarint(asm(i32c(int32(to)), set(0), wasmbin.OpBr), uint64(n-1-i+within))
		})...)
		if i < n-1 {
			out = append(out, wasmbin.OpEnd)
		}
	}
	return stateCode(append(out, wasmbin.OpEnd))
}

// step mixes i into the result, and returns if the count is at its end.
func step(i int) []byte {
	return asm(get(2), i64c(31), wasmbin.OpI64Mul, i64c(int64(i+1)), wasmbin.OpI64Add, set(2),
		get(1), i32c(1), wasmbin.OpI32Sub, wasmbin.OpLocalTee, 1, wasmbin.OpI32Eqz, wasmbin.OpIf, wasmbin.BlockTypeEmpty, get(2), wasmbin.OpReturn, wasmbin.OpEnd)
}

// when is what is done if a bit of the result is set.
func when(bit int, then []byte) []byte {
	return asm(get(2), i64c(int64(bit)), wasmbin.OpI64ShrU, wasmbin.OpI32WrapI64, i32c(1), wasmbin.OpI32And, wasmbin.OpIf, wasmbin.BlockTypeEmpty, then, wasmbin.OpEnd)
}

// TestJumps has functions of Go's form, and some that only look so.
func TestJumps(t *testing.T) {
	const (
		block, loop, end, br = wasmbin.OpBlock, wasmbin.OpLoop, wasmbin.OpEnd, wasmbin.OpBr
		brTable              = wasmbin.OpBrTable
		empty                = wasmbin.BlockTypeEmpty
	)
	for name, test := range map[string]struct {
		code wasmbin.Code
		// forward is how many jumps no longer go by way of the loop.
		forward int
	}{
		"forward": {states(3, []int{0, 1, 2}, func(i int, jump func(to, within int) []byte) []byte {
			switch i {
			case 0:
				return append(step(i), jump(2, 0)...)
			case 1:
				return step(i)
			default:
				return append(step(i), jump(1, 0)...)
			}
		}), 1},
		"out of blocks": {states(4, []int{0, 1, 2, 3}, func(i int, jump func(to, within int) []byte) []byte {
			return append(append(step(i), when(i, when(3, jump(i+2, 2)))...), jump(0, 0)...)
		}), 3},
		"a number beyond the table": {states(3, []int{0, 1, 2}, func(i int, jump func(to, within int) []byte) []byte {
			return append(step(i), jump(1000, 0)...)
		}), 2},
		"a number below 0": {states(3, []int{0, 1, 2}, func(i int, jump func(to, within int) []byte) []byte {
			return append(step(i), jump(-1, 0)...)
		}), 0},
		"numbers in another order": {states(4, []int{3, 1, 0, 2, 3}, func(i int, jump func(to, within int) []byte) []byte {
			return append(step(i), jump(i+1, 0)...)
		}), 1},
		"another local": {states(3, []int{0, 1, 2}, func(i int, jump func(to, within int) []byte) []byte {
			return append(step(i), asm(i32c(2), set(3), br, 2-i)...)
		}), 0},
		"a number that is computed": {states(3, []int{0, 1, 2}, func(i int, jump func(to, within int) []byte) []byte {
			return append(step(i), asm(i32c(1), i32c(int32(i)), wasmbin.OpI32Add, set(0), br, 2-i)...)
		}), 0},
		"something between": {states(3, []int{0, 1, 2}, func(i int, jump func(to, within int) []byte) []byte {
			return append(step(i), asm(i32c(2), set(0), wasmbin.OpNop, br, 2-i)...)
		}), 0},
		"a local that is written twice": {states(3, []int{0, 1, 2}, func(i int, jump func(to, within int) []byte) []byte {
			return append(step(i), asm(i32c(2), i32c(1), set(0), set(0), br, 2-i)...)
		}), 0},
		"a block in the place of one that ended": {states(3, []int{0, 1, 2}, func(i int, jump func(to, within int) []byte) []byte {
			return asm(block, empty, step(i), jump(i, 1), end)
		}), 0},
		"a table that leaves the loop": {stateCode(block, empty, loop, empty, block, empty,
			get(0), brTable, 1, 0, 2, end, step(0), i32c(7), set(0), br, 0, end, end), 0},
		"no loop": {stateCode(block, empty, block, empty, get(0), brTable, 1, 0, 1, end,
			step(0), get(2), i32c(1), set(0), br, 1, end, step(1)), 0},
		"a loop with a result": {code([]wasmbin.ValType{i64, i32}, loop, int(i64), block, empty,
			get(0), brTable, 0, 0, end, step(0), i32c(0), set(0), br, 0, end), 0},
	} {
		t.Run(name, func(t *testing.T) {
			sameStates(t, test.code)
			if got := forward(t, test.code); got != test.forward {
				t.Errorf("%d jumps go straight, want %d", got, test.forward)
			}
		})
	}
}

// TestFirstBlock holds that a function of Go's form tests for its first block before the table,
// whichever block that is, and that another function does not.
func TestFirstBlock(t *testing.T) {
	body := func(first int) []byte {
		return asm(begin, wasmbin.OpLoop, wasmbin.BlockTypeEmpty,
			wasmbin.OpBlock, wasmbin.BlockTypeEmpty, wasmbin.OpBlock, wasmbin.BlockTypeEmpty,
			get(0), wasmbin.OpBrTable, 1, first, 1-first, wasmbin.OpEnd,
			get(0), i32c(10), wasmbin.OpI32Add, wasmbin.OpReturn, wasmbin.OpEnd,
			get(0), i32c(20), wasmbin.OpI32Add, wasmbin.OpReturn, wasmbin.OpEnd, get(0))
	}
	for _, first := range []int{0, 1} {
		c := code(addressLocals, body(first))
		test := asm(get(0), wasmbin.OpI32Eqz, wasmbin.OpBrIf, first, get(0), wasmbin.OpBrTable)
		if out := optimized(t, ofGo, c); !bytes.Contains(out, test) {
			t.Errorf("first block at label %d: %x has no test for it, %x", first, out, test)
		}
		for _, block := range []uint64{0, 1, 7} {
			var results []uint64
			for _, on := range []bool{false, true} {
				bin, _ := rewrite(t, moduleOf(ofGo, c), on)
				mod := instance(t, engines["compiler"](), bin)
				mod.ExportedGlobal("sp").(api.MutableGlobal).Set(4096)
				got, err := mod.ExportedFunction("f0").Call(t.Context(), block)
				if err != nil {
					t.Fatal(err)
				}
				results = append(results, got...)
			}
			if results[0] != results[1] {
				t.Errorf("first block at label %d, block %d: %d without the pass, %d with it", first, block, results[0], results[1])
			}
		}
	}
	other := code([]wasmbin.ValType{i64, i64}, body(0)[len(asm(begin)):])
	if out := optimized(t, ofGo, other); !bytes.Equal(out, other.Body) {
		t.Errorf("a function of another form was changed to %x", out)
	}
}

// TestRandomJumps runs random functions of Go's form.
func TestRandomJumps(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 0))
		n := 1 + r.IntN(12)
		table := make([]int, 1+r.IntN(2*n))
		for i := range table {
			table[i] = r.IntN(n)
		}
		c := states(n, table, func(i int, jump func(to, within int) []byte) []byte {
			out := step(i)
			for range r.IntN(3) {
				out = append(out, when(r.IntN(8), jump(r.IntN(len(table)+2), 1))...)
			}
			switch r.IntN(4) {
			case 0: // Falls through, or to the end.
			case 1:
				out = append(out, asm(get(2), wasmbin.OpReturn)...)
			default:
				out = append(out, jump(r.IntN(len(table)+2), 0)...)
			}
			return out
		})
		if sameStates(t, c); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// forward counts the branches of a function that the pass changes.
func forward(t *testing.T, c wasmbin.Code) (n int) {
	t.Helper()
	labels := func(body []byte) (list []uint32) {
		for i := range wasmbin.Instructions(body) {
			if i.Op == wasmbin.OpBr {
				list = append(list, i.Index)
			}
		}
		return list
	}
	before, after := labels(c.Body), labels(optimized(t, stateType, c))
	for i := range before {
		if before[i] != after[i] {
			n++
		}
	}
	return n
}

// sameStates holds that a function returns the same from each of its states with the pass
// and without, on both engines. A jump that does not go by way of the table spends less fuel,
// on both engines the same.
func sameStates(t *testing.T, c wasmbin.Code) {
	t.Helper()
	type outcome struct {
		Result uint64
		Fuel   int64
	}
	run := func(engine string, on bool) (list []outcome) {
		bin, _ := rewrite(t, moduleOf(stateType, c), on)
		mod := instance(t, engines[engine](), bin)
		f := mod.ExportedFunction("f0")
		for state := range uint64(15) {
			for _, count := range []uint64{1, 2, 7, 100} {
				before := fuelOf(mod)
				got, err := f.Call(t.Context(), state-1, count)
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, outcome{got[0], before - fuelOf(mod)})
			}
		}
		return list
	}
	want, compiled, interpreted := run("interpreter", false), run("compiler", true), run("interpreter", true)
	if diff := cmp.Diff(compiled, interpreted); diff != "" {
		t.Errorf("with the pass, on the compiler -, on the interpreter +\n%s", diff)
	}
	for i := range want {
		if want[i].Result != compiled[i].Result || want[i].Fuel < compiled[i].Fuel {
			t.Errorf("call %d: without the pass %+v, with it %+v", i, want[i], compiled[i])
		}
	}
}
