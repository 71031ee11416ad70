package view

import (
	"math/bits"
	"unsafe"

	"github.com/kubewasm/kubewasm/guest/internal/wire"
	"github.com/kubewasm/kubewasm/internal/json"
)

// Entry is a key of a map with its value.
type Entry struct{ Key, Value string }

// StringMap is a view of a map of strings to strings, such as labels. The zero
// value is an empty map. Of several entries with the same key the last counts, as
// in every protobuf and JSON decoder.
//
// A plugin looks up the same few keys in every object. So a look-up scans the
// bytes and the answers of the last look-ups are kept, which for the usual label
// costs less than decoding the map into anything.
type StringMap struct {
	m              *message
	version, field uint32
}

// StringMap returns a field of type map<string, string>.
func (v View) StringMap(n uint32) StringMap { return StringMap{v.m, v.version, n} }

// answer is that of a look-up in a version of a map.
type answer struct {
	Entry
	version uint32
	found   bool
}

// nothing is the answer of a map without entries.
var nothing answer

// Get returns the value of key, empty if there is none.
func (s StringMap) Get(key string) string {
	// What answer does, without another call.
	if m := s.m; m != nil {
		if l := m.list(s.version, s.field); l != nil && len(l.recent) != 0 {
			if a := &l.recent[0]; a.version == s.version && len(a.Key) == len(key) && unsafe.StringData(a.Key) == unsafe.StringData(key) {
				return a.Value
			}
		}
	}
	return s.answer(key).Value
}

// Has reports whether the map has the key.
func (s StringMap) Has(key string) bool { return s.answer(key).found }

// Lookup returns the value of key and whether there is one.
func (s StringMap) Lookup(key string) (value string, ok bool) {
	a := s.answer(key)
	return a.Value, a.found
}

// Len returns the number of entries.
func (s StringMap) Len() int { return len(s.entries()) }

// All calls yield with each key and value, in the order in which the object has
// them, until it returns false: for k, v := range labels.All.
func (s StringMap) All(yield func(key, value string) bool) {
	for _, e := range s.entries() {
		if !yield(e.Key, e.Value) {
			return
		}
	}
}

// answer returns the value of key, which is only valid until the next look-up.
func (s StringMap) answer(key string) *answer {
	m := s.m
	if m == nil {
		return &nothing
	}
	if l := m.list(s.version, s.field); l != nil {
		for i := range l.recent {
			a := &l.recent[i]
			if a.version == s.version && len(a.Key) == len(key) && wire.Equal(a.Key, key) {
				return a
			}
		}
	}
	return m.lookup(s.version, s.field, key)
}

func (m *message) lookup(version, n uint32, key string) *answer {
	m.ready(version)
	if !m.has(n) {
		return &nothing
	}
	l := m.list(version, n)
	if l == nil {
		l = m.newList(n)
	}
	if int(l.next) == len(l.recent) {
		l.recent = append(l.recent, answer{})
	}
	a := &l.recent[l.next]
	l.next = (l.next + 1) % maxRecent
	a.version, a.found = version, false
	var value string
	switch {
	case l.entries != nil:
		for i := range l.entries {
			if l.entries[i].Key == key {
				value, a.found = l.entries[i].Value, true
			}
		}
	case m.object.json:
		for it := json.Object(m.bytes(n)); it.Next(); {
			if it.Key() == key {
				value, a.found = it.Value().String(), true
			}
		}
	default:
		var raw []byte
		raw, a.found = findEntry(m.repeated(n), m.key(n), key)
		value = m.keep(raw, a.Value)
	}
	a.Value = value
	if unsafe.StringData(a.Key) != unsafe.StringData(key) || len(a.Key) != len(key) {
		a.Key = key
	}
	return a
}

// findEntry returns the value of the last entry with the key in raw, which begins
// with an entry. number is the key of the field that the entries are.
func findEntry(raw []byte, number uint64, key string) (value []byte, found bool) {
	for i := 0; i < len(raw); {
		if number < 0x80 {
			if i = passEntries(raw, i, byte(number), len(key)); i >= len(raw) {
				break
			}
			// An entry of the usual form whose key has the right length.
			if at, end := i+4+len(key), 0; at+2 <= len(raw) {
				end = at + 2 + int(raw[at+1])
				if raw[i] == byte(number) && int(raw[i+1]) == end-i-2 && raw[i+2] == 1<<3|byte(wire.Bytes) && int(raw[i+3]) == len(key) && raw[at] == 2<<3|byte(wire.Bytes) && end-i < 0x80 && end <= len(raw) {
					if wire.Equal(inPlace(raw[i+4:at]), key) {
						value, found = raw[at+2:end], true
					}
					i = end
					continue
				}
			}
		}
		length, e, ok := anyEntry(raw[i:], number)
		if length == 0 {
			break
		}
		if ok && string(e.key) == key {
			value, found = e.value, true
		}
		i += length
	}
	return value, found
}

// passEntries passes over entries of the usual form, one byte for each number,
// whose keys do not have the given length, and returns the index after them. It
// is written as readUsual is, for the same reasons.
//
//go:noinline
func passEntries(raw []byte, from int, number byte, keyLen int) int {
	b, n, i, wanted := unsafe.Pointer(unsafe.SliceData(raw)), uint(len(raw)), uint(from), uint(keyLen)
	for i+4 <= n {
		// The key of the entry, its length, the key of its key, the key's length.
		w := load32(b, i)
		at, end := i+4+w>>24, i+2+w>>8&0x7f
		// Behind the key comes the value, up to the end.
		v := load16(b, min(at, n-2))
		unusual := (w&0x80ff80ff ^ (uint(number) | (1<<3|uint(wire.Bytes))<<16)) |
			(v ^ ((end-at-2)<<8 | (2<<3 | uint(wire.Bytes)))) |
			above(at+2, end) | above(end, n)
		// The last is 1 if the lengths are equal.
		if unusual|((w>>24^wanted)-1)>>(bits.UintSize-1) != 0 {
			break
		}
		i = end
	}
	return int(i)
}

// anyEntry reads any field at the beginning of b, and says how long it is and
// whether it is an entry; 0 if it does not make sense.
//
//go:noinline
func anyEntry(b []byte, number uint64) (n int, e rawEntry, ok bool) {
	r := wire.NewReader(b)
	if !r.Next() {
		return 0, e, false
	}
	_, n = r.Span()
	if uint64(r.Field)<<3|uint64(r.Type) != number {
		return n, e, false
	}
	return n, readEntry(r.Bytes()), true
}

type rawEntry struct{ key, value []byte }

func readEntry(b []byte) (e rawEntry) {
	for r := wire.NewReader(b); r.Next(); {
		switch r.Field {
		case 1:
			e.key = r.Bytes()
		case 2:
			e.value = r.Bytes()
		}
	}
	return e
}

// numberEntry returns the bytes of the value of an entry, if it is a number.
func numberEntry(b []byte) (value []byte) {
	for r := wire.NewReader(b); r.Next(); {
		if r.Field == 2 && r.Type != wire.Bytes {
			start, end := r.Span()
			value = b[start+1 : end] // Behind the key, which has one byte.
		}
	}
	return value
}

func (s StringMap) entries() []Entry {
	m := s.m
	if m == nil {
		return nil
	}
	if l := m.list(s.version, s.field); l != nil && l.entries != nil {
		return l.entries
	}
	return m.makeEntries(s.version, s.field, true)
}

// makeEntries reads every entry of a map. The values are strings, or bytes of any
// other kind if they are not text.
func (m *message) makeEntries(version, n uint32, text bool) []Entry {
	m.ready(version)
	raw := m.repeated(n)
	if raw == nil {
		return nil
	}
	l := m.list(version, n)
	if l == nil {
		l = m.newList(n)
	}
	l.entries = []Entry{}
	if m.object.json {
		for it := json.Object(raw); it.Next(); {
			value := inPlace(it.Value())
			if text {
				value = it.Value().String()
			}
			l.entries = append(l.entries, Entry{it.Key(), value})
		}
		return l.entries
	}
	raw = bytesOf(m.keep(raw, "")) // One copy for all.
	count := 0
	m.each(n, raw, func([]byte) { count++ })
	l.entries = make([]Entry, 0, count)
	m.each(n, raw, func(entry []byte) {
		e := readEntry(entry)
		if !text && e.value == nil {
			e.value = numberEntry(entry)
		}
		l.entries = append(l.entries, Entry{inPlace(e.key), inPlace(e.value)})
	})
	return l.entries
}
