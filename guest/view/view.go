package view

import (
	"math"
	"unsafe"

	"github.com/kubewasm/kubewasm/guest/internal/wire"
	"github.com/kubewasm/kubewasm/internal/json"
)

// View is a view of a message. The zero value is a message without any field.
//
// The types that a generator writes have View as their underlying type, so that
// they are converted into one another. Its methods take the index of a field in
// the Names of the [Type].
type View struct {
	m       *message
	version uint32
}

// Of is what every view is underneath.
type Of interface {
	~struct {
		m       *message
		version uint32
	}
}

// Has reports whether the message has the field. In JSON null is as good as
// nothing.
func (v View) Has(n uint32) bool {
	m := v.m
	if m == nil {
		return false
	}
	if m.version != v.version {
		m.ready(v.version)
	}
	return m.has(n)
}

// Text returns a string, which may be kept.
func (v View) Text(n uint32) string {
	if m := v.m; m != nil && n < uint32(len(m.texts)) {
		if t := &m.texts[n]; t.version == v.version {
			return t.string
		}
	}
	return v.text(n)
}

// text is Text for what was not read yet.
//
//go:noinline
func (v View) text(n uint32) string {
	m := v.m
	if m == nil {
		return ""
	}
	m.ready(v.version)
	raw := m.bytes(n)
	if raw == nil {
		return ""
	}
	t := m.textOf(n)
	if m.object.json {
		raw = bytesOf(json.Value(raw).String())
	}
	t.string, t.version = m.keep(raw, t.string), v.version
	return t.string
}

// Bytes returns a field of type bytes, which may be kept but not be written to.
// In JSON it is base64.
func (v View) Bytes(n uint32) []byte {
	m := v.m
	if m == nil {
		return nil
	}
	if n < uint32(len(m.texts)) {
		if t := &m.texts[n]; t.version == v.version {
			return bytesOf(t.string)
		}
	}
	m.ready(v.version)
	raw := m.bytes(n)
	if raw == nil {
		return nil
	}
	t := m.textOf(n)
	if m.object.json {
		t.string = inPlace(base64(json.Value(raw)))
	} else {
		t.string = m.keep(raw, t.string)
	}
	t.version = v.version
	return bytesOf(t.string)
}

// Message returns the message in a field, an empty one if there is none.
func (v View) Message(n uint32, t *Type) View {
	if m := v.m; m != nil && n < uint32(len(m.children)) {
		if c := m.children[n]; c != nil && c.version == v.version {
			return View{c, v.version}
		}
	}
	return v.message(n, t)
}

// message is Message for what was not read yet.
//
//go:noinline
func (v View) message(n uint32, t *Type) View {
	m := v.m
	if m == nil {
		return View{}
	}
	m.ready(v.version)
	if m.bytes(n) == nil {
		return View{}
	}
	if m.children == nil {
		m.children = make([]*message, len(m.fields))
	}
	c := m.children[n]
	if c == nil {
		c = &message{object: m.object, typ: t}
		m.children[n] = c
	}
	f := &m.fields[n]
	c.raw = m.raw[uint32(f.value) : f.value>>32] // What is behind stays readable.
	c.read(v.version)
	return View{c, v.version}
}

// Texts reads the strings in the fields with the indexes 1 to len(into)-1, which
// are their numbers, into a slice of empty strings. It is faster than to read one
// after the other, but remembers nothing, and the strings are only valid as long
// as the object's version stands.
func (v View) Texts(into []string) {
	m := v.m
	if m == nil {
		return
	}
	if m.object.version != v.version {
		stale()
	}
	if m.object.unread {
		m.object.fetch()
	}
	if m.object.json {
		for n := range into[1:] {
			into[n+1] = json.Value(v.Value(uint32(n + 1)).Raw).String()
		}
		return
	}
	if i := usualTexts(m.raw, into); i < len(m.raw) {
		for r := wire.NewReaderAt(m.raw, i); r.Next(); {
			if r.Field < uint32(len(into)) {
				into[r.Field] = r.String()
			}
		}
	}
}

// usualTexts reads strings from raw on, as long as they are in the usual form and
// asked for, and returns the index after them. It is written as readUsual is, for
// the same reasons.
//
//go:noinline
func usualTexts(raw []byte, into []string) int {
	b, n, i := unsafe.Pointer(unsafe.SliceData(raw)), uint(len(raw)), uint(0)
	for i+2 <= n {
		w := load16(b, i)
		start, end := i+2, i+2+w>>8
		k := w >> 3 & 15
		if (w&0x8087^uint(wire.Bytes))|above(end, n)|above(1, k) != 0 || k >= uint(len(into)) {
			break
		}
		into[k] = unsafe.String((*byte)(unsafe.Add(b, start)), w>>8)
		i = end
	}
	return int(i)
}

// Int64 returns a number of type int32, int64 or an unsigned one, in two's
// complement.
func (v View) Int64(n uint32) int64 {
	m := v.m
	if m == nil {
		return 0
	}
	if m.version != v.version {
		m.ready(v.version)
	}
	f := &m.fields[n]
	if f.version != v.version {
		return 0
	}
	if f.first&isNumber != 0 {
		return int64(f.value)
	}
	return m.number(v.version, n)
}

// number is Int64 in JSON, where a protobuf encoder writes numbers of 64 bits as
// strings.
func (m *message) number(version, n uint32) int64 {
	m.ready(version)
	if !m.object.json {
		return 0
	}
	return jsonInt64(json.Value(m.bytes(n)))
}

func jsonInt64(v json.Value) int64 {
	if v.Kind() == json.KindString {
		v = json.Value(v.String())
	}
	if n, ok := v.Int64(); ok {
		return n
	}
	n, _ := v.Uint64()
	return int64(n)
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
		switch raw = json.Value(raw.String()); string(raw) {
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
	if m.version != v.version {
		m.ready(v.version)
	}
	f := &m.fields[n]
	if f.version != v.version {
		return false
	}
	if f.first&isNumber != 0 {
		return f.value != 0
	}
	return m.truth(v.version, n)
}

func (m *message) truth(version, n uint32) bool {
	m.ready(version)
	if !m.object.json {
		return false
	}
	b, _ := json.Value(m.bytes(n)).Bool()
	return b
}

// EnumValue is a value of an enumeration, with the name that stands for it in
// JSON.
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

// Value returns a field as it lies in the object.
func (v View) Value(n uint32) Value {
	m := v.m
	if m == nil {
		return Value{}
	}
	m.ready(v.version)
	return Value{Raw: m.bytes(n), JSON: m.object.json, Kept: m.object.kept}
}

// Value is a field that is not read any further: a message in protobuf, without
// its length, or any value in JSON. Functions that return something else than a
// view, such as a time, read it. Raw must not be kept or written to.
type Value struct {
	// Raw is nil if there is no such field.
	Raw  []byte
	JSON bool
	// Kept says that Raw is never overwritten.
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
