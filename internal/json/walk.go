package json

import "math/bits"

// Members walks over the members of an object. Make one with [Object].
type Members struct {
	walk
	// The name lies in doc[keyStart:keyEnd], unless it had to be decoded.
	keyStart, keyEnd int
	decoded          string
}

// Object returns the walk over the members of the object in b. Null and no
// value at all have no members; any other kind of value is malformed.
func Object(b []byte) Members { return Members{walk: begin(b, '{')} }

// Next goes to the next member and reports whether there is one.
//
// It does the usual case itself: a call is expensive in a Go guest, where its
// arguments and results go through memory.
func (m *Members) Next() bool {
	b, i := m.doc, m.pos
	if m.state == inside && i < len(b) && b[i] == ',' {
		i++
	} else if i = m.advance('}'); i < 0 {
		return false
	}
	if i < len(b) && b[i] != '"' {
		i = skipSpace(b, i)
	}
	if i >= len(b) || b[i] != '"' {
		return m.stop()
	}
	i++
	m.keyStart = i
	for i+8 <= len(b) {
		w := load64(b[i : i+8])
		x := special(w)
		if x == 0 {
			i += 8
			continue
		}
		i += bits.TrailingZeros64(x) / 8
		break
	}
	if i < len(b) && b[i] == '"' {
		m.keyEnd = i
		i++
	} else {
		var ok bool
		if m.decoded, i, ok = scanString(b, m.keyStart); !ok {
			return m.stop()
		}
		m.keyStart = -1
	}
	if i < len(b) && b[i] != ':' {
		i = skipSpace(b, i)
	}
	if i >= len(b) || b[i] != ':' {
		return m.stop()
	}
	return m.take(i + 1)
}

// Key returns the name of the member that Next found. It shares its memory with
// the document unless it had to be decoded.
func (m *Members) Key() string {
	if m.keyStart < 0 {
		return m.decoded
	}
	return inPlace(m.doc[m.keyStart:m.keyEnd])
}

// Elements walks over the elements of an array. Make one with [Array].
type Elements struct{ walk }

// Array returns the walk over the elements of the array in b. Null and no value
// at all have no elements; any other kind of value is malformed.
func Array(b []byte) Elements { return Elements{begin(b, '[')} }

// Next goes to the next element and reports whether there is one.
func (e *Elements) Next() bool {
	i := e.advance(']')
	return i >= 0 && e.take(i)
}

// walk is what objects and arrays have in common.
type walk struct {
	doc []byte
	// pos is where the walk stands: after the value that was found last.
	pos int
	// The value that was found last is doc[start:end].
	start, end int
	state      state
}

type state uint8

const (
	ended     state = iota // No more elements, or none at all.
	malformed              // The bytes are not JSON.
	before                 // Before the first element.
	inside                 // After an element.
)

func begin(b []byte, opening byte) walk {
	i := skipSpace(b, 0)
	switch {
	case i < len(b) && b[i] == opening:
		return walk{doc: b, pos: i + 1, state: before}
	case Value(b).IsNull():
		return walk{}
	}
	return walk{state: malformed}
}

// advance goes to the beginning of the next element, or to white space before
// it, and returns the index; -1 at the end of the list.
func (w *walk) advance(closing byte) int {
	if w.state < before {
		return -1
	}
	b := w.doc
	i := skipSpace(b, w.pos)
	switch {
	case i >= len(b):
	case b[i] == closing:
		if skipSpace(b, i+1) != len(b) {
			break // Something follows the value.
		}
		w.finish(ended)
		return -1
	case w.state == before:
		return i
	case b[i] == ',':
		return i + 1
	}
	w.finish(malformed)
	return -1
}

// take reads the value that begins at doc[i] or after white space there, and
// moves behind it.
func (w *walk) take(i int) bool {
	b := w.doc
	if i < len(b) && classes[b[i]]&space != 0 {
		i = skipSpace(b, i)
	}
	end := -1
	if i < len(b) {
		switch c := b[i]; {
		case c == '"':
			end = skipString(b, i+1)
		case classes[c]&opens != 0:
			end = skipNested(b, i)
		default:
			end = skipScalar(b, i)
		}
	}
	if end < 0 {
		return w.stop()
	}
	w.start, w.end, w.pos, w.state = i, end, end, inside
	return true
}

// stop ends the walk over bytes that are not JSON.
func (w *walk) stop() bool {
	w.finish(malformed)
	return false
}

func (w *walk) finish(s state) { *w = walk{state: s} }

// Value returns the value that Next found, nil when the walk has ended.
func (w *walk) Value() Value {
	if w.state != inside {
		return nil
	}
	return w.doc[w.start:w.end:w.end]
}

// Malformed reports whether the walk ended because the bytes are not JSON, or
// not of the kind that was to be walked over.
func (w *walk) Malformed() bool { return w.state == malformed }
