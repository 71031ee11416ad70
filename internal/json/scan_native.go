//go:build !wasm

package json

import "math/bits"

// next goes to the next member or element and reports whether there is one.
func next(w *walk) bool { return nextOf(w) }

// skipNested returns the index after the array or object that begins at b[i],
// or -1 if it does not end. It tells strings from the rest and counts brackets:
// depth costs no memory.
//
// Most of a Kubernetes object is strings, so eight of their bytes are looked at
// in one step, and here rather than in skipString.
func skipNested(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		c := classes[b[i]]
		i++
		if c&(opens|closes|quote) == 0 {
			continue
		}
		if c&quote == 0 {
			if c&opens != 0 {
				depth++
				continue
			}
			if depth--; depth == 0 {
				return i
			}
			continue
		}
		for {
			if i+8 <= len(b) {
				w := load64(b[i : i+8])
				m := zeroBytes(w^'"'*lows) | zeroBytes(w^'\\'*lows)
				if m == 0 {
					i += 8
					continue
				}
				i += bits.TrailingZeros64(m) / 8
			}
			if i >= len(b) {
				return -1
			}
			if c := b[i]; c == '"' {
				i++
				break
			} else if c == '\\' {
				i++
			}
			i++
		}
	}
	return -1
}

// skipString returns the index after the string whose first byte, behind the
// opening quote, is b[i], or -1 if it does not end.
func skipString(b []byte, i int) int {
	for {
		if i+8 <= len(b) {
			w := load64(b[i : i+8])
			m := zeroBytes(w^'"'*lows) | zeroBytes(w^'\\'*lows)
			if m == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(m) / 8
		}
		if i >= len(b) {
			return -1
		}
		if c := b[i]; c == '"' {
			return i + 1
		} else if c == '\\' {
			i++
		}
		i++
	}
}

// indexNested notes in nested where the arrays and objects lie that have
// indexedLength or more, and returns how many they are; 0 if doc is neither an
// array nor an object, does not end, or if there is no room.
func indexNested(doc []byte, nested []uint64) int {
	noted := nesting{index: nested, in: nothing}
	i := skipSpace(doc, 0)
	if i == len(doc) || classes[doc[i]]&opens == 0 {
		return 0
	}
	for i < len(doc) {
		c := classes[doc[i]]
		switch {
		case c&quote != 0:
			if i = skipString(doc, i+1); i < 0 {
				return 0
			}
			continue
		case c&opens != 0:
			noted.begin(i)
		case c&closes != 0:
			noted.end(i + 1)
		}
		if noted.in == nothing && c&(opens|closes) != 0 {
			return noted.count // It ended, or there is no room.
		}
		i++
	}
	return 0
}

// find returns the index of name in names[1:] and 0 if it is not there. It begins
// to look at names[from].
func find(names []string, name string, from int) int {
	for i := from; i < len(names); i++ {
		if names[i] == name {
			return i
		}
	}
	for i := min(from, len(names)) - 1; i > 0; i-- {
		if names[i] == name {
			return i
		}
	}
	return 0
}

// readFields reads members of an object that is walked over into fields, until one
// has an unusual form. It returns where in names to look for the next one, -1 if there
// is none.
func readFields(w *Walker, names []string, fields []Field, version uint32, from int) int {
	return from
}

// seek begins the walk over the array or object that lies from start up to end in the
// document.
func seek(w *Walker, start, end int, opening byte) { seekOf(w, start, end, opening) }

// isPlain reports whether v is a string as it lies: nothing is to be decoded and
// nothing follows. It may be false for others, too: here the general way is as fast.
func isPlain(v []byte) bool { return false }
