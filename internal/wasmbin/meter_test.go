package wasmbin

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// engines are the two engines of wazero.
var engines = map[string]func() wazero.RuntimeConfig{
	"compiler":    wazero.NewRuntimeConfigCompiler,
	"interpreter": wazero.NewRuntimeConfigInterpreter,
}

// metered is an instance of a rewritten guest, with the host's side of the
// meter.
type metered struct {
	t    testing.TB
	mod  api.Module
	fuel api.MutableGlobal
	// yield is called with the fuel at each yield, and returns how much to go
	// on with or the error to end with.
	yield func(fuel int64) (int64, error)
}

func newMetered(t testing.TB, config wazero.RuntimeConfig, m *module) *metered {
	t.Helper()
	g := &metered{t: t}
	r := wazero.NewRuntimeWithConfig(t.Context(), config.WithCoreFeatures(allFeatures))
	t.Cleanup(func() { _ = r.Close(context.Background()) })
	instantiateMeter(t, r, func(_ api.Module, fuel api.MutableGlobal) {
		more, err := g.yield(int64(fuel.Get()))
		if err != nil {
			panic(err)
		}
		fuel.Set(uint64(more))
	})
	bin, _ := rewriteFor(t, m.Encode(), Options{Meter: true})
	mod, err := r.Instantiate(t.Context(), bin)
	if err != nil {
		t.Fatalf("instantiate: %v", err)
	}
	g.mod, g.fuel = mod, mod.ExportedGlobal(FuelGlobal).(api.MutableGlobal)
	return g
}

// call calls a function with a budget of fuel, and returns what it spent.
func (g *metered) call(name string, budget int64, args ...uint64) (results []uint64, spent int64, err error) {
	g.fuel.Set(uint64(budget))
	if g.yield == nil {
		g.yield = func(int64) (int64, error) { return 0, errFuel }
	}
	results, err = g.mod.ExportedFunction(name).Call(g.t.Context(), args...)
	return results, budget - int64(g.fuel.Get()), err
}

func TestFuelIsTheNumberOfInstructions(t *testing.T) {
	none := types()
	for name, test := range map[string]struct {
		build func(*module)
		args  []uint64
		want  int64
	}{
		"nothing":                       {func(m *module) { m.fn("f", none, none, none) }, nil, 0},
		"nop and empty blocks are free": {func(m *module) { m.fn("f", none, none, none, OpNop, OpBlock, 0x40, OpNop, OpEnd) }, nil, 0},
		"straight code":                 {func(m *module) { m.fn("f", none, none, none, i32c(1), i32c(2), 0x6a, 0x1a) }, nil, 4},
		"the arm that is taken": {func(m *module) {
			m.fn("f", types(I32), none, none, get(0), OpIf, 0x40, i32c(1), 0x1a, OpElse, i32c(1), i32c(1), 0x1a, 0x1a, OpEnd, i32c(1), 0x1a)
		}, []uint64{1}, 2 + 2 + 2},
		"the arm that is not taken": {func(m *module) {
			m.fn("f", types(I32), none, none, get(0), OpIf, 0x40, i32c(1), 0x1a, OpElse, i32c(1), i32c(1), 0x1a, 0x1a, OpEnd, i32c(1), 0x1a)
		}, []uint64{0}, 2 + 4 + 2},
		"a branch taken": {func(m *module) {
			m.fn("f", types(I32), none, none, OpBlock, 0x40, get(0), OpBrIf, 0, i32c(1), 0x1a, OpEnd, i32c(1), 0x1a)
		}, []uint64{1}, 2 + 2},
		"a branch not taken": {func(m *module) {
			m.fn("f", types(I32), none, none, OpBlock, 0x40, get(0), OpBrIf, 0, i32c(1), 0x1a, OpEnd, i32c(1), 0x1a)
		}, []uint64{0}, 2 + 2 + 2},
		"a return out of two blocks": {func(m *module) {
			m.fn("f", types(I32), none, none, OpBlock, 0x40, OpBlock, 0x40, get(0), OpIf, 0x40, OpReturn, OpEnd, OpEnd, i32c(1), 0x1a, OpEnd, i32c(1), 0x1a)
		}, []uint64{1}, 2 + 1},
		"dead code is free": {func(m *module) {
			m.fn("f", none, none, none, OpBlock, 0x40, OpBr, 0, OpLoop, 0x40, i32c(1), OpBrIf, 1, OpBr, 0, OpEnd, OpEnd)
		}, nil, 1},
		"ten rounds": {func(m *module) {
			m.fn("f", types(I32), none, none, OpLoop, 0x40, get(0), i32c(1), 0x6b, OpLocalTee, 0, OpBrIf, 0, OpEnd, i32c(1), 0x1a)
		}, []uint64{10}, 10*5 + 2},
		"ten rounds with a parameter": {func(m *module) {
			loop := m.typ(types(I32), types(I32))
			m.fn("f", types(I32), types(I32), none, get(0), OpLoop, int(loop), i32c(1), 0x6b, OpLocalTee, 0, get(0), OpBrIf, 0, OpEnd)
		}, []uint64{10}, 1 + 10*5},
		"a call": {func(m *module) {
			m.fn("f", none, none, none, OpCall, 1, i32c(1), 0x1a)
			m.fn("", none, none, none, i32c(1), 0x1a)
		}, nil, 3 + 2},
		"a case of a table": {func(m *module) {
			m.fn("f", types(I32), none, none, OpBlock, 0x40, OpBlock, 0x40, OpBlock, 0x40, get(0), OpBrTable, 2, 0, 1, 2, OpEnd,
				i32c(1), 0x1a, OpBr, 1, OpEnd, i32c(1), i32c(1), 0x1a, 0x1a, OpEnd)
		}, []uint64{1}, 2 + 4},
		"a fill, by length": {func(m *module) {
			m.Memories = []Limits{{Min: 1}}
			m.fn("f", types(I32), none, none, i32c(0), i32c(7), get(0), prefixMisc, 0x0b, 0)
		}, []uint64{8000}, 4 + 8000/BytesPerFuel},
		"a fill of a length that stands in the code": {func(m *module) {
			m.Memories = []Limits{{Min: 1}}
			m.fn("f", none, none, none, i32c(0), i32c(7), i32c(88), prefixMisc, 0x0b, 0)
		}, nil, 4 + 88/BytesPerFuel},
		"a long fill of a length that stands in the code": {func(m *module) {
			m.Memories = []Limits{{Min: 1}}
			m.fn("f", none, none, none, i32c(0), i32c(7), i32c(8000), prefixMisc, 0x0b, 0)
		}, nil, 4 + 8000/BytesPerFuel},
		"a copy whose length is one of two": {func(m *module) {
			m.Memories = []Limits{{Min: 1}}
			m.fn("f", types(I32), none, none, i32c(0), i32c(7), get(0), OpIf, int(I32), i32c(16), OpElse, i32c(800), OpEnd, prefixMisc, 0x0a, 0, 0)
		}, []uint64{0}, 5 + 800/BytesPerFuel + 1},
		"a growth, by pages": {func(m *module) {
			m.Memories = []Limits{{Min: 1, Max: 10, HasMax: true}}
			m.fn("f", types(I32), types(I32), none, get(0), OpMemoryGrow, 0)
		}, []uint64{3}, 2 + 3*FuelPerPage},
		"a growth that is out of the question": {func(m *module) {
			m.Memories = []Limits{{Min: 1, Max: 10, HasMax: true}}
			m.fn("f", types(I32), types(I32), none, get(0), OpMemoryGrow, 0)
		}, []uint64{math.MaxUint32}, 2 + 10*FuelPerPage},
		"a growth of a table, by elements": {func(m *module) {
			m.Tables = []Table{{Elem: FuncRef, Limits: Limits{Min: 1, Max: 100, HasMax: true}}}
			m.fn("f", types(I32), types(I32), none, 0xd0, 0x70, get(0), prefixMisc, 0x0f, 0)
		}, []uint64{50}, 3 + 50},
	} {
		t.Run(name, func(t *testing.T) {
			var m module
			test.build(&m)
			for engine, config := range engines {
				g := newMetered(t, config(), &m)
				for range 2 {
					if _, spent, err := g.call("f", 1<<40, test.args...); spent != test.want || err != nil {
						t.Errorf("%s: spent %d, %v, want %d", engine, spent, err, test.want)
					}
				}
			}
		})
	}
}

// endless are modules whose function "f" never returns, and whose "ok" returns
// 7.
func endless() map[string]*module {
	none := types()
	build := func(f func(*module)) *module {
		m := &module{}
		f(m)
		m.fn("ok", none, types(I32), none, i32c(7))
		return m
	}
	table := func(m *module, functions ...uint32) {
		n := uint32(len(functions))
		m.Tables = []Table{{Elem: FuncRef, Limits: Limits{Min: n, Max: n, HasMax: true}}}
		m.Elements = []Element{{Offset: asm(i32c(0), OpEnd), Funcs: functions}}
	}
	return map[string]*module{
		"loop": build(func(m *module) { m.fn("f", none, none, none, OpLoop, 0x40, OpBr, 0, OpEnd) }),
		"loop with a parameter": build(func(m *module) {
			m.fn("f", none, none, none, i32c(1), OpLoop, u(m.typ(types(I32), none)), OpBr, 0, OpEnd)
		}),
		"loop by table": build(func(m *module) {
			m.fn("f", none, none, none, OpLoop, 0x40, OpBlock, 0x40, i32c(0), OpBrTable, 1, 1, 0, OpEnd, OpEnd)
		}),
		"loop of calls to small functions": build(func(m *module) {
			m.fn("f", none, none, none, OpLoop, 0x40, OpCall, 1, OpBr, 0, OpEnd)
			m.fn("", none, none, none)
		}),
		"loop in an arm": build(func(m *module) {
			m.fn("f", none, none, none, i32c(1), OpIf, 0x40, OpLoop, 0x40, OpBr, 0, OpEnd, OpEnd)
		}),
		"loop that always throws and catches": build(func(m *module) {
			m.Tags = []uint32{m.typ(none, none)}
			m.fn("f", none, none, none, OpLoop, 0x40, OpTryTable, 0x40, 1, 0, 0, 0, OpThrow, 0, OpEnd, OpEnd)
		}),
		"loop that catches all": build(func(m *module) {
			m.Tags = []uint32{m.typ(none, none)}
			m.fn("f", none, none, none, OpLoop, 0x40, OpBlock, 0x40, OpTryTable, 0x40, 1, 2, 0, OpCall, 1, OpEnd, OpEnd, OpBr, 0, OpEnd)
			m.fn("", none, none, none, OpThrow, 0)
		}),
		"loop that would catch the host's error": build(func(m *module) {
			m.fn("f", none, none, none, OpLoop, 0x40, OpBlock, 0x40, OpTryTable, 0x40, 1, 2, 0,
				OpLoop, 0x40, OpBr, 0, OpEnd, OpEnd, OpEnd, OpBr, 0, OpEnd)
		}),
		"loop of fills": build(func(m *module) {
			m.Memories = []Limits{{Min: 1}}
			m.fn("f", none, none, none, OpLoop, 0x40, i32c(0), i32c(0), i32c(60_000), prefixMisc, 0x0b, 0, OpBr, 0, OpEnd)
		}),
		"tail call": build(func(m *module) { m.fn("f", none, none, none, OpReturnCall, 0) }),
		"tail call of each other": build(func(m *module) {
			m.fn("f", none, none, none, OpReturnCall, 1)
			m.fn("", none, none, none, OpReturnCall, 0)
		}),
		"tail call by table": build(func(m *module) {
			m.fn("f", none, none, none, i32c(0), OpReturnCallIndirect, 0, 0)
			table(m, 0)
		}),
		"tail call by reference": build(func(m *module) {
			f := m.fn("f", none, none, none, OpRefFunc, 0, OpReturnCallRef, 0)
			m.Elements = []Element{{Flags: 3, Funcs: []uint32{f}}}
		}),
		"recursion": build(func(m *module) { m.fn("f", none, none, none, OpCall, 0) }),
		"recursion of each other": build(func(m *module) {
			m.fn("f", none, none, none, OpCall, 1)
			m.fn("", none, none, none, OpCall, 0)
		}),
		"recursion by table": build(func(m *module) {
			m.fn("f", none, none, none, i32c(0), OpCallIndirect, 0, 0)
			table(m, 0)
		}),
		"recursion by reference": build(func(m *module) {
			f := m.fn("f", none, none, none, OpRefFunc, 0, OpCallRef, 0)
			m.Elements = []Element{{Flags: 3, Funcs: []uint32{f}}}
		}),
		"fan of calls": build(func(m *module) { // 4^30 calls, no recursion
			m.fn("f", none, none, none, OpCall, 1)
			for i := 1; i < 31; i++ {
				m.fn("", none, none, none, OpCall, i+1, OpCall, i+1, OpCall, i+1, OpCall, i+1)
			}
			m.fn("", none, none, none)
		}),
		"fan of calls to a big leaf": build(func(m *module) {
			m.fn("f", none, none, none, slices.Repeat([]any{OpCall, 1}, 50_000)...)
			m.fn("", none, none, none, slices.Repeat([]any{i32c(1), 0x1a}, 50_000)...)
		}),
	}
}

func TestEveryEndlessGuestYields(t *testing.T) {
	for name, m := range endless() {
		for engine, config := range engines {
			t.Run(name+"/"+engine, func(t *testing.T) {
				g := newMetered(t, config(), m)
				// Recursion is cut off long before the stack is full.
				var seen []int64
				g.yield = func(fuel int64) (int64, error) {
					if seen = append(seen, fuel); len(seen) == 10 {
						return 0, errFuel
					}
					return 100, nil
				}
				for range 2 {
					seen = nil
					if _, _, err := g.call("f", 100); !errors.Is(err, errFuel) {
						t.Fatalf("f: %v, want %v", err, errFuel)
					}
					for _, fuel := range seen {
						if fuel >= 0 || fuel < -100_000 {
							t.Errorf("yielded with %d fuel", fuel)
						}
					}
					results, _, err := g.call("ok", 100)
					if diff := cmp.Diff([]uint64{7}, results); diff != "" || err != nil {
						t.Errorf("ok afterwards: %v, %v", results, err)
					}
				}
			})
		}
	}
}

func TestDeadlineEndsAnEndlessLoop(t *testing.T) {
	g := newMetered(t, wazero.NewRuntimeConfigCompiler(), endless()["loop"])
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	yields := 0
	g.yield = func(int64) (int64, error) {
		yields++
		return 1_000_000, ctx.Err()
	}
	_, _, err := g.call("f", 0)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("f: %v, want %v", err, context.DeadlineExceeded)
	}
	t.Logf("%d yields of 1,000,000 fuel in 20 ms", yields)
}

func TestAGuestWithoutFuelYieldsUntilItHasSome(t *testing.T) {
	g := newMetered(t, wazero.NewRuntimeConfigCompiler(), func() *module {
		m := &module{}
		m.fn("f", nil, types(I32), nil, OpCall, 1)
		m.fn("", nil, types(I32), nil, i32c(7))
		return m
	}())
	yields := 0
	g.yield = func(int64) (int64, error) {
		if yields++; yields < 5 {
			return -1, nil
		}
		return 10, nil
	}
	if results, _, err := g.call("f", -1); err != nil || results[0] != 7 || yields != 5 {
		t.Errorf("f: %v, %v after %d yields, want 7 after 5", results, err, yields)
	}
}

func TestBulkOperationsAreChargedBeforeTheyRun(t *testing.T) {
	ref := []byte{0xd0, 0x70}
	for name, body := range map[string][]any{
		"memory.fill": {i32c(0), i32c(1), i32c(-1), prefixMisc, 0x0b, 0},
		"memory.copy": {i32c(0), i32c(1), i32c(-1), prefixMisc, 0x0a, 0, 0},
		"memory.init": {i32c(0), i32c(0), i32c(-1), prefixMisc, 0x08, 0, 0},
		"table.fill":  {i32c(0), ref, i32c(-1), prefixMisc, 0x11, 0},
		"table.copy":  {i32c(0), i32c(1), i32c(-1), prefixMisc, 0x0e, 0, 0},
		"table.init":  {i32c(0), i32c(0), i32c(-1), prefixMisc, 0x0c, 0, 0},
		"table.grow":  {ref, i32c(-1), prefixMisc, 0x0f, 0, 0x1a},
		"memory.grow": {i32c(-1), OpMemoryGrow, 0, 0x1a},
	} {
		t.Run(name, func(t *testing.T) {
			var m module
			count := uint32(1)
			m.Memories = []Limits{{Min: 1}}
			m.Tables = []Table{{Elem: FuncRef, Limits: Limits{Min: 10}}}
			m.Datas, m.DataCount = []Data{{Flags: 1, Init: []byte("data")}}, &count
			m.Elements = []Element{{Flags: 1, Funcs: []uint32{0}}}
			m.fn("f", nil, nil, types(I64, I32), body...)
			for engine, config := range engines {
				g := newMetered(t, config(), &m)
				var seen int64
				g.yield = func(fuel int64) (int64, error) { seen = fuel; return 0, errFuel }
				// 4 GiB of bytes, four billion elements, or the 65536 pages
				// that fit into a memory: nothing that ran would have passed
				// without a trap or a -1.
				_, _, err := g.call("f", 1000)
				if !errors.Is(err, errFuel) || seen > -math.MaxUint32/BytesPerFuel+2000 {
					t.Errorf("%s: %v with %d fuel", engine, err, seen)
				}
				g.yield = func(fuel int64) (int64, error) { return 1000, nil }
				if _, _, err = g.call("f", 1000); err != nil && !strings.Contains(err.Error(), "out of bounds") &&
					!strings.Contains(err.Error(), "invalid table access") {
					t.Errorf("%s: %v, want a trap or nothing", engine, err)
				}
			}
		})
	}
}

func TestMeteringDoesNotAllocate(t *testing.T) {
	var m module
	m.fn("f", types(I32), nil, nil, OpLoop, 0x40, get(0), i32c(1), 0x6b, OpLocalTee, 0, OpBrIf, 0, OpEnd)
	g := newMetered(t, wazero.NewRuntimeConfigCompiler(), &m)
	fn, stack, ctx := g.mod.ExportedFunction("f"), make([]uint64, 1), t.Context()
	n := testing.AllocsPerRun(100, func() {
		g.fuel.Set(1000)
		stack[0] = 100
		if err := fn.CallWithStack(ctx, stack); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("a call allocates %v times", n)
	}
}

func TestBodiesThatAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		body []any
		want string
		err  error
	}{
		"the fuel global, read":     {[]any{OpGlobalGet, 1, 0x1a}, "global 1, there are 1", ErrIndex},
		"the fuel global, written":  {[]any{i64c(1 << 60), OpGlobalSet, 1}, "global 1, there are 1", ErrIndex},
		"a function too many":       {[]any{OpCall, 1}, "function 1, there are 1", ErrIndex},
		"a reference too far":       {[]any{OpRefFunc, 1, 0x1a}, "function 1, there are 1", ErrIndex},
		"the local of the length":   {[]any{get(0), 0x1a}, "local 0, there are 0", ErrIndex},
		"the type of yield":         {[]any{i32c(0), OpCallIndirect, 1, 0}, "type 1, there are 1", ErrIndex},
		"a null of the yield type":  {[]any{0xd0, 1, 0x1a}, "type 1, there are 1", ErrIndex},
		"a block of the yield type": {[]any{OpBlock, 1, OpEnd}, "type 1, there are 1", ErrIndex},
		"a label too far":           {[]any{OpBr, 1}, "label 1, there are 1", ErrIndex},
		"a second memory":           {[]any{i32c(1), OpMemoryGrow, 1, 0x1a}, "several memories", ErrUnsupported},
		"an end too many":           {[]any{OpEnd}, "want the end of the body", nil},
		"an end too few":            {[]any{OpBlock, 0x40}, "want the end of 1 blocks", nil},
		"an old exception":          {[]any{0x06, 0x40, OpEnd}, "unsupported feature: exceptions", ErrUnsupported},
		"relaxed vectors":           {[]any{prefixVec, 0x80, 0x02}, "unsupported feature: relaxed SIMD", ErrUnsupported},
		// wazero would read i64x2.eq and unreachable where LEB128 says
		// v128.load32_lane.
		"a padded vector opcode": {[]any{prefixVec, 0xd6, 0x00}, "unknown instruction 0xfd", nil},
	} {
		t.Run(name, func(t *testing.T) {
			var m module
			m.Globals = []Global{{GlobalType{I64, true}, asm(i64c(0), OpEnd)}}
			m.fn("f", nil, nil, nil, test.body...)
			_, _, err := Rewrite(m.Encode(), Options{Meter: true})
			var de *DecodeError
			if !errors.As(err, &de) || de.Section != SectionCode || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("Rewrite: %v, want a DecodeError of the code section with %q", err, test.want)
			}
			if test.err != nil && !errors.Is(err, test.err) {
				t.Errorf("Rewrite: %v, want %v", err, test.err)
			}
		})
	}
}

// ExampleRewrite shows the host's side: fuel is granted in slices, and between
// them the host looks at its budget.
func ExampleRewrite() {
	ctx := context.Background()
	var m module
	m.fn("spin", nil, nil, nil, OpLoop, 0x40, OpBr, 0, OpEnd)
	bin, _, err := Rewrite(m.Encode(), Options{Meter: true, MaxMemoryPages: 256})
	if err != nil {
		panic(err)
	}
	r := wazero.NewRuntime(ctx)
	defer r.Close(ctx)
	const slice = 1_000_000
	budget := int64(5 * slice)
	_, err = r.NewHostModuleBuilder(YieldModule).NewFunctionBuilder().WithGoModuleFunction(
		api.GoModuleFunc(func(_ context.Context, mod api.Module, _ []uint64) {
			fuel := mod.ExportedGlobal(FuelGlobal).(api.MutableGlobal)
			if budget -= slice; budget <= 0 {
				panic(errors.New("out of fuel"))
			}
			fuel.Set(uint64(int64(fuel.Get()) + slice)) // what was overdrawn is taken from the next slice
		}), nil, nil).Export(YieldName).Instantiate(ctx)
	if err != nil {
		panic(err)
	}
	mod, err := r.Instantiate(ctx, bin)
	if err != nil {
		panic(err)
	}
	_, err = mod.ExportedFunction("spin").Call(ctx)
	line, _, _ := strings.Cut(err.Error(), "\n")
	fmt.Println(line)
	// Output: out of fuel (recovered by wazero)
}
