package view

import (
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

// answer is that of a look-up.
type answer struct {
	Entry
	known, found bool
}

// Get returns the value of key, empty if there is none.
func (s StringMap) Get(key string) string {
	value, _ := s.Lookup(key)
	return value
}

// Has reports whether the map has the key.
func (s StringMap) Has(key string) bool {
	_, ok := s.Lookup(key)
	return ok
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

// Lookup returns the value of key and whether there is one.
func (s StringMap) Lookup(key string) (value string, ok bool) {
	m := s.m
	if m == nil {
		return "", false
	}
	if m.version == s.version {
		if l := m.list(s.version, s.field); l != nil {
			for i := range l.recent {
				a := &l.recent[i]
				// The key is a constant, more often than not.
				if len(a.Key) == len(key) && a.known && (unsafe.StringData(a.Key) == unsafe.StringData(key) || a.Key == key) {
					return a.Value, a.found
				}
			}
		}
	}
	return m.lookup(s.version, s.field, key)
}

func (m *message) lookup(version, n uint32, key string) (string, bool) {
	m.ready(version)
	if !m.has(n) {
		return "", false
	}
	l := m.list(version, n)
	if l == nil {
		l = m.newList(n)
	}
	a := &l.recent[l.next]
	l.next = (l.next + 1) % uint8(len(l.recent))
	old := a.Value
	a.Key, a.Value, a.known, a.found = key, "", true, false
	switch {
	case l.entries != nil:
		for i := range l.entries {
			if l.entries[i].Key == key {
				a.Value, a.found = l.entries[i].Value, true
			}
		}
	case m.object.json:
		for it := json.Object(m.bytes(n)); it.Next(); {
			if it.Key() == key {
				a.Value, a.found = it.Value().String(), true
			}
		}
	default:
		raw, found := findEntry(m.repeated(n), m.key(n), key)
		a.Value, a.found = m.keep(raw, old), found
	}
	return a.Value, a.found
}

// findEntry returns the value of the last entry with the key in b, which begins
// with an entry. number is the key of the field that the entries are.
//
// It passes over entries of the usual form, one byte for each number, by the
// length of their keys: like readProto with one jump for each.
func findEntry(b []byte, number uint64, key string) (value []byte, found bool) {
	// The key of the entry, its length below 0x80, the key of its key.
	usual := uint32(number) | (1<<3|uint32(wire.Bytes))<<16
	if number >= 0x80 {
		usual = 1 << 8 // No entry is usual.
	}
	for i := 0; i < len(b); {
		if i+6 <= len(b) {
			w := load32(b[i : i+4])
			at, end := i+4+int(w>>24), i+2+int(w>>8&0x7f)
			if w&0x80ff80ff == usual && at+2 <= end && end <= len(b) && b[at] == 2<<3|byte(wire.Bytes) && at+2+int(b[at+1]) == end {
				if int(w>>24) == len(key) && string(b[i+4:at]) == key {
					value, found = b[at+2:end], true
				}
				i = end
				continue
			}
		}
		n, e, ok := anyEntry(b[i:], number)
		if n == 0 {
			break
		}
		if ok && string(e.key) == key {
			value, found = e.value, true
		}
		i += n
	}
	return value, found
}

func load32(b []byte) uint32 {
	_ = b[3]
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
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
	if m.version == s.version {
		if l := m.list(s.version, s.field); l != nil && l.entries != nil {
			return l.entries
		}
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
