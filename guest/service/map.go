package service

import (
	"unsafe"

	"github.com/kubewasm/kubewasm/guest/internal/wire"
	"github.com/kubewasm/kubewasm/guest/view"
)

// Map is a view of a map of strings to values of another type. The zero value is an empty map.
// Of several entries with the same key the last counts.
type Map[V any] struct{ of *Entries[V] }

// Entries is a field that is a map. It is for generated code.
type Entries[V any] struct {
	// in is the message with the field that has the key, and read reads the value of an entry.
	in   *Encoded
	key  uint64
	read func(view.Value) V
	// made are the entries, if there are many. They are read when one is looked up.
	made *entries[V]
}

// entries are those of a map, in the order in which they were written.
type entries[V any] struct {
	of []entry[V]
	// places are the indexes by key.
	places map[string]int
	read   bool
}

// entry is a key with its value.
type entry[V any] struct {
	key   string
	value V
}

// fewEntries is how many entries are looked through where they lie in the message.
const fewEntries = 8

// Map returns the map in the fields of e with the number. read gets the encoded value of each
// entry.
func (l *Entries[V]) Map(e *Encoded, field uint32, read func(view.Value) V) Map[V] {
	if l.in == nil {
		if e.n == 0 {
			return Map[V]{}
		}
		l.in, l.key, l.read = e, uint64(field)<<3|uint64(wire.Bytes), read
	}
	return Map[V]{l}
}

// Reset returns an empty map with the memory of l.
func (l *Entries[V]) Reset() Entries[V] {
	if l.made != nil {
		clear(l.made.of)
		clear(l.made.places)
		l.made.read = false
	}
	return Entries[V]{made: l.made}
}

// Get returns the value of key, the zero value if there is none.
func (m Map[V]) Get(key string) (value V) {
	value, _ = m.Lookup(key)
	return value
}

// Lookup returns the value of key and whether there is one.
func (m Map[V]) Lookup(key string) (value V, ok bool) {
	if m.of == nil {
		return value, false
	}
	if m.of.made != nil && m.of.made.read {
		return m.of.made.lookup(key)
	}
	e, n := m.of.in, 0
	var found []byte
	for start, end, more := e.part(m.of.key, 0); more; start, end, more = e.part(m.of.key, end) {
		if n++; n > fewEntries {
			return m.of.all().lookup(key)
		}
		if of, encoded := entryIn(e.contents(start, end)); of == key {
			found, ok = encoded, true
		}
	}
	if ok {
		value = m.of.value(found)
	}
	return value, ok
}

// Has reports whether the map has the key.
func (m Map[V]) Has(key string) bool {
	_, ok := m.Lookup(key)
	return ok
}

// Len returns the number of entries.
func (m Map[V]) Len() (n int) {
	switch {
	case m.of == nil:
		return 0
	case m.of.made != nil && m.of.made.read:
		return len(m.of.made.of)
	}
	for _, end, more := m.of.in.part(m.of.key, 0); more; _, end, more = m.of.in.part(m.of.key, end) {
		n++
	}
	return n
}

// All calls yield with each key and value, in the order in which the message has them, until
// it returns false: for k, v := range m.All.
func (m Map[V]) All(yield func(key string, value V) bool) {
	if m.of == nil {
		return
	}
	e := m.of.in
	for start, end, more := e.part(m.of.key, 0); more; start, end, more = e.part(m.of.key, end) {
		key, encoded := entryIn(e.contents(start, end))
		given.bytes = true
		if !yield(key, m.of.value(encoded)) {
			return
		}
	}
}

// value reads the value of an entry.
func (l *Entries[V]) value(encoded []byte) V {
	given.bytes = true
	return l.read(view.Value{Raw: encoded, Kept: true})
}

// all reads the entries.
func (l *Entries[V]) all() *entries[V] {
	if l.made == nil {
		l.made = &entries[V]{places: map[string]int{}}
	}
	made := l.made
	made.of, made.read = made.of[:0], true
	for key, value := range (Map[V]{l}).All {
		made.places[key] = len(made.of)
		made.of = append(made.of, entry[V]{key, value})
	}
	return made
}

func (e *entries[V]) lookup(key string) (value V, ok bool) {
	i, ok := e.places[key]
	if ok {
		value = e.of[i].value
	}
	return value, ok
}

// entryIn returns the key of an entry and the encoded value.
func entryIn(b []byte) (key string, value []byte) {
	if len(b) >= 2 && b[0] == 1<<3|byte(wire.Bytes) && int(b[1]) <= len(b)-2 && b[1] < 0x80 {
		text, rest := b[2:2+b[1]], b[2+b[1]:] // As nearly all are.
		switch n := len(rest); {
		case n >= 2 && rest[0] == 2<<3|byte(wire.Bytes) && int(rest[1]) == n-2 && n-2 < 0x80:
			return unsafe.String(unsafe.SliceData(text), len(text)), rest[2:]
		case n == 9 && rest[0] == 2<<3|byte(wire.Fixed64), n == 5 && rest[0] == 2<<3|byte(wire.Fixed32),
			n == 2 && rest[0] == 2<<3|byte(wire.Varint) && rest[1] < 0x80:
			return unsafe.String(unsafe.SliceData(text), len(text)), rest[1:]
		}
	}
	for r := wire.NewReader(b); r.Next(); {
		switch r.Field {
		case 1:
			key = r.String()
		case 2:
			if value = r.Bytes(); r.Type != wire.Bytes {
				start, end := r.Span()
				value = b[start+1 : end] // After the key, which has one byte.
			}
		}
	}
	return key, value
}
