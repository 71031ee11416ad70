package json

import "unicode/utf8"

const hexDigits = "0123456789abcdef"

// AppendString appends s as a JSON string. Only the characters that RFC 8259, section 7 requires to
// be escaped are escaped; invalid UTF-8 becomes U+FFFD.
func AppendString[T string | []byte](dst []byte, s T) []byte {
	dst = append(dst, '"')
	copied := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := decodeRune(s[i:])
			if r != utf8.RuneError || size != 1 {
				i += size
				continue
			}
			dst = append(dst, s[copied:i]...)
			dst = utf8.AppendRune(dst, utf8.RuneError)
			i++
			copied = i
			continue
		}
		dst = append(dst, s[copied:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
		}
		i++
		copied = i
	}
	dst = append(dst, s[copied:]...)
	return append(dst, '"')
}

func decodeRune[T string | []byte](s T) (rune, int) {
	// Four bytes hold any rune; the conversion does not leave the stack.
	return utf8.DecodeRuneInString(string(s[:min(len(s), utf8.UTFMax)]))
}
