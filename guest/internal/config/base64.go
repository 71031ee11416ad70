package config

// decodeBase64 decodes s in the standard alphabet of RFC 4648 with padding, as
// encoding/base64 does. wrong is the index of the first wrong byte, len(s) if the
// end is missing, and -1 if s is valid. The package encoding/base64 makes its
// tables when a guest starts, whether they are needed or not.
func decodeBase64(s string) (out []byte, wrong int) {
	out = make([]byte, 0, len(s)/4*3)
	var bits uint32
	// Four characters stand for three bytes; those that are missing at the end are
	// padding.
	characters, padding := 0, 0
	for i := range len(s) {
		c := s[i]
		if c == '\n' || c == '\r' {
			continue
		}
		if c == '=' && characters%4 >= 2 {
			padding++
			characters++
			continue
		}
		digit := base64Digit(c)
		if digit < 0 || padding > 0 {
			return nil, i
		}
		characters++
		if bits = bits<<6 | uint32(digit); characters%4 != 1 {
			out = append(out, byte(bits>>((4-uint(characters)%4)%4*2)))
		}
	}
	if characters%4 != 0 {
		return nil, len(s)
	}
	return out, -1
}

// base64Digit returns the value of a character, -1 for none.
func base64Digit(c byte) int {
	switch {
	case c >= 'A' && c <= 'Z':
		return int(c - 'A')
	case c >= 'a' && c <= 'z':
		return int(c-'a') + 26
	case c >= '0' && c <= '9':
		return int(c-'0') + 52
	case c == '+':
		return 62
	case c == '/':
		return 63
	}
	return -1
}
