package json

import (
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"
)

// class is the meaning of a byte outside of a string.
type class uint8

const (
	opens   class = 1 << iota // [ {
	closes                    // ] }
	quote                     // "
	space                     // The four characters of RFC 8259.
	numeric                   // The first character of a number: - and digits.
	digit
)

var classes = [256]class{
	'[': opens, '{': opens,
	']': closes, '}': closes,
	'"': quote,
	' ': space, '\t': space, '\r': space, '\n': space,
	'-': numeric,
	'0': numeric | digit, '1': numeric | digit, '2': numeric | digit, '3': numeric | digit, '4': numeric | digit,
	'5': numeric | digit, '6': numeric | digit, '7': numeric | digit, '8': numeric | digit, '9': numeric | digit,
}

// load64 reads eight bytes. The compiler makes one load of it.
func load64(b []byte) uint64 {
	_ = b[7]
	return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
		uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
}

const (
	lows  = 0x0101010101010101
	highs = 0x8080808080808080
)

// zeroBytes marks the bytes of w that are 0 with their high bit. Only the lowest
// mark is sure to be right, which is the one that counts.
func zeroBytes(w uint64) uint64 { return (w - lows) &^ w & highs }

// special marks the bytes of w that a plain string lacks, as zeroBytes does: quotes, backslashes,
// control characters (below 0x20), and bytes above 0x7f, whose UTF-8 must be checked.
func special(w uint64) uint64 {
	return zeroBytes(w^'"'*lows) | zeroBytes(w^'\\'*lows) | (w-0x20*lows)&^w&highs | w&highs
}

// skipSpace returns the index of the first byte from i on that is not
// whitespace, len(b) if there is none.
func skipSpace(b []byte, i int) int {
	for i < len(b) && classes[b[i]]&space != 0 {
		i++
	}
	return i
}

// skipValue returns the index after the value that begins at b[i], or -1 if
// none does.
func skipValue(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"':
		return skipString(b, i+1)
	case '{', '[':
		return skipNested(b, i)
	}
	return skipScalar(b, i)
}

// skipString returns the index after the string whose first byte, after the
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

// skipNested returns the index after the array or object that begins at b[i],
// or -1 if it does not end. It tells strings from the rest and counts brackets:
// depth costs no memory.
//
// Most of a Kubernetes object is strings, so eight of their bytes are checked in one step, and here
// rather than in skipString.
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

// skipScalar is skipValue for a value that is neither a string nor nested.
func skipScalar(b []byte, i int) int {
	switch b[i] {
	case 't':
		return skipWord(b, i, "true")
	case 'f':
		return skipWord(b, i, "false")
	case 'n':
		return skipWord(b, i, "null")
	}
	return skipNumber(b, i)
}

func skipWord(b []byte, i int, word string) int {
	if len(b)-i < len(word) || string(b[i:i+len(word)]) != word {
		return -1
	}
	return i + len(word)
}

// skipNumber follows the grammar of RFC 8259, section 6.
func skipNumber(b []byte, i int) int {
	if i < len(b) && b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if i = skipDigits(b, i); i < 0 {
		return -1
	}
	if i < len(b) && b[i] == '.' {
		if i = skipDigits(b, i+1); i < 0 {
			return -1
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		i = skipDigits(b, i)
	}
	return i
}

// skipDigits returns the index after one digit or more, or -1.
func skipDigits(b []byte, i int) int {
	start := i
	for i < len(b) && classes[b[i]]&digit != 0 {
		i++
	}
	if i == start {
		return -1
	}
	return i
}

// scanString reads the string whose first byte, after the opening quote, is
// b[i]. It returns its text and the index after the closing quote.
func scanString(b []byte, i int) (s string, end int, ok bool) {
	start := i
	for i+8 <= len(b) {
		m := special(load64(b[i : i+8]))
		if m != 0 {
			i += bits.TrailingZeros64(m) / 8
			break
		}
		i += 8
	}
	for ; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return inPlace(b[start:i]), i + 1, true
		case c == '\\' || c < ' ' || c >= utf8.RuneSelf:
			return scanEscaped(b, start, i)
		}
	}
	return "", 0, false
}

// scanEscaped is scanString for a string that is not plain from b[i] on.
func scanEscaped(b []byte, start, i int) (s string, end int, ok bool) {
	// Text in a language other than English is valid as it is.
	var out []byte
	copied := start // Everything before is in out, if there is an out.
	for i < len(b) {
		c := b[i]
		switch {
		case c == '"':
			if out == nil {
				return inPlace(b[start:i]), i + 1, true
			}
			return inPlace(append(out, b[copied:i]...)), i + 1, true
		case c < ' ':
			return "", 0, false
		case c == '\\':
			out = append(out, b[copied:i]...)
			if out, i = appendUnescaped(out, b, i+1); i < 0 {
				return "", 0, false
			}
			copied = i
		case c < utf8.RuneSelf:
			i++
		default:
			r, size := utf8.DecodeRune(b[i:])
			if r == utf8.RuneError && size == 1 {
				out = append(out, b[copied:i]...)
				out = utf8.AppendRune(out, utf8.RuneError)
				copied = i + 1
			}
			i += size
		}
	}
	return "", 0, false
}

// appendUnescaped decodes the escape whose backslash is before b[i]. It returns
// the index after it, -1 if it is none of RFC 8259, section 7.
func appendUnescaped(out, b []byte, i int) ([]byte, int) {
	if i >= len(b) {
		return out, -1
	}
	c := b[i]
	switch c {
	case '"', '\\', '/':
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		r := hex4(b, i+1)
		if r < 0 {
			return out, -1
		}
		i += 5
		if utf16.IsSurrogate(r) {
			second := rune(-1)
			if i+1 < len(b) && b[i] == '\\' && b[i+1] == 'u' {
				second = hex4(b, i+2)
			}
			// The second escape is left for itself unless it is the other half.
			if r = utf16.DecodeRune(r, second); r != utf8.RuneError {
				i += 6
			}
		}
		return utf8.AppendRune(out, r), i
	default:
		return out, -1
	}
	return append(out, c), i + 1
}

// hex4 reads four hexadecimal digits, or returns -1.
func hex4(b []byte, i int) rune {
	if len(b)-i < 4 {
		return -1
	}
	var r rune
	for _, c := range b[i : i+4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = (c | 0x20) - 'a' + 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// inPlace makes a string of bytes without a copy.
func inPlace(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
