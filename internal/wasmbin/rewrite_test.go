package wasmbin

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

func TestLimitsAreCapped(t *testing.T) {
	table := func(l Limits) Table { return Table{Elem: FuncRef, Limits: l} }
	for name, test := range map[string]struct {
		memory     Limits
		tables     []Table
		opts       Options
		wantMemory Limits
		wantTables []Limits
		err        error
	}{
		"no cap": {
			Limits{Min: 1}, []Table{table(Limits{Min: 1})}, Options{},
			Limits{Min: 1}, []Limits{{Min: 1}}, nil,
		},
		"a memory without a maximum": {
			Limits{Min: 1}, nil, Options{MaxMemoryPages: 10},
			Limits{Min: 1, Max: 10, HasMax: true}, nil, nil,
		},
		"a memory with a greater maximum": {
			Limits{Min: 1, Max: 65536, HasMax: true}, nil, Options{MaxMemoryPages: 10},
			Limits{Min: 1, Max: 10, HasMax: true}, nil, nil,
		},
		"a memory with a smaller maximum": {
			Limits{Min: 1, Max: 5, HasMax: true}, nil, Options{MaxMemoryPages: 10},
			Limits{Min: 1, Max: 5, HasMax: true}, nil, nil,
		},
		"a shared memory": {
			Limits{Min: 1, Max: 65536, HasMax: true, Shared: true}, nil, Options{MaxMemoryPages: 10},
			Limits{Min: 1, Max: 10, HasMax: true, Shared: true}, nil, nil,
		},
		"a memory that begins too large": {
			Limits{Min: 11}, nil, Options{MaxMemoryPages: 10}, Limits{}, nil, ErrMemoryLimit,
		},
		"tables share what is left, first come first served": {
			Limits{}, []Table{table(Limits{Min: 10}), table(Limits{Min: 5, Max: 6, HasMax: true}), table(Limits{Min: 1})},
			Options{MaxTableElements: 20},
			Limits{}, []Limits{{Min: 10, Max: 14, HasMax: true}, {Min: 5, Max: 5, HasMax: true}, {Min: 1, Max: 1, HasMax: true}}, nil,
		},
		"tables that begin too large, together": {
			Limits{}, []Table{table(Limits{Min: 10}), table(Limits{Min: 11})}, Options{MaxTableElements: 20}, Limits{}, nil, ErrTableLimit,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var m module
			m.Memories, m.Tables = []Limits{test.memory}, test.tables
			out, info, err := Rewrite(m.Encode(), test.opts)
			if !errors.Is(err, test.err) {
				t.Fatalf("Rewrite: %v, want %v", err, test.err)
			}
			if err != nil {
				return
			}
			if diff := cmp.Diff(&Memory{Limits: test.wantMemory}, info.Memory); diff != "" {
				t.Errorf("memory: want -, got +\n%s", diff)
			}
			if diff := cmp.Diff(test.wantTables, info.Tables); diff != "" {
				t.Errorf("tables: want -, got +\n%s", diff)
			}
			again, err := Decode(out)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]Limits{test.wantMemory}, again.Memories); diff != "" {
				t.Errorf("memory of the binary: want -, got +\n%s", diff)
			}
		})
	}
}

func TestAnImportedMemoryIsReported(t *testing.T) {
	var m module
	m.Imports = []Import{{Module: "env", Name: "memory", Kind: ExternMemory, Memory: Limits{Min: 2, Max: 100, HasMax: true}}}
	_, info := rewriteFor(t, m.Encode(), Options{MaxMemoryPages: 10})
	want := &Memory{Limits{Min: 2, Max: 10, HasMax: true}, true}
	if diff := cmp.Diff(want, info.Memory); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
}

func TestReservedNamesAreRefused(t *testing.T) {
	for name, build := range map[string]func(*module){
		"an import of yield": func(m *module) {
			m.Imports = []Import{{Module: YieldModule, Name: YieldName, Type: m.typ(nil, nil)}}
		},
		"an import of the fuel of another guest": func(m *module) {
			m.Imports = []Import{{Module: "other", Name: FuelGlobal, Kind: ExternGlobal, Global: GlobalType{I64, true}}}
		},
		"an export": func(m *module) { m.fn(ReservedPrefix+"x", nil, nil, nil) },
		"what was rewritten before": func(m *module) {
			m.fn("f", nil, nil, nil)
			out, _ := rewriteFor(t, m.Encode(), Options{Meter: true})
			again, err := Decode(out)
			if err != nil {
				t.Fatal(err)
			}
			m.Module = *again
		},
	} {
		t.Run(name, func(t *testing.T) {
			var m module
			build(&m)
			if _, _, err := Rewrite(m.Encode(), Options{}); !errors.Is(err, ErrReserved) {
				t.Errorf("Rewrite: %v, want %v", err, ErrReserved)
			}
		})
	}
}

func TestIndexesOutsideOfBodiesAreChecked(t *testing.T) {
	for name, build := range map[string]func(*module){
		"an export of the fuel": func(m *module) { m.Exports = []Export{{"x", ExternGlobal, 0}} },
		"an export of yield":    func(m *module) { m.Exports = []Export{{"x", ExternFunc, 0}} },
		"yield to start":        func(m *module) { m.Start = new(uint32) },
		"an element of yield":   func(m *module) { m.Elements = []Element{{Flags: 1, Funcs: []uint32{0}}} },
		"a reference to yield": func(m *module) {
			m.Elements = []Element{{Flags: 5, Type: FuncRef, Exprs: []Expr{asm(OpRefFunc, 0, OpEnd)}}}
		},
		"an offset from fuel":    func(m *module) { m.Datas = []Data{{Offset: asm(OpGlobalGet, 0, OpEnd)}} },
		"an import of no type":   func(m *module) { m.Imports = []Import{{Kind: ExternFunc}} },
		"a tag of no type":       func(m *module) { m.Tags = []uint32{0} },
		"a function of no type":  func(m *module) { m.fn("", nil, nil, nil); m.Types = nil },
		"a parameter of no type": func(m *module) { m.fn("", types(refNull|9<<8), nil, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			var m module
			build(&m)
			if _, _, err := Rewrite(m.Encode(), Options{Meter: true}); !errors.Is(err, ErrIndex) {
				t.Errorf("Rewrite: %v, want %v", err, ErrIndex)
			}
		})
	}
}

// everything is a module with all that the rewriting renumbers.
func everything() *module {
	m := &module{}
	m.Imports = []Import{
		{Module: "host", Name: "log", Kind: ExternFunc, Type: m.typ(types(I32), nil)},
		{Module: "host", Name: "limit", Kind: ExternGlobal, Global: GlobalType{I32, false}},
	}
	m.Memories = []Limits{{Min: 1}}
	m.Tables = []Table{{Elem: FuncRef, Limits: Limits{Min: 3, Max: 3, HasMax: true}}}
	one, two := asm(i32c(1), OpEnd), asm(i64c(2), OpEnd)
	m.Globals = []Global{
		{GlobalType{I32, true}, one}, {GlobalType{I64, false}, two}, {GlobalType{F64, true}, asm(0x44, make([]byte, 8), OpEnd)},
		{GlobalType{FuncRef, true}, asm(OpRefFunc, 1, OpEnd)}, {GlobalType{V128, true}, asm(prefixVec, 0x0c, make([]byte, 16), OpEnd)},
	}
	seven := m.fn("seven", nil, types(I32), nil, i32c(7))
	m.fn("sum", types(I32), types(I32), nil, OpCall, seven, get(0), 0x6a)
	m.Codes[1].Body = asm(OpCall, int(seven), get(0), 0x6a, OpEnd)
	m.fn("indirect", types(I32), types(I32), nil, get(0), OpCallIndirect, u(m.typ(nil, types(I32))), 0)
	m.fn("step", nil, types(I32), nil, OpGlobalGet, 1, i32c(1), 0x6a, OpGlobalSet, 1, OpGlobalGet, 1)
	start := m.fn("", nil, nil, nil, i32c(100), i32c(5), 0x36, 2, 0)
	m.Start = &start
	m.Elements = []Element{
		{Offset: asm(i32c(0), OpEnd), Funcs: []uint32{seven}},
		{Flags: 4, Offset: asm(i32c(1), OpEnd), Exprs: []Expr{asm(OpRefFunc, int(seven), OpEnd), asm(0xd0, 0x70, OpEnd)}},
	}
	m.Exports = append(m.Exports, Export{"memory", ExternMemory, 0}, Export{"table", ExternTable, 0}, Export{"log", ExternFunc, 0})
	m.Customs = []Custom{
		{Name: "plugin", Data: []byte("kept"), After: SectionCustom},
		{Name: ".debug_info", Data: []byte("stale"), After: SectionData},
		{Name: "producers", Data: []byte{0}, After: SectionData},
		{Name: "reloc.CODE", Data: []byte("stale"), After: SectionData},
		{Name: "name", Data: names(), After: SectionData},
	}
	return m
}

// names is a name section for everything.
func names() []byte {
	name := func(i int, s string) []byte { return appendName([]byte{byte(i)}, s) }
	sub := func(id int, parts ...any) []byte {
		b := asm(parts...)
		return append(appendUvarint([]byte{byte(id)}, uint64(len(b))), b...)
	}
	return bytes.Join([][]byte{
		sub(namesModule, appendName(nil, "everything")),
		sub(namesFunctions, 3, name(0, "log"), name(1, "seven"), name(2, "sum")),
		sub(2, 1, 2, 1, name(0, "addend")), // locals
		sub(3, 1, 2, 1, name(0, "out")),    // labels
		sub(7, 1, name(1, "counter")),      // globals
	}, nil)
}

// hostLog gives a runtime the imports of everything.
func hostLog(t *testing.T, r wazero.Runtime) {
	t.Helper()
	var host module
	host.fn("log", types(I32), nil, nil)
	host.Globals = []Global{{GlobalType{I32, false}, asm(i32c(1), OpEnd)}}
	host.Exports = append(host.Exports, Export{"limit", ExternGlobal, 0})
	if _, err := r.InstantiateWithConfig(t.Context(), host.Encode(), wazero.NewModuleConfig().WithName("host")); err != nil {
		t.Fatal(err)
	}
}

func instantiateEverything(t *testing.T, opts Options) (api.Module, *Info) {
	r := wazero.NewRuntimeWithConfig(t.Context(), wazero.NewRuntimeConfig().WithCoreFeatures(allFeatures))
	t.Cleanup(func() { _ = r.Close(context.Background()) })
	hostLog(t, r)
	instantiateMeter(t, r, func(_ api.Module, fuel api.MutableGlobal) { fuel.Set(1000) })
	bin, info := rewriteFor(t, everything().Encode(), opts)
	mod, err := r.Instantiate(t.Context(), bin)
	if err != nil {
		t.Fatal(err)
	}
	return mod, info
}

func TestEverythingIsRenumbered(t *testing.T) {
	mod, _ := instantiateEverything(t, Options{Meter: true, MaxMemoryPages: 2})
	call := func(name string, args ...uint64) uint64 {
		results, err := mod.ExportedFunction(name).Call(t.Context(), args...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return results[0]
	}
	got := []uint64{call("seven"), call("sum", 5), call("indirect", 0), call("indirect", 1), call("step")}
	if diff := cmp.Diff([]uint64{7, 12, 7, 7, 2}, got); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
	if v, _ := mod.Memory().ReadUint32Le(100); v != 5 {
		t.Errorf("the start function stored %d, want 5", v)
	}
}

func TestInfoDescribesTheGuest(t *testing.T) {
	for _, meter := range []bool{false, true} {
		_, got := rewriteFor(t, everything().Encode(), Options{Meter: meter, MaxMemoryPages: 2})
		memory := Limits{Min: 1, Max: 2, HasMax: true}
		table := Limits{Min: 3, Max: 3, HasMax: true}
		i32 := types(I32)
		want := &Info{
			Imports: []Extern{
				{Module: "host", Name: "log", Kind: ExternFunc, Func: FuncType{Params: i32}},
				{Module: "host", Name: "limit", Kind: ExternGlobal, Global: GlobalType{I32, false}},
			},
			Exports: []Extern{
				{Name: "seven", Kind: ExternFunc, Index: 1, Func: FuncType{Results: i32}},
				{Name: "sum", Kind: ExternFunc, Index: 2, Func: FuncType{i32, i32}},
				{Name: "indirect", Kind: ExternFunc, Index: 3, Func: FuncType{i32, i32}},
				{Name: "step", Kind: ExternFunc, Index: 4, Func: FuncType{Results: i32}},
				{Name: "memory", Kind: ExternMemory, Limits: memory},
				{Name: "table", Kind: ExternTable, Elem: FuncRef, Limits: table},
				{Name: "log", Kind: ExternFunc, Func: FuncType{Params: i32}},
			},
			Memory:        &Memory{Limits: memory},
			Tables:        []Limits{table},
			Functions:     5,
			CodeSize:      got.CodeSize,
			Starts:        true,
			Globals:       []GlobalExport{{"kubewasm:global/1", 1, I32}, {"kubewasm:global/3", 3, F64}},
			OpaqueGlobals: []uint32{4, 5},
			Customs:       []string{"plugin", "producers", "name"},
			Dropped:       []string{".debug_info", "reloc.CODE"},
		}
		if !meter {
			want.Customs, want.Dropped = []string{"plugin", ".debug_info", "producers", "reloc.CODE", "name"}, nil
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("metered %v: want -, got +\n%s", meter, diff)
		}
	}
	_, info := rewriteFor(t, everything().Encode(), Options{})
	if got, want := info.Imports[0].String(), `func "host"."log" (i32) -> ()`; got != want {
		t.Errorf("String: %s, want %s", got, want)
	}
}

func TestCustomSectionsStayInTheirPlaces(t *testing.T) {
	bin, _ := rewriteFor(t, everything().Encode(), Options{Meter: true})
	m, err := Decode(bin)
	if err != nil {
		t.Fatal(err)
	}
	var got []Custom
	for _, c := range m.Customs {
		if c.Name != nameSection {
			got = append(got, c)
		}
	}
	// The module has no data section, so that the last ones come behind the
	// code.
	want := []Custom{{"plugin", []byte("kept"), SectionCustom}, {"producers", []byte{0}, SectionCode}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
}

func TestGlobalsAreSnapshotAndRestored(t *testing.T) {
	mod, info := instantiateEverything(t, Options{Meter: true})
	step := mod.ExportedFunction("step")
	snapshot := map[string]uint64{}
	for _, g := range info.Globals {
		snapshot[g.Name] = mod.ExportedGlobal(g.Name).Get()
	}
	for range 2 {
		for want := uint64(2); want < 5; want++ {
			if results, err := step.Call(t.Context()); err != nil || results[0] != want {
				t.Fatalf("step: %v, %v, want %d", results, err, want)
			}
		}
		for name, value := range snapshot {
			mod.ExportedGlobal(name).(api.MutableGlobal).Set(value)
		}
	}
}

func TestMutationOfTablesAndSegmentsIsReported(t *testing.T) {
	for name, test := range map[string]struct {
		body             []any
		tables, segments bool
	}{
		"neither":    {nil, false, false},
		"table.set":  {[]any{i32c(0), 0xd0, 0x70, OpTableSet, 0}, true, false},
		"table.fill": {[]any{i32c(0), 0xd0, 0x70, i32c(1), prefixMisc, 0x11, 0}, true, false},
		"elem.drop":  {[]any{prefixMisc, 0x0d, 0}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			var m module
			m.Tables = []Table{{Elem: FuncRef, Limits: Limits{Min: 1}}}
			m.Elements = []Element{{Flags: 1, Funcs: []uint32{0}}}
			m.fn("f", nil, nil, nil, test.body...)
			_, info := rewriteFor(t, m.Encode(), Options{})
			if info.MutatesTables != test.tables || info.DropsSegments != test.segments {
				t.Errorf("tables %v, segments %v, want %v, %v", info.MutatesTables, info.DropsSegments, test.tables, test.segments)
			}
		})
	}
}

func TestRewriteIsDeterministicAndLeavesItsInput(t *testing.T) {
	guest := goGuest(t)
	before := bytes.Clone(guest)
	first, _ := rewriteFor(t, guest, Options{Meter: true})
	second, _ := rewriteFor(t, guest, Options{Meter: true})
	if !bytes.Equal(first, second) {
		t.Error("the second time, the output differs")
	}
	if !bytes.Equal(guest, before) {
		t.Error("the input has changed")
	}
}

func TestStackTracesKeepTheNames(t *testing.T) {
	var m module
	m.fn("entry", nil, nil, nil, OpCall, 1)
	m.fn("", nil, nil, nil, OpUnreachable)
	name := func(i int, s string) []byte { return appendName([]byte{byte(i)}, s) }
	functions := asm(2, name(0, "outer"), name(1, "inner.that.traps"))
	m.Customs = []Custom{{Name: nameSection, Data: append([]byte{namesFunctions, byte(len(functions))}, functions...), After: SectionCode}}
	g := newMetered(t, wazero.NewRuntimeConfig(), &m)
	_, _, err := g.call("entry", 1000)
	_, trace, _ := strings.Cut(err.Error(), "stack trace:\n")
	if want := "\t.inner.that.traps()\n\t.outer()"; trace != want {
		t.Errorf("%v\nwant the trace %q", err, want)
	}
}

func TestNamesAreRemapped(t *testing.T) {
	got, err := remapNames(names(), func(i uint32) uint32 { return i + 200 })
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{buf: got}
	type sub struct {
		id   byte
		size uint32
		head []byte
	}
	var subs []sub
	for r.left() > 0 {
		id := r.byte("")
		size := r.u32("")
		subs = append(subs, sub{id, size, r.bytes(size, "")[:3]})
	}
	want := []sub{
		{namesModule, 11, []byte{10, 'e', 'v'}},
		{namesFunctions, 1 + 3*3 + 3 + 5 + 3, []byte{3, 200, 1}},
	}
	if diff := cmp.Diff(want, subs, cmp.AllowUnexported(sub{})); diff != "" || r.err != nil {
		t.Errorf("%v, want -, got +\n%s", r.err, diff)
	}
}

func TestNameSectionsThatAreMalformedAreDropped(t *testing.T) {
	for name, data := range map[string][]byte{
		"a subsection cut off":  {1, 9, 1},
		"a count too great":     {1, 2, 9, 0},
		"bytes left over":       {1, 2, 0, 0},
		"a module without name": {0, 0},
		"a name not in UTF-8":   {1, 4, 1, 0, 1, 0xff},
	} {
		t.Run(name, func(t *testing.T) {
			var m module
			m.Customs = []Custom{{Name: nameSection, Data: data}, {Name: "other", Data: data}}
			bin, info := rewriteFor(t, m.Encode(), Options{})
			if diff := cmp.Diff([]string{nameSection}, info.Dropped); diff != "" {
				t.Errorf("dropped (-want +got):\n%s", diff)
			}
			if got := decodeFor(t, bin).Customs; len(got) != 1 || got[0].Name != "other" {
				t.Errorf("kept %v", got)
			}
		})
	}
}

func TestElementsBeyondTheirTable(t *testing.T) {
	for name, test := range map[string]struct {
		offset Expr
		table  uint32
		elems  int
		min    uint32
		refuse bool
	}{
		"up to the end":                {append(i32c(1), OpEnd), 0, 2, 3, false},
		"one beyond":                   {append(i32c(2), OpEnd), 0, 2, 3, true},
		"nothing, at the end":          {append(i32c(3), OpEnd), 0, 0, 3, false},
		"nothing, beyond the end":      {append(i32c(4), OpEnd), 0, 0, 3, true},
		"an offset that is negative":   {append(i32c(-1), OpEnd), 0, 1, 3, true},
		"of a table that is not there": {append(i32c(9), OpEnd), 1, 1, 3, false},
		"behind a global":              {append(asm(OpGlobalGet, 0), OpEnd), 0, 9, 3, false},
		"behind a sum":                 {append(asm(i32c(9), i32c(1), OpI32Add), OpEnd), 0, 9, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			var m module
			m.Tables = []Table{{Elem: FuncRef, Limits: Limits{Min: test.min}}}
			m.Globals = []Global{{GlobalType{I32, false}, append(i32c(0), OpEnd)}}
			m.fn("", nil, nil, nil)
			e := Element{Offset: test.offset, Funcs: make([]uint32, test.elems)}
			if e.Table = test.table; e.Table != 0 {
				e.Flags = 2
			}
			m.Elements = []Element{e}
			if _, _, err := Rewrite(m.Encode(), Options{CheckElements: true}); errors.Is(err, ErrElements) != test.refuse {
				t.Errorf("got %v", err)
			}
			if _, _, err := Rewrite(m.Encode(), Options{}); err != nil {
				t.Errorf("without the check: %v", err)
			}
		})
	}
}
