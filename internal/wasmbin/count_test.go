package wasmbin

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// TestFunctionsThatCountTheirFuel has functions with so many branches that they count in a
// local, and do between them what needs the fuel in the global. What they spend must be the
// number of instructions that ran, and what a host function takes, on both engines; the host
// gives little at a time. A call of env.take takes 1,000.
func TestFunctionsThatCountTheirFuel(t *testing.T) {
	const take, callee = 0, 1
	branches := asm(get(0), OpIf, BlockTypeEmpty, get(1), OpDrop, OpEnd, get(1), OpIf, BlockTypeEmpty, get(0), OpDrop, OpElse, get(0), get(1), OpDrop, OpDrop, OpEnd)
	v := int(I32)
	for name, test := range map[string]struct {
		body []byte
		want int64 // that the host functions take
		trap string
		// loses is set if the trap does not save the count.
		loses bool
	}{
		"a call of the host":                   {asm(OpCall, take), 1000, "", false},
		"a call that calls the host":           {asm(get(0), get(1), OpCall, callee, OpDrop), 1000, "", false},
		"calls in a loop":                      {asm(OpLoop, BlockTypeEmpty, OpCall, take, branches, get(1), i32c(1), OpI32Sub, OpLocalTee, 1, OpBrIf, 0, OpEnd), 5000, "", false},
		"an indirect call":                     {asm(get(0), get(1), i32c(0), OpCallIndirect, 1, 0, OpDrop), 1000, "", false},
		"a call by reference":                  {asm(get(0), get(1), OpRefFunc, callee, OpCallRef, 1, OpDrop), 1000, "", false},
		"a call in tail position":              {asm(get(0), get(1), OpReturnCall, callee), 1000, "", false},
		"an indirect one":                      {asm(get(0), get(1), i32c(0), OpReturnCallIndirect, 1, 0), 1000, "", false},
		"one by reference":                     {asm(get(0), get(1), OpRefFunc, callee, OpReturnCallRef, 1), 1000, "", false},
		"a return":                             {asm(i32c(1), OpReturn), 0, "", false},
		"a return within blocks":               {asm(OpBlock, BlockTypeEmpty, get(0), OpIf, BlockTypeEmpty, i32c(1), OpReturn, OpEnd, OpEnd), 0, "", false},
		"a branch out of the function":         {asm(OpBlock, BlockTypeEmpty, i32c(1), OpBr, 1, OpEnd), 0, "", false},
		"one that is taken":                    {asm(OpBlock, v, i32c(1), get(0), OpBrIf, 1, OpEnd, OpDrop, branches), 0, "", false},
		"one that is not taken":                {asm(OpBlock, v, i32c(1), get(0), OpI32Eqz, OpBrIf, 1, OpEnd, OpDrop, branches), 0, "", false},
		"one by a table":                       {asm(OpBlock, v, i32c(1), get(0), OpBrTable, 2, 0, 1, 0, OpEnd, OpDrop, branches), 0, "", false},
		"a loop":                               {asm(OpLoop, BlockTypeEmpty, branches, get(1), i32c(1), OpI32Sub, OpLocalTee, 1, OpBrIf, 0, OpEnd), 0, "", false},
		"a loop that takes a parameter":        {asm(get(1), OpLoop, 2, OpLocalSet, 1, branches, get(1), i32c(1), OpI32Sub, OpLocalTee, 1, get(1), OpBrIf, 0, OpDrop, OpEnd), 0, "", false},
		"a memory that grows":                  {asm(get(0), OpMemoryGrow, 0, OpDrop), 0, "", false},
		"bytes that are filled":                {asm(i32c(0), i32c(7), get(1), i32c(3), OpI32Mul, prefixMisc, 0x0b, 0), 0, "", false},
		"bytes that are filled piece by piece": {asm(i32c(0), i32c(7), get(1), i32c(500_000), OpI32Mul, prefixMisc, 0x0b, 0), 0, "", false},
		"a trap by itself":                     {asm(OpUnreachable), 0, "unreachable", false},
		"a trap of what it calls":              {asm(get(0), i32c(0), OpCall, callee, OpDrop), 1000, "unreachable", false},
		"a trap of an access after a call":     {asm(OpCall, take, i32c(-1), memarg(OpI32Load, 0), OpDrop), 1000, "out of bounds", true},
	} {
		t.Run(name, func(t *testing.T) {
			m := &module{}
			m.Memories = []Limits{{Min: 64, Max: 100, HasMax: true}}
			m.Imports = []Import{{Module: "env", Name: "take", Kind: ExternFunc, Type: m.typ(nil, nil)}}
			m.Tables = []Table{{Limits: Limits{Min: 1}, Elem: FuncRef}}
			two, one := types(I32, I32), types(I32)
			m.typ(two, one)
			m.typ(one, nil)
			m.fn("", two, one, nil, branches, OpCall, take, branches, get(1), OpI32Eqz, OpIf, BlockTypeEmpty, OpUnreachable, OpEnd, i32c(4))
			m.fn("f", two, one, nil, branches, branches, test.body, branches, branches, i32c(3))
			m.Elements = []Element{{Offset: asm(i32c(0), OpEnd), Funcs: []uint32{callee}}}
			bin := m.Encode()
			each, err := countEach(bin)
			if err != nil {
				t.Fatal(err)
			}
			rewritten, _ := rewriteFor(t, bin, Options{Meter: true, StackBytes: 1 << 20})
			if !bytes.Contains(rewritten, []byte{1, byte(I64)}) {
				t.Error("the function does not count its fuel in a local")
			}
			spent := map[string]int64{}
			for world, bin := range map[string][]byte{"rewritten": rewritten, "each instruction counted": each} {
				for engine, config := range engines {
					for _, grant := range []int64{20, 1 << 40} {
						n, err := spentBy(t, config(), bin, grant)
						if (err != nil) != (test.trap != "") || err != nil && !strings.Contains(err.Error(), test.trap) {
							t.Fatalf("%s, %s: %v", world, engine, err)
						}
						spent[fmt.Sprintf("%s, %s, %d at a time", world, engine, grant)] = n
					}
				}
			}
			want := spent[fmt.Sprintf("each instruction counted, interpreter, %d at a time", 1<<40)]
			for world, n := range spent {
				// A trap leaves the rest of straight code charged. One of an access loses what
				// the function has counted by then.
				if n != want && test.trap == "" || n < want && !test.loses || n < test.want {
					t.Errorf("%s: %d fuel, want %d", world, n, want)
				}
			}
		})
	}
}

// spentBy returns what a call of f spends that gets so much at a time. A call of env.take takes
// 1,000 from the global, as the host does for its work.
func spentBy(t *testing.T, config wazero.RuntimeConfig, bin []byte, grant int64) (int64, error) {
	r := wazero.NewRuntimeWithConfig(t.Context(), config.WithCoreFeatures(allFeatures))
	defer r.Close(t.Context())
	granted := grant
	instantiateMeter(t, r, func(_ api.Module, fuel api.MutableGlobal) {
		left := int64(fuel.Get())
		granted += grant - min(left, 0)
		fuel.Set(uint64(max(left, 0) + grant))
	})
	_, err := r.NewHostModuleBuilder("env").NewFunctionBuilder().
		WithGoModuleFunction(api.GoModuleFunc(func(_ context.Context, mod api.Module, _ []uint64) {
			fuel := mod.ExportedGlobal(FuelGlobal).(api.MutableGlobal)
			fuel.Set(fuel.Get() - 1000)
		}), nil, nil).Export("take").Instantiate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mod, err := r.Instantiate(t.Context(), bin)
	if err != nil {
		t.Fatal(err)
	}
	fuel := mod.ExportedGlobal(FuelGlobal).(api.MutableGlobal)
	fuel.Set(uint64(grant))
	_, err = mod.ExportedFunction("f").Call(t.Context(), 1, 5)
	return granted - int64(fuel.Get()), err
}
