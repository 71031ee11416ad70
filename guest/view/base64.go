package view

import "github.com/kubewasm/kubewasm/internal/json"

// base64 decodes a JSON string in the standard or the URL alphabet of RFC 4648,
// up to the first wrong character. The package encoding/base64 makes its tables
// when a guest starts.
func base64(v json.Value) []byte {
	s := v.String()
	out := make([]byte, 0, len(s)/4*3+3)
	var bits uint32
	n := 0
	for i := range len(s) {
		var d byte
		switch c := s[i]; {
		case c >= 'A' && c <= 'Z':
			d = c - 'A'
		case c >= 'a' && c <= 'z':
			d = c - 'a' + 26
		case c >= '0' && c <= '9':
			d = c - '0' + 52
		case c == '+' || c == '-':
			d = 62
		case c == '/' || c == '_':
			d = 63
		case c == '\n' || c == '\r':
			continue
		default: // '=' is the end.
			return out
		}
		bits = bits<<6 | uint32(d)
		if n += 6; n >= 8 {
			n -= 8
			out = append(out, byte(bits>>n))
		}
	}
	return out
}
