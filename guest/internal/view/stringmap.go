package view

import (
	"unsafe"

	"github.com/kubewasm/kubewasm/guest/internal/json"
	"github.com/kubewasm/kubewasm/guest/internal/wire"
)

// String returns raw as a string that shares its memory.
func String(raw []byte) string { return unsafe.String(unsafe.SliceData(raw), len(raw)) }

// Entry is a key with its value.
type Entry struct{ Key, Value string }

// StringMap is a field of type map<string, string>.
//
// A plugin looks up the same few keys in every object. So a lookup scans the
// bytes and the answers of the last lookups are kept, which for the usual label
// costs less than decoding the map into anything.
type StringMap struct {
	list List
	// recent are the answers of the last lookups; next is the one to replace.
	recent [2]lookup
	next   uint8
	// all holds every entry once they have been asked for.
	all     []Entry
	decoded bool
}

type lookup struct {
	key, value   string
	known, found bool
}

// Add notes the entry that r found.
func (m *StringMap) Add(r *wire.Reader) { m.list.Add(r) }

// SetJSON notes the object in raw.
func (m *StringMap) SetJSON(raw []byte) { m.list.SetJSON(raw) }

// Lookup returns the value of key. Of several entries with the same key the
// last counts, as in every protobuf and JSON decoder.
func (m *StringMap) Lookup(key string) (string, bool) {
	for i := range m.recent {
		if l := &m.recent[i]; l.known && l.key == key {
			return l.value, l.found
		}
	}
	l := &m.recent[m.next]
	m.next ^= 1
	*l = lookup{key: key, known: true}
	if m.decoded {
		for i := range m.all {
			if m.all[i].Key == key {
				l.value, l.found = m.all[i].Value, true
			}
		}
		return l.value, l.found
	}
	for r := m.reader(); r.next(); {
		if r.key == key {
			l.value, l.found = r.value(), true
		}
	}
	return l.value, l.found
}

// Entries returns every entry, in the order of the bytes.
func (m *StringMap) Entries() []Entry {
	if !m.decoded {
		m.decoded = true
		m.all = make([]Entry, 0, m.list.len())
		for r := m.reader(); r.next(); {
			m.all = append(m.all, Entry{Key: r.key, Value: r.value()})
		}
	}
	return m.all
}

// entryReader walks over the entries of a map.
type entryReader struct {
	key string
	raw []byte

	isJSON bool
	json   json.Members
	wire   wire.Reader
	field  uint32
}

func (m *StringMap) reader() entryReader {
	if m.list.json {
		return entryReader{isJSON: true, json: json.Object(m.list.raw)}
	}
	return entryReader{wire: wire.NewReader(m.list.raw), field: m.list.field}
}

func (r *entryReader) next() bool {
	if r.isJSON {
		if !r.json.Next() {
			return false
		}
		r.key, r.raw = r.json.Key(), r.json.Value()
		return true
	}
	for r.wire.Next() {
		if r.wire.Field != r.field {
			continue
		}
		r.key, r.raw = "", nil
		for e := wire.NewReader(r.wire.Bytes()); e.Next(); {
			switch e.Field {
			case 1:
				r.key = e.String()
			case 2:
				r.raw = e.Bytes()
			}
		}
		return true
	}
	return false
}

func (r *entryReader) value() string {
	if r.isJSON {
		return json.Value(r.raw).String()
	}
	return String(r.raw)
}
