package view

import (
	"unsafe"

	"github.com/kubewasm/kubewasm/guest/internal/wire"
	"github.com/kubewasm/kubewasm/internal/json"
)

// entry is a key of a map with its value.
type entry struct{ Key, Value string }

// StringMap is a view of a map of strings to strings, such as labels. The zero
// value is an empty map. Of several entries with the same key the last counts, as
// in every protobuf and JSON decoder.
//
// A plugin looks up the same few keys in every object. So a look-up scans the
// bytes, and the answers of the last look-ups are cached. For the usual label
// this costs less than decoding the map.
type StringMap struct {
	m *message
	// at is the key of its answers.
	at cacheKey
}

// StringMap returns a field of type map<string, string>.
func (v View) StringMap(n uint32) StringMap {
	return StringMap{v.m, keyOf(madeAnswers, v.version, n)}
}

// answers are the answers of the last look-ups in a map, up to maxRecent.
type answers struct {
	cached
	first answer
}

const maxRecent = 4

// answer is that of a look-up in a version of a map.
type answer struct {
	entry
	version uint32
	found   bool
	// turn is the index of the answer that is replaced next. Only that of the
	// first answer is used.
	turn uint8
	next *answer
}

// nothing is the answer of a map without entries.
var nothing answer

// Get returns the value of key, empty if there is none.
func (s StringMap) Get(key string) string { return s.answer(key).Value }

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
	if l := reusable[answers](m, s.at); l != nil {
		for a := &l.first; a != nil; a = a.next {
			// The key mostly is the same constant, which compares without a call.
			if uint64(a.version) == s.at.version() && len(a.Key) == len(key) && (unsafe.StringData(a.Key) == unsafe.StringData(key) || a.Key == key) {
				return a
			}
		}
	}
	return m.lookup(s.at.version(), s.at.field(), key)
}

func (m *message) lookup(version uint64, n uint32, key string) *answer {
	if o := m.object; o.part == metadataPart && o.missing>>n&1 != 0 && m == &o.root {
		if a := m.fetchEntry(version, n, key); a != nil {
			return a
		}
	}
	m.ready(version, n)
	f, ok := m.spanned(n)
	if !ok {
		return &nothing
	}
	if m.object.once != nil {
		return m.lookupOnce(version, f, n, key)
	}
	a := m.answerTo(version, n, key)
	a.version, a.found = uint32(version), false
	var value string
	if all := hit[values[[]entry]](m, keyOf(madeEntries, version, n)); all != nil {
		for _, e := range all.of {
			if e.Key == key {
				value, a.found = e.Value, true
			}
		}
	} else {
		var raw []byte
		raw, a.found = m.value(f, n, key)
		value = m.keep(raw, a.Value)
	}
	a.Value = value
	return a
}

// answerTo returns the entry for the answer to a key: that of the version before, or
// the least recently used one.
func (m *message) answerTo(version uint64, n uint32, key string) *answer {
	l := cacheFor[answers](m, keyOf(madeAnswers, version, n))
	last, count := &l.first, 0
	for a := last; a != nil; a = a.next {
		if len(a.Key) == len(key) && unsafe.StringData(a.Key) == unsafe.StringData(key) {
			return a
		}
		last = a
		count++
	}
	a := &l.first
	switch {
	case a.version == 0: // It is new.
	case count < maxRecent:
		a = &answer{}
		last.next = a
	default:
		for range a.turn {
			a = a.next
		}
		l.first.turn = (l.first.turn + 1) % maxRecent
	}
	a.Key = key
	return a
}

// lookupOnce is lookup in an object that is read once.
func (m *message) lookupOnce(version uint64, f field, n uint32, key string) *answer {
	a := &m.object.once.found
	var raw []byte
	decoded := false
	if m.object.json {
		raw, a.found = m.object.once.walker.Lookup(int(uint32(f.value)), int(f.value>>32), key)
		raw, decoded = unquoted(raw)
	} else {
		raw, a.found = m.value(f, n, key)
	}
	if m.object.kept && !decoded {
		a.Value = inPlace(raw)
		return a
	}
	// A value with separate memory is cached.
	to := m.answerTo(version, n, key)
	to.version, to.found = uint32(version), a.found
	if decoded {
		to.Value = inPlace(raw)
	} else {
		to.Value = m.keep(raw, to.Value)
	}
	return to
}

// value returns the value of the last entry with the key in field n, which lies at f.
func (m *message) value(f field, n uint32, key string) (value []byte, found bool) {
	tag := m.tag(n)
	b := m.object.bytes[:f.value>>32]
	for start, end := wire.Find(b, int(f.first), tag); end >= 0; start, end = wire.Find(b, end, tag) {
		if e := entryOf(b[start:end]); inPlace(e.key) == key {
			value, found = e.value, true
		}
	}
	return value, found
}

type rawEntry struct{ key, value []byte }

func entryOf(b []byte) (e rawEntry) {
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
			value = b[start+1 : end] // After the key, which has one byte.
		}
	}
	return value
}

func (s StringMap) entries() []entry { return entriesOf(s.m, s.at, true) }

// entriesOf returns the entries of the map with the key at. The values are strings
// if text is set, and undecoded bytes otherwise.
func entriesOf(m *message, at cacheKey, text bool) []entry {
	if m == nil {
		return nil
	}
	if all := hit[values[[]entry]](m, keyOf(madeEntries, at.version(), at.field())); all != nil {
		return all.of
	}
	return m.makeEntries(at.version(), at.field(), text)
}

// makeEntries is entriesOf for a map that was not read yet.
func (m *message) makeEntries(version uint64, n uint32, text bool) []entry {
	m.ready(version, n)
	f, ok := m.spanned(n)
	if !ok {
		return nil
	}
	raw := m.repeated(f)
	list := []entry{}
	if m.object.json {
		for it := json.Object(bytesOf(m.keep(raw, ""))); it.Next(); { // One copy for all.
			e := entry{it.Key(), inPlace(it.Value())}
			if text {
				e.Value = it.Value().String()
			}
			list = append(list, e)
		}
		cacheFor[values[[]entry]](m, keyOf(madeEntries, version, n)).of = list
		return list
	}
	kept := m.keep(raw, "") // One copy for all.
	first := uint32(m.object.spanOf(raw))
	copyOf := func(part []byte) string {
		if len(part) == 0 {
			return ""
		}
		span := m.object.spanOf(part)
		return kept[uint32(span)-first : uint32(span>>32)-first]
	}
	count := 0
	m.each(f, n, func(uint64) { count++ })
	list = make([]entry, 0, count)
	m.eachEntry(f, n, text, func(key string, value []byte) {
		list = append(list, entry{copyOf(bytesOf(key)), copyOf(value)})
	})
	cacheFor[values[[]entry]](m, keyOf(madeEntries, version, n)).of = list
	return list
}

// eachEntry calls call with each entry of a map, field n, which lies at f: the key and the bytes
// of the value, or its JSON. In protobuf both lie in the object, and a value that is a number has
// bytes unless all should be text.
func (m *message) eachEntry(f field, n uint32, text bool, call func(key string, value []byte)) {
	if m.object.json {
		for it := json.Object(m.object.at(f.value)); it.Next(); {
			call(it.Key(), it.Value())
		}
		return
	}
	m.each(f, n, func(entry uint64) {
		raw := m.object.at(entry)
		e := entryOf(raw)
		if !text && e.value == nil {
			e.value = numberEntry(raw)
		}
		call(inPlace(e.key), e.value)
	})
}
