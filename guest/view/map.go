package view

import (
	"math"

	"github.com/kubewasm/kubewasm/guest/internal/wire"
	"github.com/kubewasm/kubewasm/internal/json"
)

// Map is a view of a map of strings to values of another type. The zero value is
// an empty map. Of several entries with the same key the last counts.
type Map[V any] struct {
	m  *message
	at cacheKey
	of func(Value) V
}

// MapOf returns a field of type map<string, …>. of converts a value of the
// object to one of the map.
func MapOf[V any](v View, n uint32, of func(Value) V) Map[V] {
	return Map[V]{v.m, keyOf(madeEntries, v.version, n), of}
}

// Get returns the value of key, the zero value if there is none.
func (s Map[V]) Get(key string) V {
	value, _ := s.Lookup(key)
	return value
}

// Lookup returns the value of key and whether there is one.
func (s Map[V]) Lookup(key string) (value V, ok bool) {
	entries := s.entries()
	for i := len(entries) - 1; i >= 0; i-- {
		if entries[i].Key == key {
			return s.value(entries[i].Value), true
		}
	}
	return value, false
}

// Has reports whether the map has the key.
func (s Map[V]) Has(key string) bool {
	for _, e := range s.entries() {
		if e.Key == key {
			return true
		}
	}
	return false
}

// Len returns the number of entries.
func (s Map[V]) Len() int { return len(s.entries()) }

// All calls yield with each key and value, in the order in which the object has
// them, until it returns false: for k, v := range m.All.
func (s Map[V]) All(yield func(key string, value V) bool) {
	for _, e := range s.entries() {
		if !yield(e.Key, s.value(e.Value)) {
			return
		}
	}
}

// value converts bytes that are kept as a string to a value.
func (s Map[V]) value(raw string) V {
	return s.of(Value{Raw: bytesOf(raw), JSON: s.m.object.json, Kept: true})
}

func (s Map[V]) entries() []entry {
	return entriesOf(s.m, s.at, false)
}

// MessageMap is a view of a map of strings to messages. The zero value is an
// empty map. Of several entries with the same key the last counts.
type MessageMap[V Of] struct {
	m   *message
	at  cacheKey
	typ *Type
}

// MessageMapOf returns a field of type map<string, …> with messages of type t.
func MessageMapOf[V Of](v View, n uint32, t *Type) MessageMap[V] {
	return MessageMap[V]{v.m, keyOf(madeMapMessages, v.version, n), t}
}

// Get returns the message of key, an empty one if there is none.
func (s MessageMap[V]) Get(key string) V {
	value, _ := s.Lookup(key)
	return value
}

// Lookup returns the message of key and whether there is one.
func (s MessageMap[V]) Lookup(key string) (value V, ok bool) {
	entries, views := s.all()
	for i := len(entries) - 1; i >= 0; i-- {
		if entries[i].Key == key {
			return V(views[i]), true
		}
	}
	return value, false
}

// Has reports whether the map has the key.
func (s MessageMap[V]) Has(key string) bool {
	_, ok := s.Lookup(key)
	return ok
}

// Len returns the number of entries.
func (s MessageMap[V]) Len() int {
	entries, _ := s.all()
	return len(entries)
}

// All calls yield with each key and message, in the order in which the object
// has them, until it returns false: for k, v := range m.All.
func (s MessageMap[V]) All(yield func(key string, value V) bool) {
	entries, views := s.all()
	for i, e := range entries {
		if !yield(e.Key, V(views[i])) {
			return
		}
	}
}

// all returns the entries and, for each, the view of its message.
func (s MessageMap[V]) all() ([]entry, []View) {
	entries := entriesOf(s.m, s.at, false)
	if len(entries) == 0 {
		return nil, nil
	}
	m, version := s.m, s.at.version()
	if l := hit[messages](m, s.at); l != nil {
		return entries, l.views
	}
	m.ready(version, s.at.field())
	f := m.position(s.at.field()) // It is there, since there are entries.
	l := cacheFor[messages](m, s.at)
	if len(entries) > len(l.elements) {
		l.elements = m.object.makeMessages(len(entries), s.typ)
	}
	l.views = make([]View, 0, len(entries))
	m.eachEntry(f, s.at.field(), false, func(_ string, value []byte) {
		e := &l.elements[len(l.views)]
		e.place(0)
		if value != nil {
			e.place(m.object.spanOf(value))
		}
		l.views = append(l.views, View{e, version})
	})
	return entries, l.views
}

// Text reads a value of a map or an element, of type string.
func Text(v Value) string {
	if v.JSON {
		return v.Text(bytesOf(json.Value(v.Raw).String()))
	}
	return v.Text(v.Raw)
}

// Data reads a value of a map or an element, of type bytes. In JSON it is
// base64.
func Data(v Value) []byte {
	if v.JSON {
		return base64(v.Raw)
	}
	return bytesOf(v.Text(v.Raw))
}

// Int returns a function that reads the value of a map, a whole number of the
// kind.
func Int[T integer](kind NumberKind) func(Value) T {
	return func(v Value) T {
		if v.JSON {
			return T(jsonInt64(v.Raw))
		}
		return T(kind.read(v.Raw))
	}
}

// Float returns a function that reads the value of a map, a float or double.
func Float[T float32 | float64](kind NumberKind) func(Value) T {
	return func(v Value) T {
		switch {
		case v.JSON:
			return T(jsonFloat64(v.Raw))
		case kind == Fixed32:
			return T(math.Float32frombits(uint32(kind.read(v.Raw))))
		}
		return T(math.Float64frombits(kind.read(v.Raw)))
	}
}

// Bool reads the value of a map, a truth value.
func Bool(v Value) bool {
	if v.JSON {
		b, _ := json.Value(v.Raw).Bool()
		return b
	}
	return Varint.read(v.Raw) != 0
}

// Enum returns a function that reads the value of a map, an enumeration's.
func Enum[T ~int32](values []EnumValue) func(Value) T {
	return func(v Value) T {
		if v.JSON {
			return T(jsonEnum(v.Raw, values))
		}
		return T(Varint.read(v.Raw))
	}
}

// read reads the number at the beginning of b, 0 if there is none.
func (k NumberKind) read(b []byte) (n uint64) {
	switch k {
	case Varint:
		n, _ = wire.Uvarint(b, 0)
	case Zigzag:
		n, _ = wire.Uvarint(b, 0)
		n = uint64(zigzag(int64(n)))
	case Fixed32:
		n, _ = wire.Fixed(b, 0, wire.Fixed32)
	case Fixed64:
		n, _ = wire.Fixed(b, 0, wire.Fixed64)
	}
	return n
}
