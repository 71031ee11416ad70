package wasmbin

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero/api"
)

// structured writes random structured code: blocks, loops and ifs in one another, and
// branches, conditional and not, to any of them. Local 0 is the result, by whose bits
// it branches; local 1 counts down in each round of a loop, so that it ends.
type structured struct {
	r *rand.Rand
	// loops are the frames that are open, and whether each is a loop; the first is the
	// function.
	loops []bool
}

func (g *structured) work() []byte {
	return asm(get(0), i64c(g.r.Int64N(1<<40)), []int{OpI64Add, OpI64Sub, 0x7e, 0x85}[g.r.IntN(4)], set(0))
}

func (g *structured) condition() []byte {
	return asm(get(0), i64c(g.r.Int64N(60)), OpI64ShrU, OpI32WrapI64, i32c(1+g.r.Int32N(3)), OpI32And)
}

// branch is a br or br_if to a block, or a return.
func (g *structured) branch(op int) []byte {
	if label := g.r.IntN(len(g.loops)); label < len(g.loops)-1 {
		return asm(op, u(uint32(label)))
	}
	if op == OpBrIf {
		return asm(OpIf, BlockTypeEmpty, get(0), OpReturn, OpEnd)
	}
	return asm(get(0), OpReturn)
}

func (g *structured) within(loop bool, begin []byte) []byte {
	g.loops = append(g.loops, loop)
	code := asm(begin, g.statements())
	g.loops = g.loops[:len(g.loops)-1]
	return code
}

func (g *structured) statements() (code []byte) {
	for range 1 + g.r.IntN(5) {
		code = append(code, g.statement()...)
	}
	return code
}

func (g *structured) statement() []byte {
	n := g.r.IntN(12)
	if len(g.loops) > 6 {
		n %= 5
	}
	switch n {
	case 0, 1:
		return g.work()
	case 2:
		return asm(g.condition(), g.branch(OpBrIf))
	case 3:
		return asm(g.condition(), OpIf, BlockTypeEmpty, g.leaving(), OpEnd)
	case 4:
		if g.r.IntN(4) == 0 {
			return g.branch(OpBr)
		}
		return g.work()
	case 5, 6:
		return asm(OpBlock, BlockTypeEmpty, g.within(false, nil), OpEnd)
	case 7, 8:
		return asm(OpLoop, BlockTypeEmpty, g.within(true, asm(get(1), i32c(1), OpI32Sub, OpLocalTee, 1, OpI32Eqz, OpIf, BlockTypeEmpty, get(0), OpReturn, OpEnd)),
			OpEnd)
	case 9:
		return asm(g.condition(), OpIf, BlockTypeEmpty, g.within(false, nil), OpEnd)
	case 10:
		return asm(g.condition(), OpIf, BlockTypeEmpty, g.within(false, nil), OpElse, g.within(false, nil), OpEnd)
	default:
		return asm(g.condition(), OpIf, int(I64), get(0), OpElse, i64c(7), OpEnd, set(0))
	}
}

// leaving is what is in an if that does nothing but leave.
func (g *structured) leaving() []byte {
	g.loops = append(g.loops, false)
	defer func() { g.loops = g.loops[:len(g.loops)-1] }()
	return asm(g.work(), g.branch(OpBr))
}

// TestFuelOfRandomStructuredCode runs random structured code: what it spends must be what
// it spends with a charge in front of each instruction.
func TestFuelOfRandomStructuredCode(t *testing.T) {
	for seed := range uint64(500) {
		g := &structured{r: rand.New(rand.NewPCG(seed, 2)), loops: []bool{false}}
		var m module
		m.fn("f", types(I64, I32), types(I64), nil, g.statements(), g.statements(), get(0))
		bin := m.Encode()
		rewritten, _ := rewriteFor(t, bin, Options{Meter: true})
		each, err := countEach(bin)
		if err != nil {
			t.Fatal(err)
		}
		plain := instance(t, engines["interpreter"](), bin).ExportedFunction("f")
		for _, engine := range []string{"interpreter", "compiler"} {
			if engine == "compiler" && seed%8 != 0 {
				continue
			}
			got, want := instance(t, engines[engine](), rewritten), instance(t, engines["interpreter"](), each)
			for _, x := range []uint64{0, 1, 0x123456789abcdef, 1<<64 - 1, seed} {
				result, err := plain.Call(t.Context(), x, 40)
				if err != nil {
					t.Fatal(err)
				}
				type outcome struct {
					Results []uint64
					Fuel    int64
				}
				var outcomes [2]outcome
				for i, mod := range []api.Module{want, got} {
					fuel := mod.ExportedGlobal(FuelGlobal).(api.MutableGlobal)
					fuel.Set(1 << 40)
					results, err := mod.ExportedFunction("f").Call(t.Context(), x, 40)
					if err != nil {
						t.Fatal(err)
					}
					outcomes[i] = outcome{results, 1<<40 - int64(fuel.Get())}
				}
				if diff := cmp.Diff(result, outcomes[1].Results); diff != "" {
					t.Errorf("seed %d, %#x: plain -, rewritten +\n%s", seed, x, diff)
				}
				if diff := cmp.Diff(outcomes[0], outcomes[1]); diff != "" {
					t.Errorf("seed %d, %#x, %s: each instruction charged -, rewritten +\n%s", seed, x, engine, diff)
				}
			}
		}
		if t.Failed() {
			t.FailNow()
		}
	}
}
