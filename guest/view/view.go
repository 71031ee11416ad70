package view

import (
	"math"

	"github.com/kubewasm/kubewasm/guest/internal/wire"
	"github.com/kubewasm/kubewasm/internal/json"
)

// View is a view of a message. The zero value is a message without any field.
//
// The types that a generator writes have View as their underlying type, so that
// they are converted into one another. Its methods take the index of a field in
// the Names of the [Type].
type View struct {
	m *message
	// version is as wide as a register: the processor would stall at a read of
	// 64 bits soon after two writes of 32.
	version uint64
}

// Of is the underlying type of every view.
type Of interface {
	~struct {
		m       *message
		version uint64
	}
}

// Has reports whether the message has the field. In JSON, a field that is null
// counts as absent.
func (v View) Has(n uint32) bool {
	m := v.m
	if m == nil {
		return false
	}
	if m.key.version() != v.version {
		m.ready(v.version, n)
	}
	f := m.field(n)
	if m.searched() {
		f = m.found(v.version, n)
	}
	return f.version == uint32(v.version)
}

// Text returns a string, which may be kept.
func (v View) Text(n uint32) string {
	m := v.m
	if m == nil {
		return ""
	}
	if t := hit[text](m, keyOf(madeText, v.version, n)); t != nil {
		return t.string
	}
	return m.makeText(v.version, n)
}

// makeText is Text for a string that was not read in this version.
func (m *message) makeText(version uint64, n uint32) string {
	m.ready(version, n)
	raw := m.bytes(n)
	if raw == nil {
		return ""
	}
	decoded := false
	if m.object.json {
		raw, decoded = unquoted(raw)
	}
	if m.object.kept && !decoded {
		return inPlace(raw)
	}
	t := cacheFor[text](m, keyOf(madeText, version, n))
	if decoded {
		t.string = inPlace(raw)
	} else {
		t.string = m.keep(raw, t.string)
	}
	return t.string
}

// unquoted returns the text of a string in JSON. decoded reports whether it had escapes; the text
// then has separate memory.
func unquoted(raw json.Value) (text []byte, decoded bool) {
	s := raw.String()
	return bytesOf(s), len(s) != max(len(raw)-2, 0)
}

// Bytes returns a field of type bytes, which may be kept but not be written to.
// In JSON it is base64.
func (v View) Bytes(n uint32) []byte {
	m := v.m
	if m == nil {
		return nil
	}
	if t := hit[text](m, keyOf(madeText, v.version, n)); t != nil {
		return bytesOf(t.string)
	}
	m.ready(v.version, n)
	raw := m.bytes(n)
	if raw == nil {
		return nil
	}
	t := cacheFor[text](m, keyOf(madeText, v.version, n))
	if m.object.json {
		t.string = inPlace(base64(json.Value(raw)))
	} else {
		t.string = m.keep(raw, t.string)
	}
	return bytesOf(t.string)
}

// Message returns the message in a field, an empty one if there is none.
func (v View) Message(n uint32, t *Type) View {
	m := v.m
	if m == nil {
		return View{}
	}
	if c := hit[message](m, keyOf(madeMessage, v.version, n)); c != nil {
		return View{c, v.version}
	}
	return m.makeMessage(v.version, n, t)
}

// makeMessage is Message for a message that was not read in this version.
func (m *message) makeMessage(version uint64, n uint32, t *Type) View {
	if m.object.byParts && m.object.version == version {
		return m.object.partOf(version, n, t)
	}
	m.ready(version, n)
	f := m.position(n)
	if uint64(f.version) != version || f.first&isNumber != 0 {
		return View{}
	}
	k := keyOf(madeMessage, 0, n)
	c := reusable[message](m, k)
	if c == nil {
		c = &m.object.makeMessages(1, t)[0]
		c.key = k
		m.add(&c.cached)
	}
	c.place(f.value)
	c.read(version)
	return View{c, version}
}

// Int64 returns a number of type int32, int64 or an unsigned one, in two's
// complement.
func (v View) Int64(n uint32) int64 {
	m := v.m
	if m == nil {
		return 0
	}
	if m.key.version() != v.version {
		m.ready(v.version, n)
	}
	f := m.field(n)
	if f.version != uint32(v.version) {
		if !m.searched() {
			return 0
		}
		if f = m.found(v.version, n); f.version == 0 {
			return 0
		}
	}
	if f.first&isNumber != 0 {
		return int64(f.value)
	}
	return m.number(v.version, n)
}

// number is Int64 in JSON, where a protobuf encoder writes numbers of 64 bits as
// strings.
func (m *message) number(version uint64, n uint32) int64 {
	m.ready(version, n)
	if !m.object.json {
		return 0
	}
	return jsonInt64(json.Value(m.bytes(n)))
}

func jsonInt64(v json.Value) int64 {
	if v.Kind() == json.KindString {
		v = numberIn(v.String())
	}
	if n, ok := v.Int64(); ok {
		return n
	}
	n, _ := v.Uint64()
	return int64(n)
}

// numberIn returns the text of a string as a value, which may be a number: nothing if there is white
// space around it, which is not a part of a number.
func numberIn(text string) json.Value {
	if n := len(text); n == 0 || text[0] <= ' ' || text[n-1] <= ' ' {
		return nil
	}
	return json.Value(text)
}

// Sint64 returns a number of type sint32 or sint64.
func (v View) Sint64(n uint32) int64 {
	u := v.Int64(n)
	if v.m == nil || v.m.object.json {
		return u
	}
	return zigzag(u)
}

func zigzag(u int64) int64 { return int64(uint64(u)>>1) ^ -(u & 1) }

// Float64 returns a number of type double.
func (v View) Float64(n uint32) float64 {
	if v.m != nil && v.m.object.json {
		return jsonFloat64(v.Value(n).Raw)
	}
	return math.Float64frombits(uint64(v.Int64(n)))
}

// Float32 returns a number of type float.
func (v View) Float32(n uint32) float32 {
	if v.m != nil && v.m.object.json {
		return float32(jsonFloat64(v.Value(n).Raw))
	}
	return math.Float32frombits(uint32(v.Int64(n)))
}

func jsonFloat64(raw json.Value) float64 {
	if raw.Kind() == json.KindString {
		switch raw = numberIn(raw.String()); string(raw) {
		case "NaN":
			return math.NaN()
		case "Infinity":
			return math.Inf(1)
		case "-Infinity":
			return math.Inf(-1)
		}
	}
	f, _ := raw.Float64()
	return f
}

// Bool returns a truth value.
func (v View) Bool(n uint32) bool {
	m := v.m
	if m == nil {
		return false
	}
	if m.key.version() != v.version {
		m.ready(v.version, n)
	}
	f := m.field(n)
	if f.version != uint32(v.version) {
		if !m.searched() {
			return false
		}
		if f = m.found(v.version, n); f.version == 0 {
			return false
		}
	}
	if f.first&isNumber != 0 {
		return f.value != 0
	}
	return m.truth(v.version, n)
}

func (m *message) truth(version uint64, n uint32) bool {
	m.ready(version, n)
	if !m.object.json {
		return false
	}
	b, _ := json.Value(m.bytes(n)).Bool()
	return b
}

// EnumValue is a value of an enumeration, with its name in JSON.
type EnumValue struct {
	Name   string
	Number int32
}

// Enum returns the number of an enumeration's value.
func (v View) Enum(n uint32, values []EnumValue) int32 {
	if v.m == nil || !v.m.object.json {
		return int32(v.Int64(n))
	}
	return jsonEnum(v.Value(n).Raw, values)
}

func jsonEnum(raw json.Value, values []EnumValue) int32 {
	if s, ok := raw.Text(); ok {
		for i := range values {
			if values[i].Name == s {
				return values[i].Number
			}
		}
	}
	return int32(jsonInt64(raw))
}

// Value returns a field in its encoding in the object.
func (v View) Value(n uint32) Value {
	m := v.m
	if m == nil {
		return Value{}
	}
	m.ready(v.version, n)
	return Value{Raw: m.bytes(n), JSON: m.object.json, Kept: m.object.kept}
}

// Value is a field that is not read any further: a message in protobuf, without its length, or any
// value in JSON. Functions that return a type other than a view, such as a time, read it. Raw must
// not be kept or written to.
type Value struct {
	// Raw is nil if there is no such field.
	Raw  []byte
	JSON bool
	// Kept reports that Raw is never overwritten.
	Kept bool
}

// Text returns part, which lies in v.Raw, as a string that may be kept.
func (v Value) Text(part []byte) string {
	if v.Kept {
		return inPlace(part)
	}
	return string(part)
}

// Field returns the number and the bytes of a field of v, a message in protobuf.
func (v Value) Field(number uint32) (n uint64, b []byte) {
	for r := wire.NewReader(v.Raw); r.Next(); {
		if r.Field == number {
			n, b = r.Uint64(), r.Bytes()
		}
	}
	return n, b
}

// Each calls f with the bytes of each field of the number in v, a message in
// protobuf.
func (v Value) Each(number uint32, f func([]byte)) {
	for r := wire.NewReader(v.Raw); r.Next(); {
		if r.Field == number && r.Type == wire.Bytes {
			f(r.Bytes())
		}
	}
}

// Mark returns the address of a number that belongs to a message in this version, and is 0 in the
// beginning: the SDK records its findings about the message there. It is nil for an object and for
// its parts, and after the object has changed.
func (v View) Mark() *uint64 {
	m := v.m
	if m == nil || m == &m.object.root || m.object.version != v.version {
		return nil
	}
	return &m.mark
}

// Proto returns the bytes of a message in protobuf that is an element of a list, for those
// that read all its fields at once. They are valid as long as the view is and must not be
// written to. ok is false for any other message.
func (v View) Proto() (raw []byte, ok bool) {
	m := v.m
	if m == nil || m.object.json || m == &m.object.root {
		return nil, false
	}
	if m.object.version != v.version {
		stale()
	}
	return m.object.bytes[m.at:m.end], true
}
