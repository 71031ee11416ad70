package view

import (
	"unsafe"

	"github.com/kubewasm/kubewasm/internal/json"
	"github.com/kubewasm/kubewasm/guest/internal/wire"
)

// Entry is a key with its value.
type Entry struct{ Key, Value string }

// StringMap is a field of type map<string, string>.
//
// A plugin looks up the same few keys in every object. So a look-up scans the
// bytes and the answers of the last look-ups are kept, which for the usual label
// costs less than decoding the map into anything.
type StringMap struct {
	message *Message
	field   *Field
	// version is that of message which the rest is of.
	version uint32
	// recent are the answers of the last look-ups; next is the one to replace.
	next   uint8
	recent [2]answer
	// all holds every entry once they have been asked for.
	all []Entry
}

type answer struct {
	Entry
	known, found bool
}

// Set makes m the field f of message.
func (m *StringMap) Set(message *Message, f *Field) { m.message, m.field = message, f }

// Lookup returns the value of key, for a view of the given version. Of several
// entries with the same key the last counts, as in every protobuf and JSON
// decoder. A nil StringMap is empty.
func (m *StringMap) Lookup(version uint32, key string) (string, bool) {
	if m == nil {
		return "", false
	}
	if m.version != version {
		m.reset(version)
	}
	for i := range m.recent {
		a := &m.recent[i]
		// The key is a constant, more often than not.
		if len(a.Key) == len(key) && a.known && (unsafe.StringData(a.Key) == unsafe.StringData(key) || a.Key == key) {
			return a.Value, a.found
		}
	}
	return m.find(key)
}

// reset forgets what was read of another version.
func (m *StringMap) reset(version uint32) {
	if m.message == nil {
		return // The map of a message that is not there.
	}
	if m.message.Version != version {
		stale()
	}
	m.version, m.all = version, nil
	m.recent[0].known, m.recent[1].known = false, false
}

func (m *StringMap) find(key string) (string, bool) {
	if m.message == nil || !m.message.Has(m.field) {
		return "", false
	}
	a := &m.recent[m.next]
	m.next ^= 1
	a.Key, a.Value, a.known, a.found = key, "", true, false
	switch {
	case m.all != nil:
		for i := range m.all {
			if m.all[i].Key == key {
				a.Value, a.found = m.all[i].Value, true
			}
		}
	case m.message.object.json:
		for it := json.Object(m.message.bytes(m.field)); it.Next(); {
			if it.Key() == key {
				a.Value, a.found = it.Value().String(), true
			}
		}
	default:
		raw, found := findEntry(m.message.repeated(m.field), key)
		a.Value, a.found = m.message.keep(raw), found
	}
	return a.Value, a.found
}

// findEntry returns the value of the last entry with the key in b, which begins
// with an entry.
//
// It passes over entries of the usual form, one byte for each number, by the
// length of their keys: like readProto with one jump for each.
func findEntry(b []byte, key string) (value []byte, found bool) {
	number := uint32(wire.Key(b) >> 3)
	// The key of the entry, its length below 0x80, the key of its key.
	usual := uint32(number<<3|uint32(wire.Bytes)) | (1<<3|uint32(wire.Bytes))<<16
	if number > 15 {
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
func anyEntry(b []byte, number uint32) (n int, e rawEntry, ok bool) {
	r := wire.NewReader(b)
	if !r.Next() {
		return 0, e, false
	}
	_, n = r.Span()
	if r.Field != number || r.Type != wire.Bytes {
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

// Entries returns every entry, in the order of the bytes, for a view of the given
// version.
func (m *StringMap) Entries(version uint32) []Entry {
	if m == nil || m.message == nil {
		return nil
	}
	if m.version != version {
		m.reset(version)
	}
	if m.all != nil || !m.message.Has(m.field) {
		return m.all
	}
	if m.message.object.json {
		m.all = []Entry{}
		for it := json.Object(m.message.bytes(m.field)); it.Next(); {
			m.all = append(m.all, Entry{it.Key(), it.Value().String()})
		}
		return m.all
	}
	// One copy for all.
	text := m.message.keep(m.message.repeated(m.field))
	raw := unsafe.Slice(unsafe.StringData(text), len(text))
	n := 0
	m.message.elements(raw, func([]byte) { n++ })
	m.all = make([]Entry, 0, n)
	m.message.elements(raw, func(entry []byte) {
		e := readEntry(entry)
		m.all = append(m.all, Entry{inPlace(e.key), inPlace(e.value)})
	})
	return m.all
}
