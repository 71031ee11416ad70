// Package view is what the typed views of Kubernetes objects are made of.
//
// A view is a value with one pointer, to what was read of a message so far. The
// message is read one level at a time, when its first field is asked for: a
// pass over the level notes scalars and strings in place and where nested and
// repeated messages lie. Nothing is copied, and what was read once is found
// again by a load.
//
// A message is either protobuf or JSON: the accessors are the same.
package view

import (
	"github.com/kubewasm/kubewasm/guest/internal/json"
	"github.com/kubewasm/kubewasm/guest/internal/wire"
)

// Message is the bytes of a message, which nobody may write to any more, since
// strings of views share their memory.
type Message struct {
	Raw  []byte
	JSON bool
	// read says that the level was read.
	read bool
}

// Unread reports whether the level is still to be read, once.
func (m *Message) Unread() bool {
	unread := !m.read
	m.read = true
	return unread
}

// Child returns the message in raw, encoded as m is.
func (m *Message) Child(raw []byte) Message { return Message{Raw: raw, JSON: m.JSON} }

// List is where the elements of a repeated field lie.
type List struct {
	// raw is the part of the protobuf message from the first element to the
	// last, other fields in between, or the JSON array.
	raw   []byte
	field uint32
	n     int
	first int
	json  bool
}

// Add notes the element that r found.
func (l *List) Add(r *wire.Reader) {
	start, end := r.Span()
	if l.n == 0 {
		l.field, l.first = r.Field, start
	}
	l.raw = r.Message()[l.first:end]
	l.n++
}

// SetJSON notes the array in raw.
func (l *List) SetJSON(raw []byte) { *l = List{raw: raw, json: true} }

// elements calls f with the bytes of each element.
func (l *List) elements(f func(raw []byte)) {
	if l.json {
		for it := json.Array(l.raw); it.Next(); {
			f(it.Value())
		}
		return
	}
	for r := wire.NewReader(l.raw); r.Next(); {
		if r.Field == l.field {
			f(r.Bytes())
		}
	}
}

// len returns the number of elements.
func (l *List) len() int {
	if l.json {
		n := 0
		l.elements(func([]byte) { n++ })
		return n
	}
	return l.n
}

// Messages returns views of the elements of a repeated message. of makes one of
// an element's data, which set filled before.
func Messages[D, V any](l *List, set func(d *D, raw []byte), of func(*D) V) []V {
	n := l.len()
	if n == 0 {
		return nil
	}
	data, views := make([]D, 0, n), make([]V, 0, n)
	l.elements(func(raw []byte) {
		if len(data) == n {
			return
		}
		var d D
		set(&d, raw)
		data = append(data, d)
		views = append(views, of(&data[len(data)-1]))
	})
	return views
}

// Strings returns the elements of a repeated string.
func (l *List) Strings() []string {
	n := l.len()
	if n == 0 {
		return nil
	}
	list := make([]string, 0, n)
	l.elements(func(raw []byte) {
		if l.json {
			list = append(list, json.Value(raw).String())
		} else {
			list = append(list, String(raw))
		}
	})
	return list
}
