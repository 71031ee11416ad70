package wasmbin

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero/api"
)

// states writes a function as Go's compiler does: numbered blocks in a loop that
// branches to the one whose number is in local 0. Local 1 counts down, so that it ends,
// and local 2 is the result. body returns the code of a block; jump, in it, what goes
// to another from within some blocks of WebAssembly.
func (m *module) states(name string, n int, table []int, body func(i int, jump func(to, within int) []byte) []byte) {
	code := []byte{opLoop, blockTypeEmpty}
	for range n {
		code = append(code, opBlock, blockTypeEmpty)
	}
	code = appendUvarint(append(code, opLocalGet, 0, opBrTable), uint64(len(table)-1))
	for _, label := range table {
		code = appendUvarint(code, uint64(label))
	}
	code = append(code, opEnd)
	for i := range n {
		code = append(code, body(i, func(to, within int) []byte {
			jump := asm(i32c(int32(to)), set(0), opBr)
			return appendUvarint(jump, uint64(n-1-i+within))
		})...)
		if i < n-1 {
			code = append(code, opEnd)
		}
	}
	code = append(code, opEnd)
	m.fn(name, types(I32, I32), types(I64), types(I64, I32), code, get(2))
}

// step mixes i into the result, and returns if the count is at its end.
func step(i int) []byte {
	return asm(get(2), i64c(31), 0x7e, i64c(int64(i+1)), opI64Add, set(2),
		get(1), opI32Const, 1, opI32Sub, opLocalTee, 1, 0x45, opIf, blockTypeEmpty, get(2), opReturn, opEnd)
}

// when is what is done if a bit of the result is set.
func when(bit int, then []byte) []byte {
	return asm(get(2), i64c(int64(bit)), opI64ShrU, opI32WrapI64, i32c(1), opI32And, opIf, blockTypeEmpty, then, opEnd)
}

// TestJumps runs functions of Go's form, and some that only look so, plain and
// rewritten.
func TestJumps(t *testing.T) {
	for name, test := range map[string]struct {
		build func(m *module)
		// threaded is how many jumps no longer go by way of the loop.
		threaded int
	}{
		"forward": {func(m *module) {
			m.states("f", 3, []int{0, 1, 2}, func(i int, jump func(to, within int) []byte) []byte {
				switch i {
				case 0:
					return append(step(i), jump(2, 0)...)
				case 1:
					return step(i)
				default:
					return append(step(i), jump(1, 0)...)
				}
			})
		}, 1},
		"out of blocks": {func(m *module) {
			m.states("f", 4, []int{0, 1, 2, 3}, func(i int, jump func(to, within int) []byte) []byte {
				return append(append(step(i), when(i, when(3, jump(i+2, 2)))...), jump(0, 0)...)
			})
		}, 3},
		"a number beyond the table": {func(m *module) {
			m.states("f", 3, []int{0, 1, 2}, func(i int, jump func(to, within int) []byte) []byte { return append(step(i), jump(-1, 0)...) })
		}, 2},
		"numbers in another order": {func(m *module) {
			m.states("f", 4, []int{3, 1, 0, 2, 3}, func(i int, jump func(to, within int) []byte) []byte { return append(step(i), jump(i+1, 0)...) })
		}, 1},
		"another local": {func(m *module) {
			m.states("f", 3, []int{0, 1, 2}, func(i int, jump func(to, within int) []byte) []byte {
				return append(step(i), asm(i32c(2), set(3), opBr, 2-i)...)
			})
		}, 0},
		"a number that is computed": {func(m *module) {
			m.states("f", 3, []int{0, 1, 2}, func(i int, jump func(to, within int) []byte) []byte {
				return append(step(i), asm(i32c(1), i32c(int32(i)), opI32Add, set(0), opBr, 2-i)...)
			})
		}, 0},
		"something between": {func(m *module) {
			m.states("f", 3, []int{0, 1, 2}, func(i int, jump func(to, within int) []byte) []byte {
				return append(step(i), asm(i32c(2), set(0), opNop, opBr, 2-i)...)
			})
		}, 0},
		"a block in the place of one that ended": {func(m *module) {
			m.states("f", 3, []int{0, 1, 2}, func(i int, jump func(to, within int) []byte) []byte {
				return asm(opBlock, blockTypeEmpty, step(i), jump(i, 1), opEnd)
			})
		}, 0},
		"a table that leaves the loop": {func(m *module) {
			m.fn("f", types(I32, I32), types(I64), types(I64, I32), opBlock, blockTypeEmpty, opLoop, blockTypeEmpty, opBlock, blockTypeEmpty,
				get(0), opBrTable, 1, 0, 2, opEnd, step(0), i32c(7), set(0), opBr, 0, opEnd, opEnd, get(2))
		}, 0},
		"no loop": {func(m *module) {
			m.fn("f", types(I32, I32), types(I64), types(I64, I32), opBlock, blockTypeEmpty, opBlock, blockTypeEmpty, get(0), opBrTable, 1, 0, 1, opEnd,
				step(0), get(2), i32c(1), set(0), opBr, 1, opEnd, step(1), get(2))
		}, 0},
		"a loop with a result": {func(m *module) {
			m.fn("f", types(I32, I32), types(I64), types(I64, I32), opLoop, int(I64), opBlock, blockTypeEmpty,
				get(0), opBrTable, 0, 0, opEnd, step(0), i32c(0), set(0), opBr, 0, opEnd)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var m, changed module
			test.build(&m)
			sameStates(t, &m)
			test.build(&changed)
			if got := threaded(t, &changed); got != test.threaded {
				t.Errorf("%d jumps go straight, want %d", got, test.threaded)
			}
		})
	}
}

// TestRandomJumps runs random functions of Go's form.
func TestRandomJumps(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 0))
		var m module
		n := 1 + r.IntN(12)
		table := make([]int, 1+r.IntN(2*n))
		for i := range table {
			table[i] = r.IntN(n)
		}
		m.states("f", n, table, func(i int, jump func(to, within int) []byte) []byte {
			code := step(i)
			for range r.IntN(3) {
				code = append(code, when(r.IntN(8), jump(r.IntN(len(table)+2), 1))...)
			}
			switch r.IntN(4) {
			case 0: // Falls through, or to the end.
			case 1:
				code = append(code, asm(get(2), opReturn)...)
			default:
				code = append(code, jump(r.IntN(len(table)+2), 0)...)
			}
			return code
		})
		if !sameStates(t, &m) {
			t.Fatalf("seed %d", seed)
		}
	}
}

// threaded counts the jumps of the function that the rewriter changed.
func threaded(t *testing.T, m *module) (n int) {
	t.Helper()
	rw := &rewriter{Module: &m.Module, opts: Options{Meter: true}, info: &Info{}}
	if err := rw.describe(); err != nil {
		t.Fatal(err)
	}
	b := rw.bodies()
	if err := b.rewrite(0, &m.Codes[0], m.Functions[0]); err != nil {
		t.Fatal(err)
	}
	for _, e := range b.edits {
		if e.kind == editIndex {
			n++
		}
	}
	return n
}

// sameStates reports whether a function of states does the same plain and rewritten,
// also in a guest of Go, and spends the same fuel on both engines, from each of its
// states.
func sameStates(t *testing.T, m *module) bool {
	t.Helper()
	m.Memories = []Limits{{Min: 1}} // For what a guest of Go is known by.
	ok := sameRewritten(t, m.Encode()) && exact(t, m.Encode())
	m.asGo()
	return sameRewritten(t, m.Encode()) && ok
}

func sameRewritten(t *testing.T, bin []byte) bool {
	t.Helper()
	rewritten, _ := rewriteFor(t, bin, Options{Meter: true})
	plain := instance(t, engines["compiler"](), bin).ExportedFunction("f")
	ok := true
	var fuels []uint64
	for _, engine := range []string{"compiler", "interpreter"} {
		mod := instance(t, engines[engine](), rewritten)
		fuel := mod.ExportedGlobal(FuelGlobal).(api.MutableGlobal)
		fuel.Set(1 << 40)
		for state := range uint64(15) {
			for _, count := range []uint64{1, 2, 7, 100} {
				want, err := plain.Call(t.Context(), state-1, count)
				if err != nil {
					t.Fatal(err)
				}
				got, err := mod.ExportedFunction("f").Call(t.Context(), state-1, count)
				if diff := cmp.Diff(want, got); diff != "" || err != nil {
					t.Errorf("%s, state %d, %d steps: %v, plain -, rewritten +\n%s", engine, state, count, err, diff)
					ok = false
				}
			}
		}
		fuels = append(fuels, fuel.Get())
	}
	if fuels[0] != fuels[1] {
		t.Errorf("the engines spend %s", fmt.Sprint(fuels))
		ok = false
	}
	return ok
}

// exact reports whether a function of states spends what it spends with a charge in
// front of each instruction.
func exact(t *testing.T, bin []byte) bool {
	t.Helper()
	rewritten, _ := rewriteFor(t, bin, Options{Meter: true})
	each, err := countEach(bin)
	if err != nil {
		t.Fatal(err)
	}
	var fuels []uint64
	for _, bin := range [][]byte{each, rewritten} {
		mod := instance(t, engines["interpreter"](), bin)
		fuel := mod.ExportedGlobal(FuelGlobal).(api.MutableGlobal)
		for state := range uint64(15) {
			fuel.Set(1 << 40)
			if _, err := mod.ExportedFunction("f").Call(t.Context(), state-1, 100); err != nil {
				t.Fatal(err)
			}
			fuels = append(fuels, 1<<40-fuel.Get())
		}
	}
	diff := cmp.Diff(fuels[:len(fuels)/2], fuels[len(fuels)/2:])
	if diff != "" {
		t.Errorf("fuel from each state, each instruction charged -, rewritten +\n%s", diff)
	}
	return diff == ""
}
