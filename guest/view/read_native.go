//go:build !wasm

package view

import (
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
