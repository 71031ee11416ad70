package json

// MaxDepth is the maximum depth of nested arrays and objects for Valid, as in encoding/json.
const MaxDepth = 10000

// Valid reports whether b is one JSON value by the grammar of RFC 8259, with nothing but whitespace
// around it. It accepts the same as encoding/json.
func Valid(b []byte) bool {
	var objects [MaxDepth/64 + 1]uint64 // One bit for each level: is it an object?
	depth := 0
	i := skipSpace(b, 0)
value:
	if i >= len(b) {
		return false
	}
	if c := b[i]; c == '{' || c == '[' {
		if depth++; depth > MaxDepth {
			return false
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
			return false
		}
	} else if i = skipValue(b, i); i < 0 {
		return false
	}
	goto after

member:
	if i >= len(b) || b[i] != '"' {
		return false
	} else if _, end, ok := scanString(b, i+1); !ok {
		return false
	} else if i = skipSpace(b, end); i >= len(b) || b[i] != ':' {
		return false
	}
	i = skipSpace(b, i+1)
	goto value

closed:
	depth--
	i++

after:
	i = skipSpace(b, i)
	if depth == 0 {
		return i == len(b)
	}
	if i >= len(b) {
		return false
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
	return false
}
