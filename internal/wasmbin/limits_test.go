package wasmbin

import (
	"bytes"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestDecodeRefusesMoreThanAnyGuestNeeds holds that as many entries of a kind as
// there may be are decoded, and that one more is refused before it costs anything.
func TestDecodeRefusesMoreThanAnyGuestNeeds(t *testing.T) {
	none := []byte{0x60, 0, 0}
	repeat := func(entry []byte, n int) []byte { return append(u(uint32(n)), bytes.Repeat(entry, n)...) }
	list := func(id SectionID, entry ...any) func(n int) []byte {
		return func(n int) []byte { return bin(section(id, repeat(asm(entry...), n))) }
	}
	for name, test := range map[string]struct {
		most int
		bin  func(n int) []byte
	}{
		"types":                   {maxTypes, list(SectionType, none)},
		"types in a group":        {maxTypes, func(n int) []byte { return bin(section(SectionType, 1, 0x4e, repeat(none, n))) }},
		"types in groups of one":  {maxTypes, list(SectionType, 0x4e, 1, none)},
		"types in groups of many": {maxTypes / 100, list(SectionType, 0x4e, 100, bytes.Repeat(none, 100))},
		"parameters":              {maxValues, func(n int) []byte { return bin(section(SectionType, 1, 0x60, repeat([]byte{0x7e}, n), 0)) }},
		"results":                 {maxValues, func(n int) []byte { return bin(section(SectionType, 1, 0x60, 0, repeat([]byte{0x7e}, n))) }},
		"parameters of all types": {maxTotalValues / maxValues, list(SectionType, 0x60, repeat([]byte{0x7e}, maxValues), 0)},
		"imports":                 {maxImports, list(SectionImport, 0, 0, 3, 0x7f, 0)},
		"functions": {MaxFunctions, func(n int) []byte {
			return bin(section(SectionFunction, repeat([]byte{0}, n)), section(SectionCode, repeat([]byte{2, 0, 0x0b}, n)))
		}},
		"tables":           {maxTables, list(SectionTable, 0x70, 0, 0)},
		"tags":             {maxTags, list(SectionTag, 0, 0)},
		"globals":          {maxGlobals, list(SectionGlobal, 0x7f, 0, i32c(0), 0x0b)},
		"exports":          {maxExports, list(SectionExport, 0, 0, 0)},
		"element segments": {maxElementSegments, list(SectionElement, 1, 0, 0)},
		"elements":         {maxElements, func(n int) []byte { return bin(section(SectionElement, 1, 1, 0, repeat([]byte{0}, n))) }},
		"element expressions": {maxElements, func(n int) []byte {
			return bin(section(SectionElement, 1, 5, 0x70, repeat([]byte{0xd0, 0x70, 0x0b}, n)))
		}},
		"elements of all segments": {maxElements / 1000, list(SectionElement, 1, 0, repeat([]byte{0}, 1000))},
		"data segments":            {maxDataSegments, list(SectionData, 1, 0)},
		"custom sections":          {maxCustoms, func(n int) []byte { return bin(bytes.Repeat(section(SectionCustom, 0), n)) }},
		"bytes of a name":          {maxNameBytes, func(n int) []byte { return bin(section(SectionExport, 1, repeat([]byte{'x'}, n), 0, 0)) }},
		"bytes of a body": {MaxBodyBytes, func(n int) []byte {
			body := slices.Concat([]byte{0}, make([]byte, n-2), []byte{0x0b})
			return bin(section(SectionFunction, 1, 0), section(SectionCode, 1, u(uint32(n)), body))
		}},
		"groups of locals": {MaxLocals, func(n int) []byte {
			body := slices.Concat(repeat([]byte{0, 0x7f}, n), []byte{0x0b})
			return bin(section(SectionFunction, 1, 0), section(SectionCode, 1, u(uint32(len(body))), body))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Decode(test.bin(test.most)); err != nil {
				t.Errorf("Decode of %d: %v", test.most, err)
			}
			b := test.bin(test.most + 1)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Decode(b)
			runtime.ReadMemStats(&after)
			if !errors.Is(err, ErrTooComplex) || len(err.Error()) > 200 {
				t.Errorf("Decode of %d: got %.300v", test.most+1, err)
			}
			// Entries that were counted one by one had been decoded before.
			if n := after.TotalAlloc - before.TotalAlloc; n > 16<<20 {
				t.Errorf("Decode allocated %d bytes for %d", n, len(b))
			}
		})
	}
}

// TestDescribeRefusesFunctionsWithoutBodies holds the bound where no body follows
// that would have to be there.
func TestDescribeRefusesFunctionsWithoutBodies(t *testing.T) {
	n := MaxFunctions + 1
	_, _, _, err := Describe(bin(section(SectionType, 1, 0x60, 0, 0), section(SectionFunction, u(uint32(n)), make([]byte, n))))
	if !errors.Is(err, ErrTooComplex) {
		t.Errorf("got %v", err)
	}
}

// TestErrorsAreShort holds that no name of a guest makes a message long.
func TestErrorsAreShort(t *testing.T) {
	long := strings.Repeat("x", maxNameBytes-len(ReservedPrefix))
	name := func(s string) []byte { return append(u(uint32(len(s))), s...) }
	for what, b := range map[string][]byte{
		"an export that is not there": bin(section(SectionExport, 1, name(long), 0, 0)),
		"an export that is reserved":  bin(section(SectionExport, 1, name(ReservedPrefix+long), 0, 0)),
		"an import that is reserved":  bin(section(SectionImport, 1, name(ReservedPrefix+long), name(long), 3, 0x7f, 0)),
		"a name that is no UTF-8":     bin(section(SectionExport, 1, name(long+"\xff"), 0, 0)),
	} {
		if _, _, err := Rewrite(b, Options{}); err == nil || len(err.Error()) > 500 {
			t.Errorf("%s: got %.600v", what, err)
		}
	}
}

// TestNamesBeyondTheLimitsAreDropped holds that too many names, or one that is too
// long, leave a module without names.
func TestNamesBeyondTheLimitsAreDropped(t *testing.T) {
	subsection := func(id int, content ...any) []byte {
		b := asm(content...)
		return asm(id, u(uint32(len(b))), b)
	}
	functions := func(n int) []byte {
		return subsection(namesFunctions, u(uint32(n)), bytes.Repeat([]byte{0, 1, 'a'}, n))
	}
	long := func(n int) []byte { return append(u(uint32(n)), bytes.Repeat([]byte{'x'}, n)...) }
	for name, test := range map[string]struct {
		names   []byte
		dropped bool
	}{
		"a million functions":           {functions(maxNames), false},
		"more than a million functions": {functions(maxNames + 1), true},
		"a long name of a function":     {subsection(namesFunctions, 1, 0, long(maxNameBytes)), false},
		"too long a name of a function": {subsection(namesFunctions, 1, 0, long(maxNameBytes+1)), true},
		"a long name of the module":     {subsection(namesModule, long(maxNameBytes)), false},
		"too long a name of the module": {subsection(namesModule, long(maxNameBytes+1)), true},
	} {
		_, info := rewriteFor(t, bin(section(SectionCustom, 4, []byte(nameSection), test.names)), Options{Meter: true})
		if slices.Contains(info.Dropped, nameSection) != test.dropped {
			t.Errorf("%s: dropped are %q", name, info.Dropped)
		}
	}
}
