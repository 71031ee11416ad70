//go:build !wasm

package json

// next goes to the next member or element and reports whether there is one.
func next(w *walk) bool { return nextOf(w) }

// indexNested records the places of the arrays and objects of indexedLength or more in nested, and
// returns their number; 0 if doc is neither an array nor an object, does not end, or if there is no
// room.
func indexNested(doc []byte, nested []uint64) int {
	noted := nesting{index: nested, least: indexedLength, in: nothing}
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

// readFields reads members of an object that is walked over into fields, until one has an unusual
// form. It returns the index in names at which to search for the next one, -1 if there is none.
func readFields(w *Walker, names []string, fields []Field, version uint32, from int) int {
	return from
}
