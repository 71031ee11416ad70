package gowasm_test

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero/api"

	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// The functions of these tests are of Go's form, with numbers in the locals 2 and 3.
var addressLocals = []wasmbin.ValType{i32, i64, i64}

const x = 2

// TestAddresses has one line for each form of code in which an address of the stack is added
// up, or is not what it seems.
func TestAddresses(t *testing.T) {
	const (
		load, store, add = wasmbin.OpI64Load, wasmbin.OpI64Store, wasmbin.OpI64Add
		extend, wrap     = wasmbin.OpI64ExtendI32U, wasmbin.OpI32WrapI64
		empty            = wasmbin.BlockTypeEmpty
	)
	for name, test := range map[string]struct {
		code []byte
		// left is how many additions are left, and checks how many checks were written.
		left, checks int
	}{
		"load":                    {asm(added(24), memarg(load, 0), set(x)), 0, 0},
		"load with an offset":     {asm(added(24), memarg(load, 64), set(x)), 0, 0},
		"load of a byte":          {asm(added(24), memarg(wasmbin.OpI64Load8S, 1), set(x)), 0, 0},
		"two loads":               {asm(added(24), memarg(load, 0), set(x), added(8), memarg(load, 0), set(x)), 0, 0},
		"a second one further":    {asm(added(24), memarg(load, 0), set(x), added(32), memarg(load, 0), set(x)), 0, 1},
		"one without an addition": {asm(get(sp), memarg(load, 0), set(x), added(32), memarg(load, 0), set(x)), 0, 1},
		"further after a branch": {asm(added(24), memarg(load, 0), set(x), i32c(1), wasmbin.OpIf, empty, wasmbin.OpEnd,
			added(32), memarg(load, 0), set(x)), 0, 0},
		"further after the memory grows": {asm(added(24), memarg(load, 0), set(x), i32c(0), wasmbin.OpMemoryGrow, 0, wasmbin.OpDrop,
			added(32), memarg(load, 0), set(x)), 0, 0},
		"further after the pointer moved": {asm(added(24), memarg(load, 0), set(x), move(wasmbin.OpI32Sub, 64),
			added(32), memarg(load, 0), set(x)), 0, 0},
		"an address from before it moved": {asm(added(24), move(wasmbin.OpI32Sub, 64), memarg(load, 0), set(x),
			added(32), memarg(load, 0), set(x)), 0, 0},
		"store of a local":                  {asm(added(32), get(x), memarg(store, 8)), 0, 0},
		"store of a constant":               {asm(added(32), i64c(-5), memarg(wasmbin.OpI64Store32, 8)), 0, 0},
		"store of what is loaded":           {asm(added(32), added(40), memarg(load, 0), memarg(store, 0)), 0, 0},
		"store of a sum":                    {asm(added(32), get(x), added(40), memarg(load, 0), add, memarg(store, 0)), 0, 0},
		"store of an address":               {asm(added(32), added(48), extend, memarg(store, 0)), 1, 0},
		"a branch between":                  {asm(added(8), i32c(1), wasmbin.OpIf, empty, wasmbin.OpEnd, memarg(load, 0), set(x)), 1, 0},
		"an address that is added to":       {asm(added(8), i32c(8), wasmbin.OpI32Add, memarg(load, 0), set(x)), 1, 0},
		"an address that is a value":        {asm(get(sp), added(8), memarg(wasmbin.OpI32Store, 0)), 1, 0},
		"an address that is dropped":        {asm(get(sp), added(8), wasmbin.OpDrop, memarg(load, 0), set(x)), 1, 0},
		"one of two addresses":              {asm(get(sp), added(8), i32c(1), wasmbin.OpSelect, memarg(load, 0), set(x)), 1, 0},
		"a negative number":                 {asm(added(-8), memarg(load, 0), set(x)), 1, 0},
		"a number that is too large":        {asm(added(64<<10), wasmbin.OpDrop, added(64<<10-4), memarg(load, 0), set(x)), 2, 0},
		"an offset that is too large":       {asm(i32c(0), wasmbin.OpIf, empty, added(8), memarg(load, 1<<32-8), set(x), wasmbin.OpEnd), 1, 0},
		"an address that does not begin so": {asm(get(sp), get(sp), extend, i64c(8), wasmbin.OpNop, add, wrap, memarg(load, 0), set(x), wasmbin.OpDrop), 1, 0},
		"a fill":                            {asm(added(8), i32c(7), i32c(9), 0xfc, 0x0b, 0), 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := code(addressLocals, begin, test.code, get(x), wrap)
			sameAddresses(t, c, 4096)
			out := optimized(t, ofGo, c)
			left := bytes.Count(out, []byte{wasmbin.OpI64Add, wasmbin.OpI32WrapI64})
			checks := bytes.Count(out, []byte{wasmbin.OpLocalGet, sp, wasmbin.OpI32Load8U, 0})
			if diff := cmp.Diff([]int{test.left, test.checks}, []int{left, checks}); diff != "" {
				t.Errorf("additions that are left, checks: want -, have +\n%s", diff)
			}
		})
	}
}

// TestStackBeyondTheMemory has what differs with the pass: a function of Go's form whose
// stack pointer lies where no stack of Go does, since it or an address near it is beyond the
// memory. It traps, where without the pass it may first write what lies before.
func TestStackBeyondTheMemory(t *testing.T) {
	c := code(addressLocals, begin, added(8), i64c(1), memarg(wasmbin.OpI64Store, 0), added(16), i64c(2), memarg(wasmbin.OpI64Store, 0), get(0))
	for name, test := range map[string]struct {
		pointer             uint64
		without, with       bool // It traps.
		written, andWritten uint64
	}{
		"within":              {4096, false, false, 1, 1},
		"at the end":          {1<<16 - 24, false, false, 1, 1},
		"partly beyond":       {1<<16 - 20, true, true, 1, 0},
		"beyond":              {1 << 16, true, true, 0, 0},
		"before 4 GiB":        {1<<32 - 8, false, true, 1, 0},
		"before 4 GiB, wraps": {1<<32 - 16, true, true, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			for _, on := range []bool{false, true} {
				bin, _ := rewrite(t, moduleOf(ofGo, c), on)
				mod := instance(t, engines["compiler"](), bin)
				mod.ExportedGlobal("sp").(api.MutableGlobal).Set(test.pointer)
				_, err := mod.ExportedFunction("f0").Call(t.Context(), 0)
				traps, written := test.without, test.written
				if on {
					traps, written = test.with, test.andWritten
				}
				if traps != (err != nil && strings.Contains(err.Error(), "out of bounds")) {
					t.Errorf("with the pass %v: %v, want a trap: %v", on, err, traps)
				}
				got, ok := mod.Memory().ReadUint64Le(uint32(test.pointer) + 8)
				if ok && got != written {
					t.Errorf("with the pass %v: %d is written, want %d", on, got, written)
				}
			}
		})
	}
}

// TestRandomAddresses runs random code of what the pass looks for, and of some that it does
// not.
func TestRandomAddresses(t *testing.T) {
	changed := 0
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		number := func() int { return x + r.IntN(2) }
		address := func() []byte {
			if r.IntN(4) == 0 {
				return get(sp)
			}
			return added(int64(8 * r.IntN(30)))
		}
		var value func(depth int) []byte
		value = func(depth int) []byte {
			switch n := r.IntN(9); {
			case depth > 3 || n == 0:
				return get(number())
			case n == 1:
				return i64c(int64(r.Uint64()))
			case n < 5:
				return asm(address(), memarg([]int{wasmbin.OpI64Load, 0x30, 0x31, 0x34, 0x35}[r.IntN(5)], uint64(8*r.IntN(20))))
			case n == 5:
				return asm(value(depth+1), wasmbin.OpLocalTee, number(), wasmbin.OpNop)
			case n == 6 && r.IntN(3) == 0:
				return asm(move([]int{wasmbin.OpI32Add, wasmbin.OpI32Sub}[r.IntN(2)], int32(8*r.IntN(8))), value(depth+1))
			default:
				return asm(value(depth+1), value(depth+1), []int{wasmbin.OpI64Add, wasmbin.OpI64Sub, wasmbin.OpI64Mul, wasmbin.OpI64And}[r.IntN(4)])
			}
		}
		var body []byte
		for range 1 + r.IntN(12) {
			switch r.IntN(5) {
			case 0:
				body = append(body, asm(value(0), set(number()))...)
			case 1:
				body = append(body, asm(value(0), value(0), wasmbin.OpI64Eq+r.IntN(10), wasmbin.OpI32Eqz, wasmbin.OpIf, wasmbin.BlockTypeEmpty, value(0), set(number()), wasmbin.OpEnd)...)
			default:
				body = append(body, asm(address(), value(0), memarg([]int{wasmbin.OpI64Store, wasmbin.OpI64Store32, 0x3c}[r.IntN(3)], uint64(8*r.IntN(20))))...)
			}
		}
		c := code(addressLocals, begin, body, get(x), wasmbin.OpI32WrapI64)
		if !bytes.Equal(c.Body, optimized(t, ofGo, c)) {
			changed++
		}
		// Some accesses are beyond the end of the memory.
		at := []int{4096, 1<<16 - 8*r.IntN(60)}[r.IntN(2)]
		if sameAddresses(t, c, at); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if changed < 50 {
		t.Errorf("%d of 100 functions are changed", changed)
	}
}

// sameAddresses holds that a function does the same with the pass and without, on both
// engines: it returns the same and leaves the same in the memory and in its stack pointer,
// or traps in both. It spends the same fuel on each.
func sameAddresses(t *testing.T, c wasmbin.Code, pointer int) {
	t.Helper()
	const page = 1 << 16
	contents := make([]byte, page)
	for i := range contents {
		contents[i] = byte(i*i + i/7)
	}
	type outcome struct {
		Results []uint64
		Pointer uint64
		Memory  string // Which cmp compares at once.
		Trap    bool
	}
	run := func(engine string, on bool) (o outcome, spent int64) {
		bin, _ := rewrite(t, moduleOf(ofGo, c), on)
		mod := instance(t, engines[engine](), bin)
		mod.Memory().Write(0, contents)
		global := mod.ExportedGlobal("sp").(api.MutableGlobal)
		global.Set(uint64(pointer))
		before := fuelOf(mod)
		results, err := mod.ExportedFunction("f0").Call(t.Context(), 0)
		if err != nil {
			if !strings.Contains(err.Error(), "out of bounds") {
				t.Fatalf("%s: %v", engine, err)
			}
			return outcome{Trap: true}, before - fuelOf(mod) // It may trap before what else it does.
		}
		memory, _ := mod.Memory().Read(0, page)
		return outcome{results, global.Get(), string(memory), false}, before - fuelOf(mod)
	}
	want, _ := run("interpreter", false)
	var fuels []int64
	for _, engine := range []string{"compiler", "interpreter"} {
		got, spent := run(engine, true)
		fuels = append(fuels, spent)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: without the pass -, with it +\n%s", engine, diff)
		}
	}
	if fuels[0] != fuels[1] {
		t.Errorf("the engines spend %v", fuels)
	}
}
