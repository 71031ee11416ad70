package wasmbin

import (
	"bytes"
	"errors"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// bin is a binary of sections, each an id and its content.
func bin(sections ...[]byte) []byte {
	return append(bytes.Clone(preamble), bytes.Join(sections, nil)...)
}

func section(id SectionID, content ...any) []byte {
	body := asm(content...)
	return append(appendUvarint([]byte{byte(id)}, uint64(len(body))), body...)
}

// huge is the count 4,294,967,295.
var huge = []byte{0xff, 0xff, 0xff, 0xff, 0x0f}

func TestDecodeRefusesWhatIsMalformed(t *testing.T) {
	for name, test := range map[string]struct {
		bin     []byte
		section SectionID
		offset  int
		want    string
	}{
		"nothing":                     {nil, SectionCustom, 0, "want the preamble"},
		"another version":             {[]byte("\x00asm\x02\x00\x00\x00"), SectionCustom, 0, "want the preamble"},
		"a component":                 {[]byte("\x00asm\x0d\x00\x01\x00"), SectionCustom, 0, "the component model"},
		"an unknown section":          {bin(section(14)), SectionCustom, 8, "unknown section 14"},
		"a section cut off":           {bin([]byte{1, 5, 0}), SectionType, 10, "want the section of 5 bytes, 1 left"},
		"a section twice":             {bin(section(SectionType, 0), section(SectionType, 0)), SectionType, 11, "may follow type"},
		"sections in the wrong order": {bin(section(SectionCode, 0), section(SectionDataCount, 0)), SectionDataCount, 11, "may follow code"},
		"a section with a rest":       {bin(section(SectionType, 0, 7)), SectionType, 11, "1 bytes are left over"},
		"a size of 33 bits":           {bin([]byte{1, 0xff, 0xff, 0xff, 0xff, 0x1f}), SectionType, 9, "unsigned 32-bit"},
		"a name that is no UTF-8":     {bin(section(SectionCustom, 1, 0xff)), SectionCustom, 10, "UTF-8"},
		"a type that is no function":  {bin(section(SectionType, 1, 0x5f, 0)), SectionType, 11, "garbage collection"},
		"an unknown value type":       {bin(section(SectionType, 1, 0x60, 1, 0x7a, 0)), SectionType, 13, "have 0x7a"},
		"a type that is not there":    {bin(section(SectionType, 1, 0x60, 1, 0x63, 5, 0)), SectionType, 16, "type 5, there are 1"},
		"a 64-bit memory":             {bin(section(SectionMemory, 1, 4, 0)), SectionMemory, 11, "unsupported"},
		"two memories":                {bin(section(SectionMemory, 2, 0, 0, 0, 0)), SectionMemory, 10, "several memories"},
		"an unknown import":           {bin(section(SectionImport, 1, 0, 0, 5, 0)), SectionImport, 13, "from 0 to 4, have 5"},
		"a global neither nor":        {bin(section(SectionGlobal, 1, 0x7f, 2, i32c(0), 0x0b)), SectionGlobal, 12, "mutability"},
		"an open expression":          {bin(section(SectionGlobal, 1, 0x7f, 0, i32c(0), 0x01)), SectionGlobal, 16, "end of a constant"},
		"a loop as an expression":     {bin(section(SectionGlobal, 1, 0x7f, 0, OpLoop, 0x40, 0x0b, 0x0b)), SectionGlobal, 13, "have a block"},
		"a tag with an attribute":     {bin(section(SectionTag, 1, 1, 0)), SectionTag, 11, "attribute"},
		"element flags":               {bin(section(SectionElement, 1, 8, 0, 0)), SectionElement, 11, "from 0 to 7, have 8"},
		"an element kind":             {bin(section(SectionElement, 1, 1, 1, 0)), SectionElement, 12, "kind 0, have 0x1"},
		"data flags":                  {bin(section(SectionData, 1, 3, 0)), SectionData, 11, "from 0 to 2, have 3"},
		"data for a second memory":    {bin(section(SectionData, 1, 2, 1, i32c(0), 0x0b, 0)), SectionData, 12, "several memories"},
		"a function without a body":   {bin(section(SectionFunction, 1, 0)), SectionCode, 12, "1 functions have 0 bodies"},
		"a body without an end":       {bin(section(SectionFunction, 1, 0), section(SectionCode, 1, 2, 0, 1)), SectionCode, 18, "closes with end"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Decode(test.bin)
			var de *DecodeError
			if !errors.As(err, &de) {
				t.Fatalf("Decode: %v, want a DecodeError", err)
			}
			if de.Section != test.section || de.Offset != test.offset || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Decode: %v\nwant section %v, offset %#x and %q", err, test.section, test.offset, test.want)
			}
		})
	}
}

func TestDecodeRefusesACountBeforeItAllocates(t *testing.T) {
	for name, b := range map[string][]byte{
		"types":              bin(section(SectionType, huge, 0x60, 0, 0)),
		"types of a group":   bin(section(SectionType, 1, 0x4e, huge, 0x60)),
		"parameters":         bin(section(SectionType, 1, 0x60, huge, 0x7f)),
		"imports":            bin(section(SectionImport, huge, 0, 0, 0, 0)),
		"the name of import": bin(section(SectionImport, 1, huge, 0, 0, 0, 0)),
		"functions":          bin(section(SectionFunction, huge, 0)),
		"tables":             bin(section(SectionTable, huge, 0x70, 0, 0)),
		"memories":           bin(section(SectionMemory, huge, 0, 0)),
		"tags":               bin(section(SectionTag, huge, 0, 0)),
		"globals":            bin(section(SectionGlobal, huge, 0x7f, 0, i32c(0), 0x0b)),
		"exports":            bin(section(SectionExport, huge, 0, 0, 0)),
		"elements":           bin(section(SectionElement, 1, 1, 0, huge, 0)),
		"expressions":        bin(section(SectionElement, 1, 5, 0x70, huge, 0)),
		"bodies":             bin(section(SectionCode, huge, 2, 0, 0x0b)),
		"groups of locals":   bin(section(SectionFunction, 1, 0), section(SectionCode, 1, 8, huge, 1, 0x7f, 0x0b)),
		"data":               bin(section(SectionData, 1, 1, huge, 0)),
		"a section":          bin([]byte{byte(SectionCode)}, huge),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Decode(b)
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Error("Decode succeeded")
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 16<<10 {
				t.Errorf("Decode allocated %d bytes for %d", n, len(b))
			}
		})
	}
}

func TestDecodeAllocatesASmallMultiple(t *testing.T) {
	// The smallest entries of each kind, as many as there may be.
	repeat := func(id SectionID, n int, entry ...any) []byte {
		e := asm(entry...)
		return bin(section(id, u(uint32(n)), bytes.Repeat(e, n)))
	}
	for name, b := range map[string][]byte{
		"types":    repeat(SectionType, maxTypes, 0x60, 0, 0),
		"groups":   repeat(SectionType, maxTypes, 0x4e, 0),
		"imports":  repeat(SectionImport, maxImports, 0, 0, 0, 0),
		"tables":   repeat(SectionTable, maxTables, 0x70, 0, 0),
		"globals":  repeat(SectionGlobal, maxGlobals, 0x7f, 0, 0x23, 0, 0x0b),
		"exports":  repeat(SectionExport, maxExports, 0, 0, 0),
		"elements": repeat(SectionElement, maxElementSegments, 1, 0, 0),
		"bodies":   repeat(SectionCode, MaxFunctions, 2, 0, 0x0b),
		"data":     repeat(SectionData, maxDataSegments, 1, 0),
		"customs":  bin(bytes.Repeat(section(SectionCustom, 0), maxCustoms)),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _ = Decode(b)
			runtime.ReadMemStats(&after)
			if n := (after.TotalAlloc - before.TotalAlloc) / uint64(len(b)); n > 100 {
				t.Errorf("Decode allocated %d times the input", n)
			}
		})
	}
}

func TestDecodeLimitsLocals(t *testing.T) {
	body := func(count []byte) []byte { return asm(1, count, 0x7f, 0x0b) }
	code := func(n int, count []byte) []byte {
		b := body(count)
		b = append(u(uint32(len(b))), b...)
		return bin(section(SectionType, 1, 0x60, 0, 0), section(SectionFunction, u(uint32(n)), bytes.Repeat([]byte{0}, n)),
			section(SectionCode, u(uint32(n)), bytes.Repeat(b, n)))
	}
	for name, test := range map[string]struct {
		bin []byte
		err error
	}{
		"as many as a function may have":     {code(1, u(MaxLocals)), nil},
		"one more":                           {code(1, u(MaxLocals+1)), ErrTooManyLocals},
		"four billion":                       {code(1, huge), ErrTooManyLocals},
		"too many in all functions together": {code(30, u(MaxLocals)), ErrTooManyLocals},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Decode(test.bin); !errors.Is(err, test.err) {
				t.Errorf("Decode: %v, want %v", err, test.err)
			}
		})
	}
}

func TestEncodeWritesWhatDecodeRead(t *testing.T) {
	zero := asm(i32c(0), OpEnd)
	start, count := uint32(1), uint32(2)
	want := &Module{
		Types: []RecGroup{
			{Types: []FuncType{{Params: types(I32, V128), Results: types(refNull|0<<8, refNon|ExnRefHeap<<8)}}},
			{Types: []FuncType{{}, {Params: types(refNon | 1<<8)}}, Explicit: true},
		},
		Imports: []Import{
			{Module: "m", Name: "f", Kind: ExternFunc, Type: 1},
			{Module: "m", Name: "t", Kind: ExternTable, Table: Table{Elem: ExternRef, Limits: Limits{Min: 1, Max: 300, HasMax: true}}},
			{Module: "m", Name: "m", Kind: ExternMemory, Memory: Limits{Min: 1, Max: 2, HasMax: true, Shared: true}},
			{Module: "m", Name: "g", Kind: ExternGlobal, Global: GlobalType{F64, true}},
			{Module: "m", Name: "e", Kind: ExternTag, Type: 2},
		},
		Functions: []uint32{1},
		Tables:    []Table{{Elem: FuncRef, Limits: Limits{Min: 2}}, {Elem: refNon | 1<<8, Init: asm(OpRefFunc, 0, OpEnd)}},
		Tags:      []uint32{2},
		Globals:   []Global{{GlobalType{I32, true}, zero}},
		Exports:   []Export{{"a", ExternFunc, 1}, {"b", ExternGlobal, 1}},
		Start:     &start,
		Elements: []Element{
			{Flags: 0, Offset: zero, Funcs: []uint32{0, 1}},
			{Flags: 1, Funcs: []uint32{1}},
			{Flags: 2, Table: 1, Offset: zero, Funcs: []uint32{1}},
			{Flags: 3, Funcs: []uint32{1}},
			{Flags: 4, Offset: zero, Exprs: []Expr{asm(OpRefFunc, 1, OpEnd)}},
			{Flags: 5, Type: ExternRef, Exprs: []Expr{asm(0xd0, 0x6f, OpEnd)}},
			{Flags: 6, Table: 1, Offset: zero, Type: FuncRef, Exprs: []Expr{asm(0xd0, 0x70, OpEnd)}},
			{Flags: 7, Type: FuncRef, Exprs: []Expr{asm(OpRefFunc, 1, OpEnd)}},
		},
		DataCount: &count,
		Codes:     []Code{{LocalGroups: 1, Locals: asm(2, int(I64)), NumLocals: 2, Body: asm(OpEnd)}},
		Datas:     []Data{{Flags: 1, Init: []byte("passive")}, {Flags: 2, Offset: zero, Init: []byte("active")}},
		Customs: []Custom{
			{Name: "first", Data: []byte("1"), After: SectionCustom},
			{Name: "second", Data: []byte{}, After: SectionTag},
			{Name: "third", Data: []byte("3"), After: SectionData},
		},
	}
	encoded := want.Encode()
	got, err := Decode(encoded)
	if err != nil {
		t.Fatal(err)
	}
	got.Codes[0].Offset = 0
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("encoded -, decoded +\n%s", diff)
	}
	if !bytes.Equal(got.Encode(), encoded) {
		t.Error("encoded again, the bytes differ")
	}
}

func TestStandardGoGuestIsCanonical(t *testing.T) {
	guest := goGuest(t)
	m, err := Decode(guest)
	if err != nil {
		t.Fatal(err)
	}
	out := m.Encode()
	again, err := Decode(out)
	if err != nil {
		t.Fatal(err)
	}
	for i := range m.Codes { // the linker of Go pads the sizes of sections, so that offsets differ
		m.Codes[i].Offset, again.Codes[i].Offset = 0, 0
	}
	if !reflect.DeepEqual(m, again) { // Which takes a tenth of the time.
		t.Error(cmp.Diff(m, again))
	}
	t.Logf("%d bytes decoded, %d encoded", len(guest), len(out))
}

// ExnRefHeap is the heap type exn.
const ExnRefHeap = -23

func TestSeedsTogetherHoldEverySection(t *testing.T) {
	entries, err := os.ReadDir("testdata/seeds")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[SectionID]bool{}
	for _, e := range entries {
		b, err := os.ReadFile("testdata/seeds/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		m, err := Decode(b)
		if err != nil {
			t.Errorf("%s: %v", e.Name(), err)
			continue
		}
		for _, id := range sectionOrder {
			if len(m.appendSection(nil, id)) > 0 {
				seen[id] = true
			}
		}
	}
	if len(seen) != len(sectionOrder) {
		t.Errorf("the seeds hold the sections %v", seen)
	}
}
