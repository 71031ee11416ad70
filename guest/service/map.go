package service

import (
	"slices"

	"github.com/kubewasm/kubewasm/guest/internal/wire"
	"github.com/kubewasm/kubewasm/guest/view"
)

// Map is a view of a map of strings to values of another type. The zero value is an empty map.
// Of several entries with the same key the last counts.
type Map[V any] struct{ entries *entries[V] }

// entry is a key with its value.
type entry[V any] struct {
	key   string
	value V
}

// entries are those of a map, in the order in which they were written.
type entries[V any] struct {
	of []entry[V]
	// places are the indexes by key, if there are many.
	places map[string]int
	read   bool
}

// fewEntries is how many entries are looked through one by one.
const fewEntries = 8

// Get returns the value of key, the zero value if there is none.
func (m Map[V]) Get(key string) (value V) {
	if m.entries == nil {
		return value
	}
	value, _ = m.entries.lookup(key)
	return value
}

// Lookup returns the value of key and whether there is one.
func (m Map[V]) Lookup(key string) (value V, ok bool) {
	if m.entries == nil {
		return value, false
	}
	return m.entries.lookup(key)
}

// Has reports whether the map has the key.
func (m Map[V]) Has(key string) bool {
	_, ok := m.Lookup(key)
	return ok
}

// Len returns the number of entries.
func (m Map[V]) Len() int {
	if m.entries == nil {
		return 0
	}
	return len(m.entries.of)
}

// All calls yield with each key and value, in the order in which the message has them, until
// it returns false: for k, v := range m.All.
func (m Map[V]) All(yield func(key string, value V) bool) {
	if m.entries == nil {
		return
	}
	for _, e := range m.entries.of {
		if !yield(e.key, e.value) {
			return
		}
	}
}

func (e *entries[V]) lookup(key string) (value V, ok bool) {
	if len(e.of) <= fewEntries {
		for i := len(e.of) - 1; i >= 0; i-- {
			if e.of[i].key == key {
				return e.of[i].value, true
			}
		}
		return value, false
	}
	if len(e.places) == 0 {
		if e.places == nil {
			e.places = make(map[string]int, len(e.of))
		}
		for i := range e.of {
			e.places[e.of[i].key] = i
		}
	}
	i, ok := e.places[key]
	if ok {
		value = e.of[i].value
	}
	return value, ok
}

// Entries is a field that is a map. It is for generated code.
type Entries[V any] struct{ made *entries[V] }

// Reset returns an empty map with the memory of l.
func (l *Entries[V]) Reset() Entries[V] {
	if l.made != nil {
		clear(l.made.of)
		clear(l.made.places)
		l.made.read = false
	}
	return Entries[V]{l.made}
}

// Map returns the map in the fields of e with the number. read gets the encoded value of each
// entry.
func (l *Entries[V]) Map(e *Encoded, field uint32, read func(view.Value) V) Map[V] {
	if l.made != nil && l.made.read {
		return Map[V]{l.made}
	}
	n := e.count(field)
	if n == 0 {
		return Map[V]{}
	}
	if l.made == nil {
		l.made = new(entries[V])
	}
	made := l.made
	made.of, made.read, given.bytes = slices.Grow(made.of[:0], n), true, true
	for r := e.reader(); e.next(&r, field); {
		if r.Type == wire.Bytes {
			key, value := entryIn(r.Bytes())
			made.of = append(made.of, entry[V]{key, read(view.Value{Raw: value, Kept: true})})
		}
	}
	return Map[V]{made}
}

// entryIn returns the key of an entry and the encoded value.
func entryIn(b []byte) (key string, value []byte) {
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
