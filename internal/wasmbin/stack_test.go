package wasmbin

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

var errStack = errors.New("out of stack")

// stackOf runs f of a module with so much stack, and returns its error and how
// deep the counting global says that it came.
func stackOf(t *testing.T, m *module, stack int32, args ...uint64) (depth uint64, left int32, err error) {
	t.Helper()
	return stackWith(t, m, Options{Meter: true, StackBytes: stack}, args...)
}

func stackWith(t *testing.T, m *module, opts Options, args ...uint64) (depth uint64, left int32, err error) {
	t.Helper()
	r := wazero.NewRuntimeWithConfig(t.Context(), wazero.NewRuntimeConfigCompiler().WithCoreFeatures(allFeatures))
	t.Cleanup(func() { _ = r.Close(context.Background()) })
	instantiateMeter(t, r, func(mod api.Module, fuel api.MutableGlobal) {
		if int32(mod.ExportedGlobal(StackGlobal).Get()) < 0 {
			panic(errStack)
		}
		fuel.Set(1 << 40)
	})
	bin, _ := rewriteFor(t, m.Encode(), opts)
	mod, err := r.Instantiate(t.Context(), bin)
	if err != nil {
		t.Fatalf("instantiate: %v", err)
	}
	_, err = mod.ExportedFunction("f").Call(t.Context(), args...)
	return mod.ExportedGlobal("depth").Get(), int32(mod.ExportedGlobal(StackGlobal).Get()), err
}

// deeper counts the depth in the exported global.
func deeper() []byte { return asm(OpGlobalGet, 0, i32c(1), OpI32Add, OpGlobalSet, 0) }

func countingModule() *module {
	m := &module{}
	m.Globals = []Global{{GlobalType{I32, true}, append(i32c(0), OpEnd)}}
	m.Exports = []Export{{"depth", ExternGlobal, 0}}
	return m
}

func TestStackEndsEveryCircleOfCalls(t *testing.T) {
	const stack = 1 << 20
	none := types()
	for name, build := range map[string]func(m *module){
		"one function": func(m *module) { m.fn("f", none, none, none, deeper(), OpCall, 0, OpNop) },
		"two functions": func(m *module) {
			m.fn("f", none, none, none, deeper(), OpCall, 1)
			m.fn("", none, none, none, OpCall, 0)
		},
		"a circle behind a way into it": func(m *module) {
			m.fn("f", none, none, none, OpCall, 1)
			m.fn("", none, none, none, deeper(), OpCall, 2)
			m.fn("", none, none, none, OpCall, 3)
			m.fn("", none, none, none, OpCall, 1)
		},
		"two circles that share a function, by turns": func(m *module) {
			m.fn("f", none, none, none, deeper(), OpGlobalGet, 0, i32c(1), 0x71, OpIf, BlockTypeEmpty, OpCall, 1, OpElse, OpCall, 2, OpEnd)
			m.fn("", none, none, none, OpCall, 0)
			m.fn("", none, none, none, OpCall, 1)
		},
		"through a table": func(m *module) {
			m.Tables = []Table{{Elem: FuncRef, Limits: Limits{Min: 1}}}
			m.Elements = []Element{{Offset: append(i32c(0), OpEnd), Funcs: []uint32{0}}}
			m.fn("f", none, none, none, deeper(), i32c(0), OpCallIndirect, 0, 0)
		},
		"through a reference": func(m *module) {
			m.Elements = []Element{{Flags: 3, Funcs: []uint32{0}}}
			m.fn("f", none, none, none, deeper(), OpRefFunc, 0, OpCallRef, 0)
		},
		"one that a tail call closes": func(m *module) {
			m.fn("f", none, none, none, deeper(), OpCall, 1)
			m.fn("", none, none, none, OpReturnCall, 0)
		},
		"one that tail calls close, twice": func(m *module) {
			m.fn("f", none, none, none, OpReturnCall, 1)
			m.fn("", none, none, none, deeper(), OpCall, 2)
			m.fn("", none, none, none, OpReturnCall, 0)
		},
		"a tail call through a table": func(m *module) {
			m.Tables = []Table{{Elem: FuncRef, Limits: Limits{Min: 1}}}
			m.Elements = []Element{{Offset: append(i32c(0), OpEnd), Funcs: []uint32{0}}}
			m.fn("f", none, none, none, deeper(), OpCall, 1)
			m.fn("", none, none, none, i32c(0), OpReturnCallIndirect, 0, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := countingModule()
			build(m)
			depth, _, err := stackOf(t, m, stack)
			if !errors.Is(err, errStack) {
				t.Fatalf("got %v", err)
			}
			// One or two frames for each round of the circle, in one of the tests
			// three, of about a hundred bytes each.
			if least, most := uint64(stack/500), uint64(stack/90); depth < least || depth > most {
				t.Errorf("%d deep, want %d to %d", depth, least, most)
			}
		})
	}
}

func TestStackIsCountedInCyclesOnly(t *testing.T) {
	m := countingModule()
	none := types()
	// Ten functions of which each calls the next, and a loop of tail calls.
	m.fn("f", none, none, none, OpCall, 1)
	for i := range 9 {
		m.fn("", none, none, none, OpCall, i+2)
	}
	m.fn("", none, none, none, deeper(), OpGlobalGet, 0, i32c(10_000), 0x49, OpIf, BlockTypeEmpty, OpReturnCall, 10, OpEnd)
	if depth, left, err := stackOf(t, m, 1<<10); err != nil || depth != 10_000 || left != 1<<10 {
		t.Errorf("%d deep, %d bytes left, error %v", depth, left, err)
	}
	var chain module
	chain.fn("f", none, none, none, OpCall, 1)
	chain.fn("", none, none, none, OpNop)
	a, _ := rewriteFor(t, chain.Encode(), Options{Meter: true})
	b, _ := rewriteFor(t, chain.Encode(), Options{Meter: true, StackBytes: 1})
	if a, b := decodeFor(t, a), decodeFor(t, b); !bytes.Equal(a.Codes[0].Body, b.Codes[0].Body) {
		t.Errorf("a call of a leaf is charged:\n%x\n%x", a.Codes[0].Body, b.Codes[0].Body)
	}
}

func decodeFor(t *testing.T, bin []byte) *Module {
	t.Helper()
	m, err := Decode(bin)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestLongChainsAreCharged(t *testing.T) {
	m := countingModule()
	none := types()
	m.fn("f", none, none, none, OpCall, 1)
	for i := range 100 {
		m.fn("", none, none, none, deeper(), OpCall, i+2)
	}
	m.fn("", none, none, none, deeper())
	// A hundred frames of a hundred bytes, less what is below one charge.
	if _, left, err := stackOf(t, m, 16<<10); err != nil || left != 16<<10 {
		t.Errorf("%d bytes left, error %v", left, err)
	}
	if depth, _, err := stackOf(t, m, 4<<10); !errors.Is(err, errStack) {
		t.Errorf("%d deep in 4 KiB, error %v", depth, err)
	}
}

// TestStackBehindAnException throws through frames whose stack is charged, and
// catches in each place where code can continue, a thousand times.
func TestStackBehindAnException(t *testing.T) {
	const catchAll = 2
	none := types()
	for name, body := range map[string][]byte{
		"behind a block": asm(OpLoop, BlockTypeEmpty, deeper(),
			OpBlock, BlockTypeEmpty, OpTryTable, BlockTypeEmpty, 1, catchAll, 0, i32c(20), OpCall, 1, OpEnd, OpEnd,
			OpGlobalGet, 0, i32c(1000), 0x49, OpBrIf, 0, OpEnd),
		"at the head of a loop": asm(OpLoop, BlockTypeEmpty, deeper(),
			OpGlobalGet, 0, i32c(1000), 0x49, OpIf, BlockTypeEmpty,
			OpTryTable, BlockTypeEmpty, 1, catchAll, 1, i32c(20), OpCall, 1, OpEnd, OpEnd, OpEnd),
		"at the end of a function": asm(OpLoop, BlockTypeEmpty, deeper(), OpCall, 2,
			OpGlobalGet, 0, i32c(1000), 0x49, OpBrIf, 0, OpEnd),
		"at the end of a function with results": asm(OpLoop, BlockTypeEmpty, deeper(), OpCall, 3, 0x1a, 0x1a,
			OpGlobalGet, 0, i32c(1000), 0x49, OpBrIf, 0, OpEnd),
	} {
		t.Run(name, func(t *testing.T) {
			m := countingModule()
			m.Tags = []uint32{m.typ(none, none)}
			m.fn("f", none, none, none, body)
			m.fn("", types(I32), none, none, get(0), OpIf, BlockTypeEmpty, get(0), i32c(1), OpI32Sub, OpCall, 1, OpElse, OpThrow, 0, OpEnd)
			m.fn("", none, none, none, OpTryTable, BlockTypeEmpty, 1, catchAll, 0, i32c(20), OpCall, 1, OpEnd)
			pair := m.typ(none, types(I32, I64))
			m.Tags = append(m.Tags, m.typ(types(I32, I64), none))
			m.fn("", none, types(I32, I64), none,
				OpTryTable, int(pair), 1, 0, 1, 0, i32c(20), OpCall, 4, i32c(1), i64c(1), OpEnd)
			m.fn("", types(I32), none, none, get(0), OpIf, BlockTypeEmpty, get(0), i32c(1), OpI32Sub, OpCall, 4, OpElse, i32c(7), i64c(8), OpThrow, 1, OpEnd)
			if depth, left, err := stackOf(t, m, 8<<10); err != nil || depth != 1000 || left != 8<<10 {
				t.Errorf("%d rounds, %d bytes left, error %v", depth, left, err)
			}
		})
	}
}

// TestFramesAreCounted holds the estimate of frames against the operands that are
// on the stack at a call.
func TestFramesAreCounted(t *testing.T) {
	none := types()
	constants := func(n int) []byte { return []byte(strings.Repeat(string(i32c(1)), n)) }
	for name, test := range map[string]struct {
		build func(m *module)
		slots uint32
	}{
		"nothing":                 {func(m *module) { m.fn("", none, none, none, OpCall, 0) }, 0},
		"a parameter and a local": {func(m *module) { m.fn("", types(I32), none, types(I64), get(0), OpCall, 0) }, 2*localSlots + 1},
		"operands below a call":   {func(m *module) { m.fn("", none, none, none, constants(10), OpCall, 0, OpUnreachable) }, 10},
		"operands that are gone":  {func(m *module) { m.fn("", none, none, none, constants(3), 0x1a, 0x1a, OpI32Sub, 0x1a, OpCall, 0) }, 0},
		"operands below a block": {func(m *module) {
			m.fn("", none, none, none, constants(3), OpBlock, BlockTypeEmpty, i32c(1), OpCall, 0, OpUnreachable, OpEnd, OpUnreachable)
		}, 4},
		"vectors count twice": {func(m *module) { m.fn("", none, none, types(V128), OpCall, 0) }, 2 * localSlots},
		"operands that others return": {func(m *module) {
			m.fn("", none, none, none, OpCall, 1, OpCall, 1, OpCall, 0, OpUnreachable)
			m.fn("", none, types(I32, I32, I32), none, constants(3))
		}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			var m module
			test.build(&m)
			rw := &rewriter{Module: decodeFor(t, m.Encode()), opts: Options{Meter: true}, info: &Info{}}
			if err := rw.describe(); err != nil {
				t.Fatal(err)
			}
			plan, _, err := rw.measure()
			if err != nil {
				t.Fatal(err)
			}
			if got, want := plan.frames[0], frameBytes+test.slots*slotBytes; got != want {
				t.Errorf("got %d bytes, want %d", got, want)
			}
		})
	}
}
