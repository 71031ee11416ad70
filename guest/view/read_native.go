//go:build !wasm

package view

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"github.com/kubewasm/kubewasm/guest/internal/wire"
)

// readMessage returns the message in field n of v.
func readMessage(v View, n uint32, t *Type) View {
	if m := v.m; m != nil {
		if c := found[message](m, keyOf(madeMessage, v.version, n)); c != nil {
			return View{c, v.version}
		}
		if m.key.version() == v.version && m.field(n).version != uint32(v.version) && !m.lacks(n) {
			return View{}
		}
	}
	return slowMessage(v, n, t)
}

// readViews returns the views of the elements of field n of v.
func readViews(v View, n uint32, t *Type) []View {
	if m := v.m; m != nil {
		if l := found[messages](m, keyOf(madeMessages, v.version, n)); l != nil {
			return l.views[:len(l.views):len(l.views)]
		}
		if m.key.version() == v.version && m.field(n).version != uint32(v.version) && !m.lacks(n) {
			return nil // Most Nodes have no taints.
		}
	}
	return slowViews(v, n, t)
}

// readText returns the string in field n of v.
func readText(v View, n uint32) string {
	if m := v.m; m != nil {
		if t := found[text](m, keyOf(madeText, v.version, n)); t != nil {
			return t.string
		}
	}
	return slowText(v, n)
}

// readEntry returns the value of key in s: what was answered last for the same
// constant without looking into the map.
func readEntry(s StringMap, key string) string {
	if m := s.m; m != nil {
		if l := partOf[answers](m, s.at); l != nil {
			for a := &l.first; a != nil; a = a.next {
				if uint64(a.version) == s.at.version() && len(a.Key) == len(key) && unsafe.StringData(a.Key) == unsafe.StringData(key) {
					return a.Value
				}
			}
		}
	}
	return slowEntry(s, key)
}

// noteOf returns the note of the list whose views they are, nil if they are not all
// of one.
func noteOf(views []View) *Note {
	l := listOf(views)
	if l == nil {
		return nil
	}
	if l.note == nil {
		return makeNote(views)
	}
	l.note.Version = l.key.version()
	return l.note
}

// remember keeps an answer about the lists whose views a and b are.
func remember(a, b []View, answer int32) {
	if of, with := listOf(a), listOf(b); of != nil && with != nil {
		of.with, of.withVersion, of.answer = with.id, uint32(with.key.version()), answer
	}
}

// remembered returns what is remembered of the lists whose views a and b are.
func remembered(a, b []View) (answer int32, ok bool) {
	of, with := listOf(a), listOf(b)
	if of == nil || with == nil || of.with != with.id || uint64(of.withVersion) != with.key.version() {
		return 0, false
	}
	return of.answer, true
}

var ids atomic.Uint64

// nextID returns a number that it has never returned before.
func nextID() uint64 { return ids.Add(1) }

// readUsual notes where fields of m lie, from the index at of the object on, as
// long as they are known, numbers or bytes, and have one byte for the key and one
// or two for the length. It returns the index after them.
func readUsual(m *message, at int) int {
	b := m.object.bytes[:m.end]
	for i := at; ; at = i {
		if len(b)-i < 4 {
			return at
		}
		key, n := b[i], int(b[i+1])
		k := key >> 3
		if key >= 0x80 || k == 0 || int(k) >= len(m.typ.Names) {
			return at
		}
		f := m.field(uint32(k))
		first := uint32(i)
		if uint64(f.version) == m.key.version() {
			first = f.first &^ isNumber
		}
		switch wire.Type(key & 7) {
		case wire.Varint:
			v, next := wire.Uvarint(b, i+1)
			if next < 0 || next-i > 9 {
				return at
			}
			f.value, f.first, i = v, first|isNumber, next
		case wire.Bytes:
			start := i + 2
			if n >= 0x80 {
				if b[i+2] >= 0x80 {
					return at
				}
				n, start = n&0x7f|int(b[i+2])<<7, i+3
			}
			if n > len(b)-start {
				return at
			}
			f.value, f.first, i = span(start, start+n), first, start+n
		default:
			return at
		}
		f.version = uint32(m.key.version())
	}
}

// readElements places the elements of a field with the key, count of which were
// there before, as long as one follows the other from the index at of the object
// on, up to end, and each has one byte for the key and one or two for the length.
// It returns the index after them, and how many there are now.
func readElements(m *message, key uint64, at, end int, into []message, count int) (next, total int) {
	b := m.object.bytes[:end]
	for len(b)-at >= 2 && uint64(b[at]) == key && key < 0x80 {
		start, n := at+2, int(b[at+1])
		if n >= 0x80 {
			if len(b)-at < 3 || b[at+2] >= 0x80 {
				break
			}
			start, n = at+3, n&0x7f|int(b[at+2])<<7
		}
		if n > len(b)-start {
			break
		}
		at = start + n
		if count < len(into) {
			into[count].place(span(start, at))
		}
		count++
	}
	return at, count
}

// readEntries looks for a key in the entries of a map of strings, from b[at] on, as
// long as each has one byte for each number. number is the key of the field that
// the entries are. It returns the index after them, and the span of the value in
// the last entry with that key, 0 if there is none.
func readEntries(b []byte, at int, number uint64, key string) (next int, value uint64) {
	for len(b)-at >= 4 {
		end := at + 2 + int(b[at+1])
		k := at + 4 + int(b[at+3])
		if uint64(b[at]) != number || number >= 0x80 || b[at+1] >= 0x80 || b[at+2] != 1<<3|byte(wire.Bytes) || b[at+3] >= 0x80 ||
			end > len(b) || k+2 > end || b[k] != 2<<3|byte(wire.Bytes) || int(b[k+1]) != end-k-2 {
			break
		}
		if string(b[at+4:k]) == key {
			value = span(k+2, end)
		}
		at = end
	}
	return at, value
}

// readSpans notes where the strings in the fields 1 to 4 of each of views lie, which
// are of one object, and returns where that begins, nil if it could not: unless each
// message is of those fields alone, with one byte each for the key and the length, and
// the object is of the version of the views.
func readSpans(views []View, into []Spans) *byte {
	if len(views) == 0 || len(views) > len(into) || views[0].m == nil {
		return nil
	}
	o := views[0].m.object
	if o.json || o.unread || o.version != views[0].version {
		return nil
	}
	for i, v := range views {
		if v.m == nil {
			return nil
		}
		into[i] = Spans{}
		b, at := o.bytes[:v.m.end], int(v.m.at)
		for at < len(b) {
			if len(b)-at < 2 {
				return nil
			}
			w := binary.LittleEndian.Uint16(b[at:])
			k, start, end := int(w>>3&15)-1, at+2, at+2+int(w>>8)
			if w&0x8087 != uint16(wire.Bytes) || k < 0 || k >= maxSpans || end > len(b) {
				return nil
			}
			into[i][k], at = span(start, end), end
		}
	}
	return unsafe.SliceData(o.bytes)
}
