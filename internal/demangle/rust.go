package demangle

import (
	"strconv"
	"strings"
	"unicode"
)

// Rust returns the path of a function of Rust in the idiom of its source, such as
// "<zone::Zone as zone::Filter>::filter", without the hashes of crates and of instances. It
// reads both manglings of rustc: the legacy one, _ZN...17h<hash>E, and v0 of RFC 2603, _R.
// Another name, a malformed one, and one whose path is longer than 4 KiB is returned as it is.
func Rust(name string) string {
	if s, isLegacy := strings.CutPrefix(name, "_ZN"); isLegacy {
		if path, ok := legacy(s); ok {
			return path
		}
	}
	if s, isV0 := strings.CutPrefix(name, "_R"); isV0 {
		if path, ok := v0(s); ok {
			return path
		}
	}
	return name
}

// maxPath is the length of the longest path in bytes.
const maxPath = 4 << 10

// legacy returns the path of elements that each have their length before them. The last is the
// hash of an instance: names in C++ have none. What LLVM appends to tell copies apart, after a
// dot, is left out.
func legacy(s string) (path string, ok bool) {
	var elements []string
	for !strings.HasPrefix(s, "E") {
		digits := 0
		for digits < len(s) && isDigit(s[digits]) {
			digits++
		}
		n, err := strconv.Atoi(s[:digits])
		if err != nil || n > len(s)-digits {
			return "", false
		}
		elements, s = append(elements, s[digits:digits+n]), s[digits+n:]
	}
	last := len(elements) - 1
	if s != "E" && !strings.HasPrefix(s, "E.") || last < 1 || !isHash(elements[last]) {
		return "", false
	}
	var b strings.Builder
	for i, element := range elements[:last] {
		if i > 0 {
			b.WriteString("::")
		}
		if !unescape(&b, element) || b.Len() > maxPath {
			return "", false
		}
	}
	return b.String(), true
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isHash(s string) bool {
	return len(s) == 17 && s[0] == 'h' && strings.Trim(s[1:], "0123456789abcdef") == ""
}

// escapes are the characters that a symbol must not have, by what is between two $.
var escapes = map[string]rune{"SP": '@', "BP": '*', "RF": '&', "LT": '<', "GT": '>', "LP": '(', "RP": ')', "C": ','}

// unescape writes an element, and reports whether it is well-formed and printable.
func unescape(b *strings.Builder, s string) bool {
	if strings.HasPrefix(s, "_$") {
		s = s[1:] // A symbol begins with no $.
	}
	for s != "" {
		switch {
		case strings.HasPrefix(s, ".."):
			b.WriteString("::")
			s = s[2:]
		case s[0] == '$':
			escape, rest, ok := strings.Cut(s[1:], "$")
			c := escapes[escape]
			if code, isCode := strings.CutPrefix(escape, "u"); isCode {
				n, err := strconv.ParseUint(code, 16, 21)
				if err != nil {
					return false
				}
				c = rune(n)
			}
			if !ok || !unicode.IsPrint(c) {
				return false
			}
			b.WriteRune(c)
			s = rest
		case s[0] <= ' ' || s[0] > '~':
			return false
		default:
			b.WriteByte(s[0])
			s = s[1:]
		}
	}
	return true
}
