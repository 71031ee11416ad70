package json

// MaxDepth is the maximum depth of nested arrays and objects for Valid, as in encoding/json.
const MaxDepth = 10000

// Valid reports whether b is one JSON value by the grammar of RFC 8259, with nothing but whitespace
// around it. It accepts the same as encoding/json.
func Valid(b []byte) bool {
	ok, _ := ValidIndex(b, nil, 0)
	return ok
}

// ValidIndex is Valid, and records the places of the arrays and objects of least bytes or more in
// index, as [Walker.ReadIndexed] takes them. n is their number: 0 if b is not valid, has none, or
// has more than there is room for.
func ValidIndex(b []byte, index []uint64, least int) (ok bool, n int) {
	noted := nesting{index: index, least: max(least, indexedLength), in: nothing}
	var objects [MaxDepth/64 + 1]uint64 // One bit for each level: is it an object?
	depth := 0
	i := skipSpace(b, 0)
value:
	if i >= len(b) {
		return false, 0
	}
	if c := b[i]; c == '{' || c == '[' {
		if depth++; depth > MaxDepth {
			return false, 0
		}
		if noted.index != nil {
			noted.begin(i)
		}
		bit := uint64(1) << (depth % 64)
		objects[depth/64] &^= bit
		i = skipSpace(b, i+1)
		if c == '[' {
			if i < len(b) && b[i] == ']' {
				goto closed
			}
			goto value
		}
		objects[depth/64] |= bit
		if i < len(b) && b[i] == '}' {
			goto closed
		}
		goto member
	}
	if b[i] == '"' {
		var ok bool
		if _, i, ok = scanString(b, i+1); !ok {
			return false, 0
		}
	} else if i = skipValue(b, i); i < 0 {
		return false, 0
	}
	goto after

member:
	if i >= len(b) || b[i] != '"' {
		return false, 0
	} else if _, end, ok := scanString(b, i+1); !ok {
		return false, 0
	} else if i = skipSpace(b, end); i >= len(b) || b[i] != ':' {
		return false, 0
	}
	i = skipSpace(b, i+1)
	goto value

closed:
	depth--
	i++
	noted.end(i)

after:
	i = skipSpace(b, i)
	if depth == 0 {
		if i != len(b) {
			return false, 0
		}
		return true, noted.count
	}
	if i >= len(b) {
		return false, 0
	}
	isObject := objects[depth/64]>>(depth%64)&1 == 1
	switch b[i] {
	case ',':
		i = skipSpace(b, i+1)
		if isObject {
			goto member
		}
		goto value
	case '}':
		if isObject {
			goto closed
		}
	case ']':
		if !isObject {
			goto closed
		}
	}
	return false, 0
}
