package gowasm_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero/api"

	"github.com/kubewasm/kubewasm/internal/gowasm"
	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// equality is Go's comparison of strings.
func equality() wasmbin.Code { return wasmbin.Code{Body: bytes.Clone(gowasm.EqualBody)} }

// TestEqualStrings compares strings of each length, up to the end of the memory, that differ
// in each byte and in none.
func TestEqualStrings(t *testing.T) {
	const page, longest = 1 << 16, 33
	call := map[string]func(x, y, n uint64) uint64{}
	var spent [2]int64
	for i, engine := range []string{"compiler", "interpreter"} {
		bin, _ := rewrite(t, moduleOf(gowasm.EqualType, equality()), true)
		mod := instance(t, engines[engine](), bin)
		memory, _ := mod.Memory().Read(0, page)
		f := mod.ExportedFunction("f0")
		call[engine] = func(x, y, n uint64) uint64 {
			before := fuelOf(mod)
			results, err := f.Call(t.Context(), x, y, n)
			if err != nil {
				t.Fatalf("%s, %d bytes at %d and %d: %v", engine, n, x, y, err)
			}
			spent[i] += before - fuelOf(mod)
			return results[0]
		}
		for n := range longest {
			for _, at := range []int{16, page - n} {
				for i := range n {
					memory[1024+i], memory[at+i] = byte(37*i), byte(37*i)
				}
				x, y := uint64(1024), uint64(at)
				for _, same := range [][2]uint64{{x, y}, {y, x}, {x, x}, {y, y}} {
					if got := call[engine](same[0], same[1], uint64(n)); got != 1 {
						t.Errorf("%s, %d equal bytes at %d and %d: %d", engine, n, same[0], same[1], got)
					}
				}
				for i := range n {
					memory[at+i] ^= 0x80
					if got := call[engine](x, y, uint64(n)); got != 0 {
						t.Errorf("%s, %d bytes of which byte %d differs: %d", engine, n, i, got)
					}
					memory[at+i] ^= 0x80
				}
			}
		}
	}
	if spent[0] != spent[1] {
		t.Errorf("the engines spend %v", spent)
	}
}

// TestEqualStringsAreCheap holds that a comparison takes a fraction of the fuel.
func TestEqualStringsAreCheap(t *testing.T) {
	var spent [2]int64
	for i, on := range []bool{false, true} {
		bin, _ := rewrite(t, moduleOf(gowasm.EqualType, equality()), on)
		mod := instance(t, engines["interpreter"](), bin)
		text := strings.Repeat("topology.kubernetes.io/zone", 10)
		for _, at := range []uint32{0, 1024} {
			mod.Memory().WriteString(at, text)
		}
		before := fuelOf(mod)
		if _, err := mod.ExportedFunction("f0").Call(t.Context(), 0, 1024, api.EncodeI64(int64(len(text)))); err != nil {
			t.Fatal(err)
		}
		spent[i] = before - fuelOf(mod)
	}
	if spent[1]*5 > spent[0] {
		t.Errorf("%d fuel with the pass, %d without", spent[1], spent[0])
	}
}

// TestOtherComparisonsAreLeftAlone has functions that differ in one thing from Go's.
func TestOtherComparisonsAreLeftAlone(t *testing.T) {
	for name, change := range map[string]func(*wasmbin.FuncType, *wasmbin.Code){
		"another parameter": func(t *wasmbin.FuncType, _ *wasmbin.Code) { t.Params = []wasmbin.ValType{i64, i64, i32} },
		"more results":      func(t *wasmbin.FuncType, _ *wasmbin.Code) { t.Results = []wasmbin.ValType{i64, i64} },
		"a local": func(_ *wasmbin.FuncType, c *wasmbin.Code) {
			c.LocalGroups, c.NumLocals, c.Locals = 1, 1, []byte{1, byte(i64)}
		},
		"another constant": func(_ *wasmbin.FuncType, c *wasmbin.Code) { c.Body[8] = 2 },
		"more code": func(_ *wasmbin.FuncType, c *wasmbin.Code) {
			c.Body = slices.Insert(c.Body, len(c.Body)-1, byte(wasmbin.OpUnreachable))
		},
		"less code": func(_ *wasmbin.FuncType, c *wasmbin.Code) {
			c.Body = slices.Delete(c.Body, len(c.Body)-2, len(c.Body)-1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			typ, c := gowasm.EqualType, equality()
			if out := optimized(t, typ, c); bytes.Equal(out, c.Body) {
				t.Fatal("Go's own is left alone")
			}
			if change(&typ, &c); !bytes.Equal(optimized(t, typ, c), c.Body) {
				t.Error("it is changed")
			}
		})
	}
}
