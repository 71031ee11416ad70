package wasmbin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// ran is what a function of a module returned.
type ran struct {
	Results []uint64
	Err     string
}

// runOn calls an export of a module on an engine.
func runOn(t *testing.T, config wazero.RuntimeConfig, bin []byte, name string, args ...uint64) ran {
	t.Helper()
	r := wazero.NewRuntimeWithConfig(t.Context(), config.WithCoreFeatures(allFeatures))
	t.Cleanup(func() { _ = r.Close(context.Background()) })
	instantiateMeter(t, r, func(_ api.Module, fuel api.MutableGlobal) { fuel.Set(1 << 40) })
	mod, err := r.Instantiate(t.Context(), bin)
	if err != nil {
		t.Fatalf("instantiate: %v", err)
	}
	out := outcomeOf(mod.ExportedFunction(name).Call(t.Context(), args...))
	return ran{out.results, out.err}
}

// reference is a reference to a function of a type, which cannot be null.
func reference(typ uint32) ValType { return refNon | ValType(typ)<<8 }

// TestReferencesTakenForAnotherType calls a function of two numbers as one of a number and a
// function, and the other way round: with that, a guest would read any address and call any.
// When wazero refuses the module, appendCall is no longer needed.
func TestReferencesTakenForAnotherType(t *testing.T) {
	var m module
	one := m.typ(types(I64), types(I64))
	numbers, functions := types(I64, I64), types(I64, reference(one))
	typ := m.typ(functions, types(I64))
	callee := m.fn("", functions, types(I64), nil, get(0), get(1), OpCallRef, u(one))
	as := m.fn("", types(I64, I64, reference(m.typ(numbers, types(I64)))), types(I64), nil, get(0), get(1), get(2), OpCallRef, u(m.typ(numbers, types(I64))))
	m.fn("f", numbers, types(I64), nil, get(0), get(1), OpRefFunc, u(callee), OpCall, u(as))
	m.Elements = []Element{{Flags: 3, Funcs: []uint32{callee}}}
	if ok, err := acceptedBy(m.Encode(), wazero.NewRuntimeConfigInterpreter()); !ok {
		t.Fatalf("wazero refuses (ref %d) for another type now: %v", typ, err)
	}
	bin, _ := rewriteFor(t, m.Encode(), Options{Meter: true, StackBytes: maxStack})
	for name, config := range engines {
		want := ran{Err: "wasm error: indirect call type mismatch"}
		if diff := cmp.Diff(want, runOn(t, config(), bin, "f", 1, 0xdeadbeef)); diff != "" {
			t.Errorf("%s: want -, got +\n%s", name, diff)
		}
	}
}

// TestCallsByReference holds that calls by reference that become calls by table do the same.
func TestCallsByReference(t *testing.T) {
	number := types(I64)
	for name, test := range map[string]struct {
		body []byte
		want ran
	}{
		"a call":                      {asm(get(0), OpRefFunc, 0, OpCallRef, 0, i64c(1), OpI64Add), ran{Results: []uint64{15}}},
		"a tail call":                 {asm(get(0), OpRefFunc, 0, OpReturnCallRef, 0), ran{Results: []uint64{14}}},
		"a call of null":              {asm(get(0), 0xd0, 0, OpCallRef, 0), ran{Err: "wasm error: null reference"}},
		"a tail call of null":         {asm(get(0), 0xd0, 0, OpReturnCallRef, 0), ran{Err: "wasm error: null reference"}},
		"a call where no way leads":   {asm(get(0), OpReturn, OpCallRef, 0), ran{Results: []uint64{7}}},
		"two calls within each other": {asm(get(0), OpRefFunc, 0, OpCallRef, 0, OpRefFunc, 0, OpCallRef, 0), ran{Results: []uint64{28}}},
	} {
		t.Run(name, func(t *testing.T) {
			var m module
			double := m.fn("", number, number, nil, get(0), get(0), OpI64Add)
			m.fn("f", number, number, nil, test.body)
			m.Elements = []Element{{Flags: 3, Funcs: []uint32{double}}}
			bin, info := rewriteFor(t, m.Encode(), Options{Meter: true, StackBytes: maxStack})
			if info.MutatesTables {
				t.Error("the guest's own tables are said to change")
			}
			for name, config := range engines {
				for what, bin := range map[string][]byte{"plain": m.Encode(), "rewritten": bin} {
					if diff := cmp.Diff(test.want, runOn(t, config(), bin, "f", 7)); diff != "" {
						t.Errorf("%s, %s: want -, got +\n%s", what, name, diff)
					}
				}
			}
		})
	}
}

// sevenByTable has a function g that calls one with seven integers in tail position by table,
// which returns the last one.
func sevenByTable() *module {
	var m module
	seven := slices.Repeat(types(I64), 7)
	f := m.fn("", seven, types(I64), nil, get(6))
	m.fn("g", seven, types(I64), nil, get(0), get(1), get(2), get(3), get(4), get(5), get(6), i32c(0), OpReturnCallIndirect, 0, 0)
	m.Tables = []Table{{Elem: FuncRef, Limits: Limits{Min: 1}}}
	m.Elements = []Element{{Offset: append(i32c(0), OpEnd), Funcs: []uint32{f}}}
	return &m
}

// TestTailCallsKeepTheirParameters holds that each of the parameters arrives, of any number and
// of either kind, by each kind of call.
func TestTailCallsKeepTheirParameters(t *testing.T) {
	for count := range 12 {
		for _, kind := range types(I64, F64) {
			for name, call := range map[string][]byte{
				"direct": asm(OpReturnCall, 0), "by table": asm(i32c(0), OpReturnCallIndirect, 0, 0), "by reference": asm(OpRefFunc, 0, OpReturnCallRef, 0),
			} {
				for _, plain := range []bool{false, true} {
					params := slices.Repeat(types(kind), count+1)
					var m module
					var all []byte
					for i := range params {
						all = append(all, get(i)...)
					}
					m.fn("", params, params, nil, all)
					m.fn("f", params, params, nil, all, call)
					m.Tables = []Table{{Elem: FuncRef, Limits: Limits{Min: 1}}}
					m.Elements = []Element{{Offset: append(i32c(0), OpEnd), Funcs: []uint32{0}}}
					var args []uint64
					for i := range params {
						args = append(args, uint64(i+1))
					}
					bin, _ := rewriteFor(t, m.Encode(), Options{Meter: true, StackBytes: maxStack, ExpandTailCalls: plain})
					for engine, config := range engines {
						if diff := cmp.Diff(ran{Results: args}, runOn(t, config(), bin, "f", args...)); diff != "" {
							t.Errorf("%d of %v, %s, %s: want -, got +\n%s", len(params), kind, name, engine, diff)
						}
					}
				}
			}
		}
	}
	if runtime.GOARCH == "amd64" {
		got := runOn(t, wazero.NewRuntimeConfigCompiler(), sevenByTable().Encode(), "g", 1, 2, 3, 4, 5, 6, 7)
		if got.Err == "" && got.Results[0] == 7 {
			t.Error("wazero passes seven parameters now: staysTailCall need not count them on amd64")
		}
	}
}

// TestStackBehindTailCallsThatAreNone holds that no loop of tail calls, of those that are calls
// for wazero or that are made calls, takes stack that is not counted, and that the others take
// none.
func TestStackBehindTailCallsThatAreNone(t *testing.T) {
	const stack = 1 << 16
	table := func(m *module) {
		m.Tables = []Table{{Elem: FuncRef, Limits: Limits{Min: 1}}}
		m.Elements = []Element{{Offset: append(i32c(0), OpEnd), Funcs: []uint32{0}}}
	}
	for name, test := range map[string]struct {
		params, results []ValType
		call            []byte
		plain, endless  bool // endless is set if the call stays a tail call
	}{
		"six integers":                 {params: slices.Repeat(types(I64), 6), call: asm(OpReturnCall, 0), endless: true},
		"eight floats":                 {params: slices.Repeat(types(F64), 8), call: asm(OpReturnCall, 0), endless: true},
		"eight results":                {results: slices.Repeat(types(I64), 8), call: asm(OpReturnCall, 0), endless: true},
		"seven integers":               {params: slices.Repeat(types(I64), 7), call: asm(OpReturnCall, 0)},
		"nine floats":                  {params: slices.Repeat(types(F64), 9), call: asm(OpReturnCall, 0)},
		"nine vectors":                 {params: slices.Repeat(types(V128), 9), call: asm(OpReturnCall, 0)},
		"nine results":                 {results: slices.Repeat(types(I64), 9), call: asm(OpReturnCall, 0)},
		"by table":                     {call: asm(i32c(0), OpReturnCallIndirect, 0, 0), endless: true},
		"by table, on arm64":           {call: asm(i32c(0), OpReturnCallIndirect, 0, 0), plain: true},
		"seven integers by table":      {params: slices.Repeat(types(I64), 7), call: asm(i32c(0), OpReturnCallIndirect, 0, 0)},
		"by reference":                 {call: asm(OpRefFunc, 0, OpReturnCallRef, 0), endless: true},
		"by reference, on arm64":       {call: asm(OpRefFunc, 0, OpReturnCallRef, 0), plain: true},
		"twenty integers by reference": {params: slices.Repeat(types(I64), 20), call: asm(OpRefFunc, 0, OpReturnCallRef, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			m := countingModule()
			var all []byte
			for i := range test.params {
				all = append(all, get(i)...)
			}
			// It ends by itself after 10,000 rounds.
			m.fn("callee", test.params, test.results, nil, deeper(), OpGlobalGet, 0, i32c(10_000), OpI32LtU, OpIf, BlockTypeEmpty, all, test.call, OpEnd, OpUnreachable)
			table(m)
			zeros := func() (out []byte) {
				for _, p := range test.params {
					switch p {
					case F64:
						out = append(out, 0x44, 0, 0, 0, 0, 0, 0, 0, 0)
					case V128:
						out = append(append(out, prefixVec, 0x0c), make([]byte, 16)...)
					default:
						out = append(out, i64c(0)...)
					}
				}
				return out
			}
			m.fn("f", nil, test.results, nil, zeros(), OpCall, 0)
			depth, _, err := stackWith(t, m, Options{Meter: true, StackBytes: stack, ExpandTailCalls: test.plain})
			if test.endless {
				if depth != 10_000 || err == nil || !strings.Contains(err.Error(), "unreachable") {
					t.Errorf("%d deep, error %v; want 10000 and a trap", depth, err)
				}
				return
			}
			if !errors.Is(err, errStack) || depth > stack/90 {
				t.Errorf("%d deep, error %v; want at most %d, and that the stack is used up", depth, err, stack/90)
			}
		})
	}
}

// TestRefusedFeatures holds that what a guest cannot use is named, with a way to build without.
func TestRefusedFeatures(t *testing.T) {
	section := func(id SectionID, content ...byte) []byte {
		return append([]byte{byte(id), byte(len(content))}, content...)
	}
	module := func(sections ...[]byte) []byte { return append(slices.Clone(preamble), slices.Concat(sections...)...) }
	body := func(code ...byte) []byte {
		return module(section(SectionType, 1, 0x60, 0, 0), section(SectionFunction, 1, 0),
			section(SectionCode, append([]byte{1, byte(len(code) + 2), 0}, append(code, OpEnd)...)...))
	}
	for name, test := range map[string]struct {
		bin  []byte
		want feature
	}{
		"a tag":                            {module(section(SectionType, 1, 0x60, 0, 0), section(SectionTag, 1, 0, 0)), exceptions},
		"an imported tag":                  {module(section(SectionType, 1, 0x60, 0, 0), section(SectionImport, 1, 1, 'm', 1, 't', 4, 0, 0)), exceptions},
		"a try_table":                      {body(OpTryTable, BlockTypeEmpty, 0, OpEnd), exceptions},
		"a throw":                          {body(OpThrow, 0), exceptions},
		"a throw_ref":                      {body(0x00, OpThrowRef), exceptions},
		"a try of the older form":          {body(0x06, BlockTypeEmpty, 0x19, OpEnd), exceptions},
		"an atomic load":                   {body(OpI32Const, 0, prefixAtomic, 0x10, 2, 0, OpDrop), threads},
		"a shared memory":                  {module(section(SectionMemory, 1, 3, 1, 1)), threads},
		"an imported shared memory":        {module(section(SectionImport, 1, 1, 'm', 1, 'm', 2, 3, 1, 1)), threads},
		"a struct type":                    {module(section(SectionType, 1, 0x5f, 1, 0x7f, 0)), gc},
		"a subtype":                        {module(section(SectionType, 1, 0x50, 0, 0x60, 0, 0)), gc},
		"a parameter of anyref":            {module(section(SectionType, 1, 0x60, 1, 0x6e, 0)), gc},
		"a parameter of (ref any)":         {module(section(SectionType, 1, 0x60, 1, 0x64, 0x6e, 0)), gc},
		"a null of nofunc":                 {body(0xd0, 0x73, OpDrop), gc},
		"a cast":                           {body(0xfb, 0x14, 0x70), gc},
		"a 64-bit memory":                  {module(section(SectionMemory, 1, 4, 1)), memory64},
		"a 64-bit table":                   {module(section(SectionTable, 1, 0x70, 5, 1, 1)), memory64},
		"two memories":                     {module(section(SectionMemory, 2, 0, 1, 0, 1)), multiMemory},
		"a size of the second memory":      {body(0x3f, 1, OpDrop), multiMemory},
		"data for the second memory":       {module(section(SectionMemory, 1, 0, 1), section(SectionData, 1, 2, 1, OpI32Const, 0, OpEnd, 0)), multiMemory},
		"a relaxed multiplication":         {body(prefixVec, 0x85, 0x02), relaxedSIMD},
		"an addition of 128 bits":          {body(prefixMisc, 0x13), wideInteger},
		"pages of one byte":                {module(section(SectionMemory, 1, 8, 1, 0)), pageSizes},
		"a continuation":                   {body(0xe0, 0), stackSwitches},
		"a type of continuations":          {module(section(SectionType, 1, 0x5d, 0)), stackSwitches},
		"a component in place of a module": {slices.Concat(componentPreamble, []byte{0}), components},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := Rewrite(test.bin, Options{Meter: true, StackBytes: maxStack, LimitComplexity: true, RefuseUnsafe: true})
			if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), fmt.Sprintf("%s; build without: %s", test.want.name, test.want.without)) {
				t.Errorf("got %v, want that %s are refused", err, test.want.name)
			}
		})
	}
}

// TestTableOfFeatures holds that the specification names each feature that is refused.
func TestTableOfFeatures(t *testing.T) {
	spec, err := os.ReadFile("../../abi/SPEC.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(spec), "### Features of WebAssembly 3.0\n")
	table, _, _ = strings.Cut(table, "\n## ")
	for _, f := range features {
		refused := slices.ContainsFunc(strings.Split(table, "\n"), func(row string) bool {
			cells := strings.Split(row, "|")
			return len(cells) > 3 && slices.Contains(strings.Split(strings.TrimSpace(cells[1]), ", "), f.name) && strings.TrimSpace(cells[2]) == "refused"
		})
		if !refused {
			t.Errorf("no row says that %s are refused", f.name)
		}
	}
}
