package wasmbin

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
)

// bomb is a module that is slow to compile. It grows with n: with accepted it is
// just not refused, with refused wazero would take several seconds.
type bomb struct {
	build             func(m *module, n int)
	accepted, refused int
}

func bombs() map[string]bomb {
	none, one := types(), types(I32)
	repeat := func(n int, parts ...any) []byte { return bytes.Repeat(asm(parts...), n) }
	wide := func(n int) []ValType { return slices.Repeat(types(I64), n) }
	eachLocal := func(n int, f func(i int) []byte) (out []byte) {
		for i := range n {
			out = append(out, f(i+1)...)
		}
		return out
	}
	memory := func(m *module) { m.Memories = []Limits{{Min: 1}} }
	return map[string]bomb{
		"loops within one another":  {func(m *module, n int) { m.fn("", none, none, none, repeat(n, OpLoop, 0x40), repeat(n, OpEnd)) }, 2_500, 3_000},
		"loops one after the other": {func(m *module, n int) { m.fn("", one, none, none, repeat(n, OpLoop, 0x40, get(0), OpBrIf, 0, OpEnd)) }, 2_000, 5_000},
		"blocks within one another": {func(m *module, n int) { m.fn("", none, none, none, repeat(n, OpBlock, 0x40), repeat(n, OpEnd)) }, 14_000, 30_000},
		"ifs within one another":    {func(m *module, n int) { m.fn("", one, none, none, repeat(n, get(0), OpIf, 0x40), repeat(n, OpEnd)) }, 6_000, 10_000},
		"ifs one after the other":   {func(m *module, n int) { m.fn("", one, none, none, repeat(n, get(0), OpIf, 0x40, OpEnd)) }, 6_000, 10_000},
		"ifs with two arms": {func(m *module, n int) {
			m.fn("", one, one, none, repeat(n, get(0), OpIf, int(I32), i32c(1), OpElse, get(0), OpEnd, set(0)), get(0))
		}, 4_000, 10_000},
		"ifs that return":            {func(m *module, n int) { m.fn("", one, none, none, repeat(n, get(0), OpIf, 0x40, OpReturn, OpEnd)) }, 4_500, 10_000},
		"ifs that trap":              {func(m *module, n int) { m.fn("", one, none, none, repeat(n, get(0), OpIf, 0x40, OpUnreachable, OpEnd)) }, 2_500, 10_000},
		"branches out of one block":  {func(m *module, n int) { m.fn("", one, none, none, OpBlock, 0x40, repeat(n, get(0), OpBrIf, 0), OpEnd) }, 6_000, 40_000},
		"functions":                  {func(m *module, n int) { many(m, n, m.typ(none, none)) }, 200_000, 300_000},
		"functions of 1,000 params":  {func(m *module, n int) { many(m, n, m.typ(wide(1_000), none)) }, 3_000, 10_000},
		"functions of 1,000 results": {func(m *module, n int) { m.fn("", none, wide(1_000), none, OpUnreachable); many(m, n, 0) }, 3_000, 10_000},
		"calls of 1,000 results": {func(m *module, n int) {
			m.fn("", none, wide(1_000), none, OpUnreachable)
			m.fn("", none, none, none, repeat(n, OpCall, 0), OpUnreachable)
		}, 60, 10_000},
		"calls of itself": {func(m *module, n int) { m.fn("", one, one, none, repeat(n, get(0), OpCall, 0, set(0)), get(0)) }, 2_000, 5_000},
		"calls through a table": {func(m *module, n int) {
			m.Tables = []Table{{Elem: FuncRef, Limits: Limits{Min: 1}}}
			m.fn("", one, none, none, repeat(n, get(0), get(0), OpCallIndirect, 0, 0))
		}, 2_000, 5_000},
		"operands below calls": {func(m *module, n int) {
			memory(m)
			m.fn("", one, one, none, repeat(n, get(0), 0x28, 0, 0), repeat(n, get(0), OpCall, 1, 0x1a), repeat(n-1, OpI32Add))
			m.fn("", one, one, none, get(0))
		}, 1_000, 3_000},
		"operands below branches": {func(m *module, n int) {
			m.fn("", one, types(I64), types(I64, I64), each(n, distinct), repeat(n/2, OpBlock, 0x40, get(0), OpBrIf, 0, OpEnd), repeat(n-1, OpI64Add))
		}, 2_000, 5_000},
		"operands below loops": {func(m *module, n int) {
			m.fn("", one, types(I64), types(I64, I64), each(n, distinct), repeat(n/10, OpLoop, 0x40, get(0), OpBrIf, 0, OpEnd), repeat(n-1, OpI64Add))
		}, 3_000, 6_000},
		"operands in many functions": {func(m *module, n int) {
			for range n {
				m.fn("", one, types(I64), types(I64, I64), each(1_000, distinct), repeat(200, OpBlock, 0x40, get(0), OpBrIf, 0, OpEnd), repeat(999, OpI64Add))
			}
		}, 15, 40},
		"addresses before branches": {func(m *module, n int) {
			memory(m)
			m.fn("", one, none, none, each(n, func(i int) []byte { return asm(get(0), i32c(int32(i)), OpI32Add, 0x28, 0, 0, 0x1a) }), repeat(n/2, OpBlock, 0x40, get(0), OpBrIf, 0, OpEnd))
		}, 2_000, 4_000},
		"globals that calls may change": {func(m *module, n int) {
			m.Globals = slices.Repeat([]Global{{GlobalType{I64, true}, asm(i64c(0), OpEnd)}}, 1_000)
			m.fn("", none, none, none, repeat(n, OpCall, 1))
			m.fn("", none, none, none)
		}, 500, 1_500},
		"calls that pass 1,000 on": {func(m *module, n int) {
			m.fn("", wide(1_000), wide(1_000), none, eachLocal(1_000, func(i int) []byte { return local(OpLocalGet, i-1) }))
			m.fn("", wide(1_000), wide(1_000), none, eachLocal(1_000, func(i int) []byte { return local(OpLocalGet, i-1) }), repeat(n, OpCall, 0))
		}, 200, 1_000},
		"blocks that pass 1,000 on": {func(m *module, n int) {
			typ := appendVarint(nil, int64(m.typ(wide(1_000), wide(1_000))))
			m.fn("", append(types(I32), wide(999)...), wide(1_000), types(I64), eachLocal(1_000, func(i int) []byte { return local(OpLocalGet, i) }), repeat(n, OpBlock, typ, get(0), OpBrIf, 0, OpEnd))
		}, 300, 2_000},
		"locals that outlive calls": {func(m *module, n int) {
			m.fn("", one, none, slices.Repeat(one, n), eachLocal(n, func(i int) []byte { return asm(get(0), local(OpLocalSet, i)) }), repeat(n, OpCall, 1), eachLocal(n, func(i int) []byte { return asm(local(OpLocalGet, i), 0x1a) }))
			m.fn("", none, none, none)
		}, 1_000, 5_000},
		"locals that a branch sets": {func(m *module, n int) {
			m.fn("", one, none, slices.Repeat(one, n), get(0), OpIf, 0x40, eachLocal(n, func(i int) []byte { return asm(get(0), local(OpLocalSet, i)) }), OpEnd, eachLocal(n, func(i int) []byte { return asm(local(OpLocalGet, i), 0x1a) }))
		}, 10_000, 30_000},
		"locals of many ways": {func(m *module, n int) {
			m.fn("", one, none, slices.Repeat(one, 100), OpBlock, 0x40, repeat(n, get(0), OpBrIf, 0), OpEnd, eachLocal(100, func(i int) []byte { return asm(local(OpLocalGet, i), 0x1a) }))
		}, 1_000, 4_000},
		"locals of many turns": {func(m *module, n int) {
			m.fn("", one, none, slices.Repeat(one, 100), OpLoop, 0x40, eachLocal(100, func(i int) []byte { return asm(local(OpLocalGet, i), 0x1a) }), repeat(n, get(0), OpBrIf, 0), OpEnd)
		}, 1_000, 4_000},
		"locals that are read far away": {func(m *module, n int) {
			m.fn("", one, none, slices.Repeat(one, 20), repeat(n, get(0), OpIf, 0x40, eachLocal(20, func(i int) []byte { return asm(local(OpLocalGet, i), 0x1a) })), repeat(n, OpEnd))
		}, 2_000, 5_000},
		"loads far away": {func(m *module, n int) {
			memory(m)
			m.fn("", one, none, none, get(0), 0x28, 0, 0, 0x1a, repeat(n, get(0), OpIf, 0x40, repeat(20, get(0), 0x28, 0, 0, 0x1a)), repeat(n, OpEnd))
		}, 1_500, 3_500},
		"locals in a hundred loops": {func(m *module, n int) {
			m.fn("", one, none, slices.Repeat(one, n), repeat(100, OpLoop, 0x40), eachLocal(n, func(i int) []byte { return asm(local(OpLocalGet, i), i32c(1), OpI32Add, local(OpLocalSet, i)) }), get(0), OpBrIf, 0, repeat(100, OpEnd))
		}, 1_000, 3_000},
		"targets of a table": {func(m *module, n int) {
			m.fn("", one, none, none, OpBlock, 0x40, get(0), OpBrTable, appendUvarint(nil, uint64(n)), make([]byte, n+1), OpEnd)
		}, 25_000, 60_000},
		"targets that carry 1,000": {func(m *module, n int) {
			idx := int(m.typ(none, wide(1_000)))
			m.fn("", one, none, none, OpBlock, appendVarint(nil, int64(idx)), repeat(1_000, i64c(1)), get(0), OpBrTable, appendUvarint(nil, uint64(n)), make([]byte, n+1), OpEnd, repeat(1_000, 0x1a))
		}, 100, 1_000},
		"bulk operations": {func(m *module, n int) {
			memory(m)
			m.fn("", one, none, none, repeat(n, get(0), get(0), get(0), 0xfc, 0x0a, 0, 0))
		}, 1_000, 4_000},
		"conversions that can trap": {func(m *module, n int) {
			m.fn("", types(F32), none, none, get(0), repeat(n, 0xa8, 0xb2), 0x1a) // i32.trunc_f32_s, f32.convert_i32_s
		}, 40_000, 60_000},
		"divisions": {func(m *module, n int) { m.fn("", one, none, none, get(0), repeat(n, get(0), 0x6d), 0x1a) }, 40_000, 80_000},
		"conversions in many functions": {func(m *module, n int) {
			for range n {
				m.fn("", types(F32), none, none, get(0), repeat(1_000, 0xa8, 0xb2), 0x1a)
			}
		}, 40, 100},
		"loads": {func(m *module, n int) { memory(m); m.fn("", one, none, none, get(0), repeat(n, 0x28, 0, 0), 0x1a) }, 80_000, 90_000},
		"stores": {func(m *module, n int) {
			memory(m)
			m.fn("", one, none, none, repeat(n, get(0), get(0), 0x36, 0, 0))
		}, 70_000, 80_000},
		"growing the memory": {func(m *module, n int) { memory(m); m.fn("", one, none, none, repeat(n, get(0), 0x40, 0, 0x1a)) }, 1_500, 4_000},
		"many functions that are slow": {func(m *module, n int) {
			for range n {
				m.fn("", one, none, none, repeat(1_000, get(0), OpIf, 0x40, OpEnd))
			}
		}, 40, 200},
	}
}

// many adds n functions of a type that do nothing.
func many(m *module, n int, typ uint32) {
	m.Functions = append(m.Functions, slices.Repeat([]uint32{typ}, n)...)
	m.Codes = append(m.Codes, slices.Repeat([]Code{{Body: []byte{OpUnreachable, OpEnd}}}, n)...)
}

func TestComplexityIsLimited(t *testing.T) {
	for name, bomb := range bombs() {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{bomb.accepted, bomb.refused} {
				var m module
				bomb.build(&m, n)
				_, _, err := Rewrite(m.Encode(), Options{Meter: true, StackBytes: maxStack, LimitComplexity: true})
				switch {
				case n == bomb.accepted && err != nil:
					t.Errorf("%d: %v", n, err)
				case n == bomb.refused && !errors.Is(err, ErrTooComplex):
					t.Errorf("%d: got %v", n, err)
				}
			}
		})
	}
}

// TestManyWaysAreNotTooComplex holds that the branches count along a way and not
// all together: decoders that a compiler generates have tens of thousands of
// them, each a few from the entry, and compile in a fraction of a second.
func TestManyWaysAreNotTooComplex(t *testing.T) {
	one := types(I32)
	repeat := func(n int, parts ...any) []byte { return bytes.Repeat(asm(parts...), n) }
	const fields, branches = 400, 25 // in each 25 fields of a message there are as many ways to fail
	for name, body := range map[string][]byte{
		"an if for each field": asm(repeat(fields,
			get(0), OpIf, 0x40, repeat(branches, get(0), OpIf, 0x40, get(0), set(1), OpEnd), OpEnd, get(1), OpIf, 0x40, OpReturn, OpEnd)),
		"a table of all fields": asm(repeat(fields+1, OpBlock, 0x40), get(0), OpBrTable, appendUvarint(nil, fields-1), targets(fields), OpEnd,
			repeat(fields, repeat(branches, get(0), OpIf, 0x40, get(0), set(1), OpEnd), OpReturn, OpEnd)),
	} {
		t.Run(name, func(t *testing.T) {
			var m module
			m.fn("", one, types(), one, body)
			bin := m.Encode()
			if _, _, err := Rewrite(bin, Options{Meter: true, StackBytes: maxStack, LimitComplexity: true}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestOneGlobalCountsOnce holds that a global that is read again and again is one value: a function
// of a policy of Kubewarden in Go reads the pointer of its stack 2,000 times among 20,000 blocks.
// What the compiler allocates is within the estimate.
func TestOneGlobalCountsOnce(t *testing.T) {
	build := func(times int) []byte {
		var m module
		m.Globals = append(m.Globals, Global{GlobalType{I32, true}, asm(i32c(0), OpEnd)})
		m.fn("", types(I32), types(), types(I32, I32), bytes.Repeat(asm(
			local(OpGlobalGet, 0), set(1), get(1), OpDrop, bytes.Repeat(asm(get(0), OpIf, 0x40, get(0), set(2), OpEnd), 4)), times))
		return m.Encode()
	}
	if _, _, err := Rewrite(build(2_000), Options{Meter: true, StackBytes: maxStack, LimitComplexity: true, CompileTime: time.Minute}); err != nil {
		t.Error(err)
	}
	bin := build(200)
	rewritten, _ := rewriteFor(t, bin, Options{Meter: true, StackBytes: maxStack})
	if estimate, allocated := estimatedBytes(t, bin), allocatedFor(t, rewritten)-allocatedFor(t, build(0)); allocated > estimate {
		t.Errorf("the estimate is %d bytes, the compiler allocates %d", estimate, allocated)
	}
}

// targets are the labels from 0 to n-1.
func targets(n int) (out []byte) {
	for i := range n {
		out = appendUvarint(out, uint64(i))
	}
	return out
}

// TestCompileTimeIsAllowed holds that the limit of the time is the caller's, and that
// of the memory is not.
func TestCompileTimeIsAllowed(t *testing.T) {
	for _, test := range []struct {
		bomb  string
		time  time.Duration
		allow bool
	}{
		{"ifs within one another", 0, false},
		{"ifs within one another", time.Second, false},
		{"ifs within one another", time.Minute, true},
		{"loops within one another", time.Millisecond, false},
		{"conversions that can trap", time.Minute, false},
	} {
		bomb := bombs()[test.bomb]
		var m module
		bomb.build(&m, bomb.refused)
		_, _, err := Rewrite(m.Encode(), Options{Meter: true, StackBytes: maxStack, LimitComplexity: true, CompileTime: test.time})
		if test.allow && err != nil || !test.allow && !errors.Is(err, ErrTooComplex) {
			t.Errorf("%s within %v: got %v", test.bomb, test.time, err)
		}
	}
}

// BenchmarkComplexity measures how long wazero compiles what is just accepted.
func BenchmarkComplexity(b *testing.B) {
	for name, bomb := range bombs() {
		b.Run(strings.ReplaceAll(name, " ", "-"), func(b *testing.B) {
			var m module
			bomb.build(&m, bomb.accepted)
			bin, _ := rewriteFor(b, m.Encode(), Options{Meter: true, StackBytes: maxStack, LimitComplexity: true})
			for b.Loop() {
				r := wazero.NewRuntime(b.Context())
				if _, err := r.CompileModule(b.Context(), bin); err != nil {
					b.Fatal(err)
				}
				_ = r.Close(b.Context())
			}
		})
	}
}

// TestOrdinaryGuestsAreNotTooComplex holds that guests of Go, TinyGo, C, Zig and
// Rust take less than a quarter of what they may.
func TestOrdinaryGuestsAreNotTooComplex(t *testing.T) {
	guests := map[string][]byte{"Go": goGuest(t), "TinyGo": tinyGoGuest(t)}
	dir, err := wazeroDir()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{
		"examples/allocation/tinygo/testdata/greet.wasm",
		"examples/basic/testdata/add.wasm",
		"imports/wasi_snapshot_preview1/testdata/cargo-wasi/wasi.wasm",
		"imports/wasi_snapshot_preview1/testdata/zig-cc/wasi.wasm",
		"imports/wasi_snapshot_preview1/testdata/tinygo/wasi.wasm",
		"internal/integration_test/bench/testdata/case.wasm",
	} {
		bin, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		guests[file] = bin
	}
	for name, bin := range guests {
		rw := &rewriter{Module: decodeFor(t, bin), opts: Options{Meter: true}, info: &Info{}}
		rw.yield = rw.imported(ExternFunc)
		if err := rw.describe(); err != nil {
			t.Fatal(err)
		}
		_, complexities, err := rw.measure()
		if err != nil {
			t.Fatal(err)
		}
		sum, worst, _ := complexityOf(complexities)
		size := 0
		for i := range rw.Codes {
			size += len(rw.Codes[i].Body)
		}
		limit := uint64(baseComplexity) + complexityPerByte*uint64(size)
		for i := range complexities {
			if n := complexities[i].memory; n > maxFunctionMemory/10 {
				t.Errorf("%s: function %d takes %d bytes of %d", name, i, n, maxFunctionMemory)
			}
		}
		if worst > maxFunctionComplexity/10 {
			t.Errorf("%s: a function takes %d of %d", name, worst, maxFunctionComplexity)
		}
		if share := fmt.Sprintf("%s, %d bytes: %d%%", name, len(bin), 100*sum/limit); sum > limit/4 {
			t.Error(share)
		} else {
			t.Log(share)
		}
	}
}
