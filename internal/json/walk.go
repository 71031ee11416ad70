package json

import "math/bits"

// Members walks over the members of an object. Make one with [Object].
type Members struct{ walk }

// Object returns the walk over the members of the object in b. Null and no
// value at all have no members; any other kind of value is malformed.
func Object(b []byte) (m Members) {
	m.begin(b, 0, '{')
	return m
}

// Key returns the name of the member that Next found. It shares its memory with
// the document unless it had to be decoded.
func (m *Members) Key() string { return m.key() }

// Elements walks over the elements of an array. Make one with [Array].
type Elements struct{ walk }

// Array returns the walk over the elements of the array in b. Null and no value
// at all have no elements; any other kind of value is malformed.
func Array(b []byte) (e Elements) {
	e.begin(b, 0, '[')
	return e
}

// walk is the common part of walks over objects and arrays.
type walk struct {
	doc []byte
	// The name of a member lies in doc[keyStart:keyEnd], or in decoded if it had
	// to be decoded: then keyStart is -1.
	keyStart, keyEnd int
	decoded          string
	// The last value is doc[start:end]. The walk goes on at end.
	start, end int
	state      state
	closing    byte // The character that ends the array or object.
	// nested is the index of a Walker. Values before nested[passed] have been passed.
	nested []uint64
	passed int
}

type state uint8

const (
	ended     state = iota // No more elements, or none at all.
	malformed              // The bytes are not JSON.
	before                 // Before the first element.
	inside                 // After an element.
)

// begin begins the walk over the array or object in doc from start on.
//
// A walk is not assigned as a whole, here or where it ends: in a guest that would
// clear its memory by an instruction that takes longer than the walk.
func (w *walk) begin(doc []byte, start int, opening byte) {
	i := start
	if i >= len(doc) || doc[i] != opening {
		if i = skipSpace(doc, i); i >= len(doc) || doc[i] != opening {
			w.state = malformed
			if Value(doc[start:]).IsNull() {
				w.state = ended
			}
			return
		}
	}
	w.doc, w.end, w.state, w.closing = doc, i+1, before, opening+2
}

// Next goes to the next member or element and reports whether there is one.
func (w *walk) Next() bool { return next(w) }

// nextOf is next, written in Go.
func nextOf(w *walk) bool {
	b, i := w.doc, w.end
	if w.state == inside && i < len(b) && b[i] == ',' {
		i++
	} else if i = w.advance(); i < 0 {
		return false
	}
	if w.closing == '}' {
		if i = w.takeKey(i); i < 0 {
			return false
		}
	}
	return w.take(i)
}

// advance goes to the beginning of the next element, or to white space before
// it, and returns the index; -1 at the end of the list.
func (w *walk) advance() int {
	if w.state < before {
		return -1
	}
	b := w.doc
	i := skipSpace(b, w.end)
	switch {
	case i >= len(b):
	case b[i] == w.closing:
		if skipSpace(b, i+1) != len(b) {
			break // Something follows the value.
		}
		w.state = ended
		return -1
	case w.state == before:
		return i
	case b[i] == ',':
		return i + 1
	}
	w.state = malformed
	return -1
}

// key returns the name of the last member.
func (w *walk) key() string {
	if w.keyStart < 0 {
		return w.decoded
	}
	return inPlace(w.doc[w.keyStart:w.keyEnd])
}

// takeKey reads the name that begins at doc[i] or after white space there, and the
// colon after it. It returns the index after them, -1 at the end of the walk.
func (w *walk) takeKey(i int) int {
	b := w.doc
	if i < len(b) && b[i] != '"' {
		i = skipSpace(b, i)
	}
	if i >= len(b) || b[i] != '"' {
		w.state = malformed
		return -1
	}
	i++
	w.keyStart = i
	for i+8 <= len(b) {
		x := special(load64(b[i : i+8]))
		if x == 0 {
			i += 8
			continue
		}
		i += bits.TrailingZeros64(x) / 8
		break
	}
	if i < len(b) && b[i] == '"' {
		w.keyEnd = i
		i++
	} else {
		var ok bool
		if w.decoded, i, ok = scanString(b, w.keyStart); !ok {
			w.state = malformed
			return -1
		}
		w.keyStart = -1
	}
	if i < len(b) && b[i] != ':' {
		i = skipSpace(b, i)
	}
	if i >= len(b) || b[i] != ':' {
		w.state = malformed
		return -1
	}
	return i + 1
}

// take reads the value that begins at doc[i] or after white space there, and
// moves past it.
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
			if end = w.nestedEnd(i); end < 0 {
				end = skipNested(b, i)
			}
		default:
			end = skipScalar(b, i)
		}
	}
	if end < 0 {
		w.state = malformed
		return false
	}
	w.start, w.end, w.state = i, end, inside
	return true
}

// Value returns the value that Next found, nil when the walk has ended.
func (w *walk) Value() Value {
	if w.state != inside {
		return nil
	}
	return w.doc[w.start:w.end:w.end]
}

// Span returns the place of the value that Next found in the document: from start up to end.
func (w *walk) Span() (start, end int) { return w.start, w.end }

// Malformed reports whether the walk ended because the bytes are not JSON, or not of the expected
// kind.
func (w *walk) Malformed() bool { return w.state == malformed }
