package wasmbin

import (
	"bytes"
	"fmt"
	"testing"
)

// TestComparesOfGo compares bytes by Go's own functions and by those that take their
// place: of any length up to some words, different at each place, at any address,
// and up to the end of the memory.
func TestComparesOfGo(t *testing.T) {
	var m module
	m.Memories = []Limits{{Min: 1}}
	m.Exports = append(m.Exports, Export{"memory", ExternMemory, 0})
	for i, r := range replacements {
		m.fn(fmt.Sprint("f", i), r.typ.Params, r.typ.Results, nil)
		c := &m.Codes[i]
		c.Body = r.body
		if len(r.locals) > 0 {
			c.LocalGroups, c.Locals, c.NumLocals = 1, r.locals, uint64(r.locals[0])
		}
	}
	bin := m.Encode()
	rewritten, _ := rewriteFor(t, bin, Options{Meter: true})
	for engine, config := range engines {
		plain, replaced := instance(t, config(), bin), instance(t, config(), rewritten)
		const size, most = 1 << 16, 43
		for _, places := range [][2]uint64{{1000, 2000}, {1001, 2002}, {1000, 1000}, {1000, 1003}, {0, size - most}, {size - most, 5}} {
			for length := range uint64(most + 1) {
				for at := range length + 1 {
					memory := bytes.Repeat([]byte("abcdefghijk"), size/11+1)[:size]
					copy(memory[places[1]:places[1]+length], memory[places[0]:places[0]+length])
					if at < length {
						memory[places[1]+at] ^= byte(0x80 | length)
						if at%2 == 0 && at+1 < length {
							memory[places[1]+at+1]++ // A second one, which must not matter.
						}
					}
					plain.Memory().Write(0, memory)
					replaced.Memory().Write(0, memory)
					for i := range replacements {
						name := fmt.Sprint("f", i)
						want, err := plain.ExportedFunction(name).Call(t.Context(), places[0], places[1], length)
						if err != nil {
							t.Fatal(err)
						}
						got, err := replaced.ExportedFunction(name).Call(t.Context(), places[0], places[1], length)
						if err != nil || got[0] != want[0] {
							t.Fatalf("%s: %d bytes at %v, different at %d: function %d returns %d, %v, want %d", engine, length, places, at, i, got, err, want[0])
						}
					}
				}
			}
		}
	}
}

// TestStandardGoGuestHasTheFunctionsThatAreReplaced fails if another Go has other ones.
func TestStandardGoGuestHasTheFunctionsThatAreReplaced(t *testing.T) {
	guest := goGuest(t)
	m, err := Decode(guest)
	if err != nil {
		t.Fatal(err)
	}
	all := m.flatTypes()
	found := make([]int, len(replacements))
	for i := range m.Codes {
		for r := range replacements {
			if bytes.Equal(m.Codes[i].Body, replacements[r].body) {
				found[r]++
			}
		}
		m.Codes[i].replace(&all[m.Functions[i]])
		for r := range replacements {
			if bytes.Equal(m.Codes[i].Body, replacements[r].body) {
				t.Errorf("function %d was not replaced", i)
			}
		}
	}
	for r, n := range found {
		if n != 1 {
			t.Errorf("function %d is there %d times", r, n)
		}
	}
}

// TestAFunctionThatLooksSimilarIsKept has the body of one that is replaced, and another
// type or locals.
func TestAFunctionThatLooksSimilarIsKept(t *testing.T) {
	r := &replacements[0]
	for name, f := range map[string]struct {
		typ    FuncType
		locals []byte
	}{
		"another type": {typ: FuncType{Params: []ValType{I64, I64, I64, I32}, Results: []ValType{I64}}},
		"locals":       {typ: r.typ, locals: []byte{1, byte(I64)}},
	} {
		c := Code{Locals: f.locals, Body: r.body}
		if c.replace(&f.typ); !bytes.Equal(c.Body, r.body) {
			t.Errorf("%s: the body was replaced", name)
		}
	}
}
