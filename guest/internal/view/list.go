package view

import (
	"github.com/kubewasm/kubewasm/internal/json"
	"github.com/kubewasm/kubewasm/guest/internal/wire"
)

// List is the views of the elements of a repeated message: V is the view, D what
// it points to.
type List[D, V any] struct {
	// Views are the views once they were made, until Reset.
	Views []V
	// data is used again for the next version of the object.
	data []D
}

// Reset forgets the views, for another version of the object.
func (l *List[D, V]) Reset() { l.Views = nil }

// Make returns the views of the elements of f, in their order. of makes a view
// of the memory for an element and the bytes of its message.
func (l *List[D, V]) Make(m *Message, f *Field, of func(d *D, parent *Message, raw []byte) V) []V {
	if m.Has(f) {
		l.make(m, m.repeated(f), of)
	}
	return l.Views
}

func (l *List[D, V]) make(m *Message, raw []byte, of func(d *D, parent *Message, raw []byte) V) {
	n := 0
	m.elements(raw, func([]byte) { n++ })
	if n > cap(l.data) {
		l.data = make([]D, n)
	}
	l.Views = make([]V, 0, n)
	data := l.data[:n]
	m.elements(raw, func(element []byte) { l.Views = append(l.Views, of(&data[len(l.Views)], m, element)) })
}

// Strings is the elements of a repeated string.
type Strings struct{ list []string }

// Reset forgets the strings, for another version of the object.
func (l *Strings) Reset() { l.list = nil }

// Of returns the elements of f, in their order.
func (l *Strings) Of(m *Message, f *Field) []string {
	if l.list == nil && m.Has(f) {
		l.list = []string{}
		m.elements(m.repeated(f), func(raw []byte) {
			if m.object.json {
				l.list = append(l.list, json.Value(raw).String())
			} else {
				l.list = append(l.list, m.keep(raw))
			}
		})
	}
	return l.list
}

// repeated returns the bytes from the first element of f to the last, with other
// fields in between, or the array in JSON.
func (m *Message) repeated(f *Field) []byte {
	raw := m.bytes(f)
	if raw == nil || m.object.json {
		return raw
	}
	return m.raw[f.first : f.value>>32]
}

// elements calls f with each element in raw, which repeated returned.
func (m *Message) elements(raw []byte, f func([]byte)) {
	if m.object.json {
		for it := json.Array(raw); it.Next(); {
			f(it.Value())
		}
		return
	}
	key := wire.Key(raw)&^7 | uint64(wire.Bytes)
	for i := 0; i+1 < len(raw); {
		// The usual element has one byte each for key and length.
		start, end := i+2, i+2+int(raw[i+1])
		if uint64(raw[i]) != key || key >= 0x80 || raw[i+1] >= 0x80 || end > len(raw) {
			if start, end = wire.Find(raw, i, key); end < 0 {
				return
			}
		}
		f(raw[start:end:end])
		i = end
	}
}
