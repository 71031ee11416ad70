package json

import "strconv"

// Value is the bytes of one JSON value. Whitespace around it does no harm, and an empty Value is no
// value at all: a missing member.
//
// The methods that read a value of one kind report with ok whether it is of that kind; those
// without ok read a value of any other kind as the zero value.
type Value []byte

// Kind is the kind of a value, by its first character.
type Kind uint8

// The kinds of values.
const (
	// KindNone is the kind of no value, and of bytes that begin none.
	KindNone Kind = iota
	KindNull
	KindBool
	KindNumber
	KindString
	KindArray
	KindObject
)

var kindNames = [...]string{"nothing", "null", "bool", "number", "string", "array", "object"}

// String returns the name of the kind for messages.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "kind(" + strconv.Itoa(int(k)) + ")"
}

// Kind returns the kind of v by its first character. The rest of it may still be malformed.
func (v Value) Kind() Kind {
	i := skipSpace(v, 0)
	if i == len(v) {
		return KindNone
	}
	switch v[i] {
	case 'n':
		return KindNull
	case 't', 'f':
		return KindBool
	case '"':
		return KindString
	case '[':
		return KindArray
	case '{':
		return KindObject
	}
	if classes[v[i]]&numeric != 0 {
		return KindNumber
	}
	return KindNone
}

// IsNull reports whether v is null or no value at all. Kubernetes does not tell
// the two apart.
func (v Value) IsNull() bool {
	v = v.trim()
	return len(v) == 0 || string(v) == "null"
}

// String returns the text of a string, "" for any other value.
func (v Value) String() string {
	s, _ := v.Text()
	return s
}

// Text returns the text of a string. It shares its memory with v unless it had
// to be decoded.
func (v Value) Text() (s string, ok bool) {
	if len(v) == 0 || v[0] != '"' {
		v = v.trim() // A value that was walked to has no white space around it.
	}
	if len(v) < 2 || v[0] != '"' {
		return "", false
	}
	s, end, ok := scanString(v, 1)
	if !ok || skipSpace(v, end) != len(v) {
		return "", false
	}
	return s, true
}

// Bool returns the truth value of v.
func (v Value) Bool() (value, ok bool) {
	switch string(v.trim()) {
	case "true":
		return true, true
	case "false":
		return false, true
	}
	return false, false
}

// Int64 returns the number of v. It is not ok if v has a fraction or an exponent, or does not fit.
func (v Value) Int64() (n int64, ok bool) {
	v = v.trim()
	negative := len(v) > 0 && v[0] == '-'
	if negative {
		v = v[1:]
	}
	u, ok := v.digits()
	switch {
	case !ok:
		return 0, false
	case negative:
		// -1<<63 has no positive counterpart: negate as unsigned numbers do.
		return int64(-u), u <= 1<<63
	}
	return int64(u), u < 1<<63
}

// Uint64 returns the number of v. It is not ok if v is negative, has a fraction or an exponent, or
// does not fit.
func (v Value) Uint64() (n uint64, ok bool) { return v.trim().digits() }

// digits reads a JSON integer without a sign.
func (v Value) digits() (uint64, bool) {
	if len(v) == 0 || len(v) > 1 && v[0] == '0' {
		return 0, false
	}
	var n uint64
	for _, c := range v {
		d := uint64(c - '0')
		if d > 9 || n > (1<<64-1)/10 || n*10 > 1<<64-1-d {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}

// Float64 returns the number of v, rounded to the nearest float64. It is not ok if v is too large
// for one.
func (v Value) Float64() (f float64, ok bool) {
	v = v.trim()
	// strconv reads more than JSON allows: hexadecimal, underscores, "Inf".
	if len(v) == 0 || skipNumber(v, 0) != len(v) {
		return 0, false
	}
	f, err := strconv.ParseFloat(inPlace(v), 64)
	return f, err == nil
}

// trim cuts the whitespace around v off.
func (v Value) trim() Value {
	end := len(v)
	for end > 0 && classes[v[end-1]]&space != 0 {
		end--
	}
	return v[skipSpace(v[:end], 0):end]
}
