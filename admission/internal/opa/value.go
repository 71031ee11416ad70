package opa

import (
	"cmp"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// The values of Rego: nil, bool, number, string, []any, object and set.
type (
	// number is a number as it was written.
	number string
	// set is a set, sorted and each element once.
	set []any
	// object is an object, sorted by its keys.
	object []entry
	entry  struct{ key, value any }
)

var errSyntax = errors.New("malformed value")

// maxValueDepth bounds the nesting of values that builtins get.
const maxValueDepth = 1000

// parseValue reads a value as opa_value_dump writes it: JSON, with sets as {1, 2}
// and set(), and objects whose keys may be anything.
func parseValue(text string) (any, error) {
	p := valueParser{text: text}
	v, err := p.value(0)
	if err != nil {
		return nil, err
	}
	if p.space(); p.pos != len(text) {
		return nil, errSyntax
	}
	return v, nil
}

type valueParser struct {
	text string
	pos  int
}

func (p *valueParser) space() {
	for p.pos < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.pos]) >= 0 {
		p.pos++
	}
}

func (p *valueParser) accept(token string) bool {
	p.space()
	if !strings.HasPrefix(p.text[p.pos:], token) {
		return false
	}
	p.pos += len(token)
	return true
}

func (p *valueParser) value(depth int) (any, error) {
	if depth > maxValueDepth {
		return nil, errors.New("value is nested too deeply")
	}
	p.space()
	switch {
	case p.accept("null"):
		return nil, nil
	case p.accept("true"):
		return true, nil
	case p.accept("false"):
		return false, nil
	case p.accept("set()"):
		return set{}, nil
	case p.accept("["):
		list := []any{}
		if p.accept("]") {
			return list, nil
		}
		for {
			v, err := p.value(depth + 1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
			if p.accept("]") {
				return list, nil
			}
			if !p.accept(",") {
				return nil, errSyntax
			}
		}
	case p.accept("{"):
		return p.braces(depth)
	case p.pos < len(p.text) && p.text[p.pos] == '"':
		return p.string()
	}
	start := p.pos
	for p.pos < len(p.text) && strings.IndexByte("+-.0123456789eE", p.text[p.pos]) >= 0 {
		p.pos++
	}
	if start == p.pos {
		return nil, errSyntax
	}
	return number(p.text[start:p.pos]), nil
}

// braces reads the rest of an object or a set.
func (p *valueParser) braces(depth int) (any, error) {
	if p.accept("}") {
		return object{}, nil
	}
	var elements set
	var entries object
	for {
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		if p.accept(":") {
			value, err := p.value(depth + 1)
			if err != nil {
				return nil, err
			}
			entries = append(entries, entry{v, value})
		} else {
			elements = append(elements, v)
		}
		if p.accept("}") {
			break
		}
		if !p.accept(",") {
			return nil, errSyntax
		}
	}
	switch {
	case elements != nil && entries != nil:
		return nil, errSyntax
	case elements != nil:
		return newSet(elements), nil
	}
	return newObject(entries), nil
}

func (p *valueParser) string() (any, error) {
	for i := p.pos + 1; i < len(p.text); i++ {
		switch p.text[i] {
		case '\\':
			i++
		case '"':
			var s string
			if err := stdjson.Unmarshal([]byte(p.text[p.pos:i+1]), &s); err != nil {
				return nil, errSyntax
			}
			p.pos = i + 1
			return s, nil
		}
	}
	return nil, errSyntax
}

func newSet(elements []any) set {
	slices.SortFunc(elements, compare)
	return slices.CompactFunc(elements, func(a, b any) bool { return compare(a, b) == 0 })
}

func newObject(entries []entry) object {
	slices.SortStableFunc(entries, func(a, b entry) int { return compare(a.key, b.key) })
	return entries
}

// rank is the place of a type in the order of all values.
func rank(v any) int {
	switch v.(type) {
	case nil:
		return 0
	case bool:
		return 1
	case number:
		return 2
	case string:
		return 3
	case []any:
		return 4
	case object:
		return 5
	}
	return 6
}

// compare is the order of Rego.
func compare(a, b any) int {
	if d := rank(a) - rank(b); d != 0 {
		return d
	}
	switch a := a.(type) {
	case bool:
		return boolInt(a) - boolInt(b.(bool))
	case number:
		x, err1 := strconv.ParseInt(string(a), 10, 64)
		y, err2 := strconv.ParseInt(string(b.(number)), 10, 64)
		if err1 == nil && err2 == nil {
			return cmp.Compare(x, y)
		}
		if len(a) > maxDigits || len(b.(number)) > maxDigits {
			return strings.Compare(string(a), string(b.(number))) // Some order, and none are one.
		}
		return a.rat().Cmp(b.(number).rat())
	case string:
		return strings.Compare(a, b.(string))
	case []any:
		return slices.CompareFunc(a, b.([]any), compare)
	case set:
		return slices.CompareFunc(a, b.(set), compare)
	case object:
		return slices.CompareFunc(a, b.(object), func(x, y entry) int {
			if d := compare(x.key, y.key); d != 0 {
				return d
			}
			return compare(x.value, y.value)
		})
	}
	return 0
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// maxExponent bounds how large a number gets when it is written out.
const maxExponent = 400

// maxDigits bounds how long a number may be that is computed with: the time grows
// faster than its length.
const maxDigits = 1000

// rat returns the number exactly, 0 if it is none, is too long or has an absurd
// exponent.
func (n number) rat() *big.Rat {
	if len(n) > maxDigits {
		return new(big.Rat)
	}
	if _, exponent, ok := strings.Cut(strings.ToLower(string(n)), "e"); ok {
		if e, err := strconv.Atoi(exponent); err != nil || e > maxExponent || e < -maxExponent {
			return new(big.Rat)
		}
	}
	if r, ok := new(big.Rat).SetString(string(n)); ok {
		return r
	}
	return new(big.Rat)
}

// formatValue writes a value as OPA shows it to people.
func formatValue(v any) string {
	var b strings.Builder
	writeValue(&b, v, strconv.Quote)
	return b.String()
}

// encodeValue writes a value as opa_value_parse reads it.
func encodeValue(v any) string {
	var b strings.Builder
	writeValue(&b, v, quote)
	return b.String()
}

func writeValue(b *strings.Builder, v any, quote func(string) string) {
	list := func(open string, items []any, end string) {
		b.WriteString(open)
		for i, item := range items {
			if i > 0 {
				b.WriteString(", ")
			}
			writeValue(b, item, quote)
		}
		b.WriteString(end)
	}
	switch v := v.(type) {
	case nil:
		b.WriteString("null")
	case bool:
		b.WriteString(strconv.FormatBool(v))
	case int:
		b.WriteString(strconv.Itoa(v))
	case int64:
		b.WriteString(strconv.FormatInt(v, 10))
	case number:
		b.WriteString(string(v))
	case string:
		b.WriteString(quote(v))
	case []any:
		list("[", v, "]")
	case []string:
		items := make([]any, len(v))
		for i, s := range v {
			items[i] = s
		}
		list("[", items, "]")
	case set:
		if len(v) == 0 {
			b.WriteString("set()")
			return
		}
		list("{", v, "}")
	case object:
		b.WriteString("{")
		for i, e := range v {
			if i > 0 {
				b.WriteString(", ")
			}
			writeValue(b, e.key, quote)
			b.WriteString(": ")
			writeValue(b, e.value, quote)
		}
		b.WriteString("}")
	default:
		panic(fmt.Sprintf("opa: a builtin returned %T", v))
	}
}

// quote writes a string as JSON without the escapes that browsers want.
func quote(s string) string {
	var b strings.Builder
	e := stdjson.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic(err) // A string can always be encoded.
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// toJSON writes a value as JSON: sets become arrays, keys strings.
func toJSON(v any) []byte {
	var b strings.Builder
	writeJSON(&b, v)
	return []byte(b.String())
}

func writeJSON(b *strings.Builder, v any) {
	switch v := v.(type) {
	case []any:
		b.WriteByte('[')
		for i, item := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			writeJSON(b, item)
		}
		b.WriteByte(']')
	case set:
		writeJSON(b, []any(v))
	case object:
		b.WriteByte('{')
		for i, e := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			key, ok := e.key.(string)
			if !ok {
				key = string(toJSON(e.key))
			}
			b.WriteString(quote(key))
			b.WriteByte(':')
			writeJSON(b, e.value)
		}
		b.WriteByte('}')
	default:
		writeValue(b, v, quote)
	}
}

// fromJSON reads JSON as a value.
func fromJSON(raw []byte) (any, error) { return parseValue(string(raw)) }
