package service

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/guest/internal/wire"
	"github.com/kubewasm/kubewasm/guest/view"
)

// part is a message in a message.
type part struct{ in Encoded }

// partView is a view of a part.
type partView struct{ m *part }

// numbers are fields whose keys have one byte, two and three.
var numbers = []uint32{1, 2, 14, 15, 16, 17, 31, 2046, 2047, 2048, 2049, 300_000}

// random returns a message as hosts write it: its fields in the order of their numbers.
func random(r *rand.Rand) (b []byte) {
	for _, number := range numbers {
		if r.IntN(200) == 0 {
			b = wire.AppendBytes(b, number, strings.Repeat("x", 0x3fff+r.IntN(2)))
			continue
		}
		length := []int{0, 1, 5, 9, 0x7f, 0x80, 0x81, 300}[r.IntN(8)]
		switch r.IntN(7) {
		case 0:
			b = wire.AppendVarint(b, number, r.Uint64()>>r.IntN(64))
		case 1:
			b = wire.AppendFixed32(b, number, r.Uint32())
		case 2:
			b = wire.AppendFixed64(b, number, r.Uint64())
		case 3:
			b = wire.AppendBytes(b, number, strings.Repeat("x", length))
		case 4: // Messages, or texts.
			for n := range r.IntN(12) {
				b = wire.AppendBytes(b, number, wire.AppendVarint(nil, 1, uint64(n)))
			}
		case 5: // Entries of a map.
			for n := range r.IntN(12) {
				entry := wire.AppendBytes(nil, 1, fmt.Sprint("k", n%10))
				b = wire.AppendBytes(b, number, wire.AppendVarint(entry, 2, r.Uint64()>>r.IntN(64)))
			}
		}
	}
	return b
}

// TestFieldsInOrderAreThoseOfAnyOrder reads messages of hosts as guests do, which end a search at a
// larger number and begin it where the last one ended, and as messages whose fields are in any
// order.
func TestFieldsInOrderAreThoseOfAnyOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(47, 15))
	for range 1000 {
		b := random(r)
		ordered, any := encoded(b, 0), EncodedOf(b)
		for range 10 {
			number := numbers[r.IntN(len(numbers))]
			key := uint64(number)<<3 | uint64([]wire.Type{wire.Varint, wire.Fixed32, wire.Fixed64, wire.Bytes}[r.IntN(4)])
			at, n := ordered.find(key)
			// Of several fields with the same number the last counts, and hosts write one. Only of
			// bytes the place counts.
			wantAt, want := any.find(key)
			if moved := (at == 0) != (wantAt == 0) || key&7 == uint64(wire.Bytes) && at != wantAt; (moved || n != want) && any.count(any.reader(), number) < 2 {
				t.Fatalf("%.20x: field %d of type %d: got %d at %d, want %d at %d", b, key>>3, key&7, n, at, want, wantAt)
			}
			if diff := cmp.Diff(read(&any, number), read(&ordered, number)); diff != "" {
				t.Fatalf("%.20x: field %d (-any order +order of hosts):\n%s", b, number, diff)
			}
		}
	}
}

// read returns what generated code reads in a field that it takes for a map, a list of texts, of
// numbers or of messages.
func read(e *Encoded, number uint32) []string {
	var of Entries[uint64]
	field := NumbersOf(number, view.Varint, Int[uint64])
	var texts List[string]
	var list List[uint64]
	var messages Messages[part, partView]
	m := of.Map(e, &field)
	out := []string{fmt.Sprint("entries ", m.Len(), m.Get("k1"), m.Has("k9"), m.Get("k9"), m.Has("none"), m.Len())}
	for key, value := range m.All {
		out = append(out, fmt.Sprint(key, "=", value))
	}
	out = append(out, texts.Values(e, number, view.Text)...)
	for _, kind := range []view.NumberKind{view.Varint, view.Fixed32, view.Fixed64} {
		list = List[uint64]{}
		out = append(out, fmt.Sprint(list.Numbers(e, number, kind, Int[uint64])))
	}
	for _, v := range messages.Views(e, uint64(number)<<3|uint64(wire.Bytes)) {
		out = append(out, fmt.Sprint("message ", v.m.in.Number(1<<3)))
	}
	return out
}

// TestMapsOfAnyNumberOfEntries looks up keys in maps of few entries, which are read where they lie,
// and of many.
func TestMapsOfAnyNumberOfEntries(t *testing.T) {
	for n := range 3 * fewEntries {
		var b []byte
		var keys []string
		for i := range n {
			key := fmt.Sprint("key", i)
			keys = append(keys, key)
			b = wire.AppendBytes(b, 21, wire.AppendBytes(wire.AppendBytes(nil, 1, key), 2, strings.Repeat("v", i*20)))
		}
		b = wire.AppendBytes(b, 22, "after")
		for name, e := range map[string]Encoded{"order of hosts": encoded(b, 0), "any order": EncodedOf(b)} {
			var of Entries[string]
			field := ValuesOf(21, view.Text)
			m := of.Map(&e, &field)
			for i, key := range keys {
				if got, ok := m.Lookup(key); !ok || len(got) != i*20 {
					t.Errorf("%s: %d entries: %s is %q, %v", name, n, key, got, ok)
				}
			}
			var got []string
			for key := range m.All {
				got = append(got, key)
			}
			if m.Has("key") || m.Len() != n || !slices.Equal(got, keys) {
				t.Errorf("%s: %d entries: got %d: %q", name, n, m.Len(), got)
			}
			e, of = EncodedOf(nil), of.Reset() // The next request is empty.
			if m.Len() != 0 || m.Has("key0") {
				t.Errorf("%s: a view that was kept has %d entries of the request before", name, m.Len())
			}
		}
	}
}
