package rego

import (
	"cmp"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/kubewasm/kubewasm/internal/json"
)

// The values of Rego: nil, bool, number, string, []any, object and set.
type (
	// number is a number in its original notation.
	number string
	// set is a set, sorted and without duplicates.
	set []any
	// object is an object, sorted by its keys.
	object []entry
	entry  struct{ key, value any }
)

var errSyntax = errors.New("malformed value")

const (
	// maxValueDepth bounds the nesting of values passed to builtins.
	maxValueDepth = 1000
	// maxValues bounds the number of values in a value: each takes about 100 bytes, and may be
	// written with two.
	maxValues = 1 << 20
	// valueWork is the cost of reading one, and valuesPaid the number of values that are paid for
	// at a time.
	valueWork, valuesPaid = 200, 1 << 10
)

// parseValue reads a value as written by opa_value_dump: JSON, with sets as {1, 2} and set(), and
// objects whose keys may be anything.
func parseValue(c *call, text string) (any, error) {
	c.work(len(text))
	p := valueParser{text: text, call: c}
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
	text   string
	pos    int
	call   *call
	values int
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
		return nil, fmt.Errorf("%w: the value is nested more than %d deep", errTooMuch, maxValueDepth)
	}
	if p.values%valuesPaid == 0 {
		p.call.work(valuesPaid * valueWork)
	}
	if p.values++; p.values > maxValues {
		return nil, fmt.Errorf("%w: the value has more than %d values", errTooMuch, maxValues)
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
	p.call.work(sortWork(len(elements) + len(entries)))
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

// sortWork returns the cost of sorting n values.
func sortWork(n int) int { return n * bits.Len(uint(n)) * 30 }

func newSet(elements []any) set {
	slices.SortFunc(elements, compare)
	return slices.CompactFunc(elements, func(a, b any) bool { return compare(a, b) == 0 })
}

// newObject sorts the entries; the last of several entries with equal keys counts.
func newObject(entries []entry) object {
	slices.SortStableFunc(entries, func(a, b entry) int { return compare(a.key, b.key) })
	o := entries[:0]
	for i, e := range entries {
		if i+1 == len(entries) || compare(e.key, entries[i+1].key) != 0 {
			o = append(o, e)
		}
	}
	return o
}

// rank returns the place of a type in the order of all values.
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

// compare compares two values in the order of Rego.
func compare(a, b any) int {
	if d := rank(a) - rank(b); d != 0 {
		return d
	}
	switch a := a.(type) {
	case bool:
		return boolInt(a) - boolInt(b.(bool))
	case number:
		return compareNumbers(a, b.(number))
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

// maxDigits bounds the length of a number that is rewritten, since the time grows faster than the
// length.
const maxDigits = 1000

// scientific is a parsed number: 0.digits * 10^exponent, where digits neither begins nor ends with
// 0. Nothing is computed, so 1e999999999 costs no more than its length.
type scientific struct {
	negative bool
	digits   string // Empty for 0.
	exponent int64
}

// maxExponent is the largest exponent that makes a difference. It exceeds the number of digits in
// any number.
const maxExponent = 1 << 40

// scientific parses the number; ok is false if it is not one.
func (n number) scientific() (d scientific, ok bool) {
	text := string(n)
	if d.negative = strings.HasPrefix(text, "-"); d.negative {
		text = text[1:]
	}
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		exponent := text[i+1:]
		text = text[:i]
		e, err := strconv.ParseInt(exponent, 10, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return d, false
		}
		d.exponent = max(-maxExponent, min(maxExponent, e))
	}
	whole, fraction, _ := strings.Cut(text, ".")
	d.digits = whole + fraction
	if d.digits == "" || strings.Trim(d.digits, "0123456789") != "" {
		return d, false
	}
	d.exponent += int64(len(whole))
	significant := strings.TrimLeft(d.digits, "0")
	d.exponent -= int64(len(d.digits) - len(significant))
	if d.digits = strings.TrimRight(significant, "0"); d.digits == "" {
		return scientific{}, true
	}
	return d, true
}

// sign is -1, 0 or 1.
func (d *scientific) sign() int {
	switch {
	case d.digits == "":
		return 0
	case d.negative:
		return -1
	}
	return 1
}

// compareNumbers compares two numbers. Texts that are not numbers come first.
func compareNumbers(a, b number) int {
	x, err1 := strconv.ParseInt(string(a), 10, 64)
	y, err2 := strconv.ParseInt(string(b), 10, 64)
	if err1 == nil && err2 == nil {
		return cmp.Compare(x, y)
	}
	v, ok := a.scientific()
	w, ok2 := b.scientific()
	switch {
	case !ok && !ok2:
		return strings.Compare(string(a), string(b))
	case ok != ok2:
		return boolInt(ok) - boolInt(ok2)
	case v.sign() != w.sign():
		return cmp.Compare(v.sign(), w.sign())
	}
	// Without trailing zeros, digits have the order of their texts.
	return v.sign() * cmp.Or(cmp.Compare(v.exponent, w.exponent), strings.Compare(v.digits, w.digits))
}

// int64 returns the number as an integer.
func (n number) int64() (int64, error) {
	d, ok := n.scientific()
	zeros := d.exponent - int64(len(d.digits))
	if !ok || d.digits != "" && (zeros < 0 || d.exponent > 19) {
		return 0, errArguments
	}
	if d.digits == "" {
		return 0, nil
	}
	text := d.digits + strings.Repeat("0", int(zeros))
	if d.negative {
		text = "-" + text
	}
	i, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, errArguments
	}
	return i, nil
}

// formatValue formats a value as OPA shows it to users. It returns an error if the text is longer
// than limit.
func formatValue(v any, limit int) (string, error) {
	w := writer{limit: limit, quote: func(dst []byte, s string) []byte { return strconv.AppendQuote(dst, s) }}
	w.value(v)
	return string(w.out), w.err()
}

// encodeValue encodes a value in the format of opa_value_parse. It returns an error if the text is
// longer than limit.
func encodeValue(v any, limit int) ([]byte, error) {
	w := writer{limit: limit, quote: json.AppendString[string]}
	w.value(v)
	return w.out, w.err()
}

// toJSON encodes a value as JSON: sets become arrays, and keys strings. It returns an error if the
// text is longer than limit.
func toJSON(v any, limit int) ([]byte, error) {
	w := writer{limit: limit, quote: json.AppendString[string], json: true}
	w.value(v)
	return w.out, w.err()
}

// writer writes values up to a limit, which the last string may exceed.
type writer struct {
	out   []byte
	limit int
	quote func(dst []byte, s string) []byte
	// json is set for output in JSON. A key that is an object with a key that is an object, and so
	// on, becomes a string within a string. The quotes double at each level, so a hundred bytes may
	// become any number.
	json bool
}

func (w *writer) full() bool { return len(w.out) > w.limit }

func (w *writer) err() error {
	if w.full() {
		return fmt.Errorf("%w: the value is too long when it is written", errTooMuch)
	}
	return nil
}

func (w *writer) value(v any) {
	if w.full() {
		return
	}
	switch v := v.(type) {
	case nil:
		w.out = append(w.out, "null"...)
	case bool:
		w.out = strconv.AppendBool(w.out, v)
	case int:
		w.out = strconv.AppendInt(w.out, int64(v), 10)
	case int64:
		w.out = strconv.AppendInt(w.out, v, 10)
	case number:
		w.out = append(w.out, v...)
	case string:
		w.out = w.quote(w.out, v)
	case []any:
		writeList(w, '[', v, ']')
	case []string:
		writeList(w, '[', v, ']')
	case set:
		switch {
		case w.json:
			writeList(w, '[', v, ']')
		case len(v) == 0:
			w.out = append(w.out, "set()"...)
		default:
			writeList(w, '{', v, '}')
		}
	case object:
		w.out = append(w.out, '{')
		for i, e := range v {
			if i > 0 {
				w.separate(',')
			}
			w.key(e.key)
			w.separate(':')
			w.value(e.value)
		}
		w.out = append(w.out, '}')
	default:
		panic(fmt.Sprintf("opa: a builtin returned %T", v))
	}
}

func writeList[T any](w *writer, open byte, items []T, end byte) {
	w.out = append(w.out, open)
	for i := 0; i < len(items) && !w.full(); i++ {
		if i > 0 {
			w.separate(',')
		}
		w.value(items[i])
	}
	w.out = append(w.out, end)
}

func (w *writer) separate(by byte) {
	if w.out = append(w.out, by); !w.json {
		w.out = append(w.out, ' ')
	}
}

func (w *writer) key(key any) {
	if _, ok := key.(string); ok || !w.json {
		w.value(key)
		return
	}
	inner := writer{limit: w.limit, quote: w.quote, json: true}
	inner.value(key)
	if inner.full() {
		w.limit = -1 // There is no room for this either.
		return
	}
	w.value(string(inner.out))
}
