package view

import (
	"math"
	"unsafe"

	"github.com/kubewasm/kubewasm/guest/internal/wire"
	"github.com/kubewasm/kubewasm/internal/json"
)

// list is what was made of a field with several elements.
type list struct {
	// version is that of the message that the rest is of.
	version uint32
	// field is whose list it is.
	field uint16
	// next is the answer of recent to replace.
	next uint8
	// What accessors return: new for each version of the object, since a plugin
	// may hold the one before.
	views   []View
	strings []string
	entries []Entry
	// values is a slice of the type that the accessor returns.
	values any
	// elements are used again for the next version.
	elements []message
	// recent are the answers of the last look-ups in a map, up to maxRecent.
	recent []answer
	note   Note
}

const maxRecent = 4

// Note is a place for what was worked out of a list and is asked for often.
type Note struct {
	// Value is of the version Made of the list.
	Value any
	Made  uint32
	// Version is that of the list. If Made is another, Value is nobody's any
	// more, and its memory may be used again.
	Version uint32
}

// NoteOf returns the note of a slice that [List] returned; nil for any other
// slice, be it a part of one, and for an empty one.
func NoteOf[V Of](views []V) *Note {
	if len(views) == 0 {
		return nil
	}
	v := View(views[0])
	if v.m == nil || v.m.in == nil {
		return nil
	}
	l := v.m.in
	if l.version != v.version || len(l.views) != len(views) || unsafe.Pointer(unsafe.SliceData(l.views)) != unsafe.Pointer(unsafe.SliceData(views)) {
		return nil
	}
	return &l.note
}

// list returns the list of a field that is of the version, nil if none was made
// yet.
func (m *message) list(version, n uint32) *list {
	for _, l := range m.lists {
		if uint32(l.field) == n {
			if l.version == version {
				return l
			}
			break
		}
	}
	return nil
}

// newList returns an empty list for the version of the message, which is ready.
func (m *message) newList(n uint32) *list {
	var l *list
	for _, of := range m.lists {
		if uint32(of.field) == n {
			l = of
		}
	}
	if l == nil {
		l = &list{field: uint16(n)}
		m.lists = append(m.lists, l)
	}
	l.views, l.strings, l.entries, l.values = nil, nil, nil, nil
	l.next = 0 // A plugin asks for the same keys, in the same order.
	l.version, l.note.Version = m.version, m.version
	return l
}

// List returns the views of the elements of a repeated message, in their order.
// The slice is remembered: nobody may change it.
func List[V Of](v View, n uint32, t *Type) []V {
	if m := v.m; m != nil {
		if l := m.list(v.version, n); l != nil {
			// V is View by another name.
			return *(*[]V)(unsafe.Pointer(&l.views))
		}
		if m.version == v.version && m.fields[n].version != v.version {
			return nil // Most Nodes have no taints.
		}
	}
	views := v.views(n, t)
	return *(*[]V)(unsafe.Pointer(&views))
}

// views is List for what was not read yet.
//
//go:noinline
func (v View) views(n uint32, t *Type) []View {
	m, version := v.m, v.version
	if m == nil {
		return nil
	}
	m.ready(version)
	raw := m.repeated(n)
	if raw == nil {
		return nil
	}
	l := m.newList(n)
	if m.object.json {
		count := 0
		m.each(n, raw, func([]byte) { count++ })
		l.makeElements(m.object, t, count)
		l.views = make([]View, 0, count)
		m.each(n, raw, func(element []byte) { l.add(element, version) })
		return l.views
	}
	key, count := m.key(n), 0
	for i := 0; ; count++ {
		if _, i = element(raw, i, key); i < 0 {
			break
		}
	}
	l.makeElements(m.object, t, count)
	l.views = m.object.makeViews(count)
	for i := 0; len(l.views) < count; {
		var start int
		start, i = element(raw, i, key)
		l.add(raw[start:i:i], version)
	}
	return l.views
}

// makeViews returns an empty slice with room for count views, cut from one for
// several versions: in a Go guest to allocate costs as much as to read a message.
func (o *object) makeViews(count int) []View {
	if count > len(o.spare) {
		o.spare = make([]View, min(2*count, count+28))
	}
	views := o.spare[:0:count]
	o.spare = o.spare[count:]
	return views
}

// add adds the view of an element, for which there is room.
func (l *list) add(raw []byte, version uint32) {
	e := &l.elements[len(l.views)]
	e.raw, e.version = raw, 0
	l.views = append(l.views, View{e, version})
}

// makeElements makes sure that there are count elements.
func (l *list) makeElements(o *object, t *Type, count int) {
	if count <= len(l.elements) {
		return
	}
	l.elements = make([]message, count)
	for i := range l.elements {
		l.elements[i] = message{object: o, typ: t, in: l}
	}
}

// Strings returns the elements of a repeated string, in their order.
func (v View) Strings(n uint32) []string {
	m := v.m
	if m == nil {
		return nil
	}
	if l := m.list(v.version, n); l != nil {
		return l.strings
	}
	return m.makeStrings(v.version, n)
}

func (m *message) makeStrings(version, n uint32) []string {
	m.ready(version)
	raw := m.repeated(n)
	if raw == nil {
		return nil
	}
	l := m.newList(n)
	raw = bytesOf(m.keep(raw, "")) // One copy for all.
	count := 0
	m.each(n, raw, func([]byte) { count++ })
	l.strings = make([]string, 0, count)
	m.each(n, raw, func(element []byte) {
		if m.object.json {
			l.strings = append(l.strings, json.Value(element).String())
		} else {
			l.strings = append(l.strings, inPlace(element))
		}
	})
	return l.strings
}

// Values returns what of makes of each element of a repeated field, in their
// order. It is for messages that are read into something else than a view, and
// for bytes.
func Values[T any](v View, n uint32, of func(Value) T) []T {
	m := v.m
	if m == nil {
		return nil
	}
	if l := m.list(v.version, n); l != nil {
		return l.values.([]T)
	}
	m.ready(v.version)
	raw := m.repeated(n)
	if raw == nil {
		return nil
	}
	l := m.newList(n)
	values := []T{}
	m.each(n, raw, func(element []byte) {
		values = append(values, of(Value{Raw: element, JSON: m.object.json, Kept: m.object.kept}))
	})
	l.values = values
	return values
}

// NumberKind says how a number lies in protobuf.
type NumberKind uint8

// The kinds of numbers.
const (
	// Varint is int32, int64, uint32, uint64, bool and enumerations.
	Varint NumberKind = iota
	// Zigzag is sint32 and sint64.
	Zigzag
	// Fixed32 is fixed32, sfixed32 and float.
	Fixed32
	// Fixed64 is fixed64, sfixed64 and double.
	Fixed64
)

// Integer is the types of fields that are whole numbers.
type Integer interface {
	~int32 | ~int64 | ~uint32 | ~uint64
}

// Ints returns the elements of a repeated whole number, in their order, packed or
// not.
func Ints[T Integer](v View, n uint32, kind NumberKind) []T {
	return numbers(v, n, kind, func(bits uint64, v json.Value) T {
		if v != nil {
			return T(jsonInt64(v))
		}
		return T(bits)
	})
}

// Enums returns the elements of a repeated enumeration, in their order.
func Enums[T ~int32](v View, n uint32, values []EnumValue) []T {
	return numbers(v, n, Varint, func(bits uint64, v json.Value) T {
		if v != nil {
			return T(jsonEnum(v, values))
		}
		return T(bits)
	})
}

// Floats returns the elements of a repeated float or double, in their order.
func Floats[T float32 | float64](v View, n uint32, kind NumberKind) []T {
	return numbers(v, n, kind, func(bits uint64, v json.Value) T {
		switch {
		case v != nil:
			return T(jsonFloat64(v))
		case kind == Fixed32:
			return T(math.Float32frombits(uint32(bits)))
		}
		return T(math.Float64frombits(bits))
	})
}

// Bools returns the elements of a repeated truth value, in their order.
func Bools(v View, n uint32) []bool {
	return numbers(v, n, Varint, func(bits uint64, v json.Value) bool {
		b, _ := v.Bool()
		return b || bits != 0
	})
}

// numbers returns what of makes of each element: of its bits, or of its JSON if
// there is any.
func numbers[T any](v View, n uint32, kind NumberKind, of func(bits uint64, v json.Value) T) []T {
	m := v.m
	if m == nil {
		return nil
	}
	if l := m.list(v.version, n); l != nil {
		return l.values.([]T)
	}
	m.ready(v.version)
	if !m.has(n) {
		return nil
	}
	l := m.newList(n)
	list := []T{}
	m.eachNumber(n, kind, func(bits uint64, v json.Value) { list = append(list, of(bits, v)) })
	l.values = list
	return list
}

// eachNumber calls f with each element of a repeated number.
func (m *message) eachNumber(n uint32, kind NumberKind, f func(uint64, json.Value)) {
	if m.object.json {
		m.each(n, m.bytes(n), func(element []byte) { f(0, element) })
		return
	}
	one, number := wire.Varint, uint32(m.key(n)>>3)
	switch kind {
	case Fixed32:
		one = wire.Fixed32
	case Fixed64:
		one = wire.Fixed64
	}
	number64 := func(u uint64) {
		if kind == Zigzag {
			u = uint64(zigzag(int64(u)))
		}
		f(u, nil)
	}
	for r := wire.NewReader(m.raw[m.fields[n].first&^isNumber:]); r.Next(); {
		switch {
		case r.Field != number:
		case r.Type == one:
			number64(r.Uint64())
		case r.Type == wire.Bytes: // Packed.
			for b, i := r.Bytes(), 0; i < len(b); {
				var u uint64
				if one == wire.Varint {
					u, i = wire.Uvarint(b, i)
				} else {
					u, i = wire.Fixed(b, i, one)
				}
				if i < 0 {
					break
				}
				number64(u)
			}
		}
	}
}

// repeated returns the bytes from the first element of a field to the last, with
// other fields in between, or the array in JSON; nil if there is none.
func (m *message) repeated(n uint32) []byte {
	raw := m.bytes(n)
	if raw == nil || m.object.json {
		return raw
	}
	f := &m.fields[n]
	return m.raw[f.first : f.value>>32]
}

// each calls f with each element of a field in raw, which repeated returned.
func (m *message) each(n uint32, raw []byte, f func([]byte)) {
	if m.object.json {
		for it := json.Array(raw); it.Next(); {
			f(it.Value())
		}
		return
	}
	key := m.key(n)
	for i := 0; ; {
		var start int
		if start, i = element(raw, i, key); i < 0 {
			return
		}
		f(raw[start:i:i])
	}
}

// element returns where the contents of the first field at raw[i] or behind it
// lie that has the key, -1 if there is none.
func element(raw []byte, i int, key uint64) (start, end int) {
	if i+2 <= len(raw) {
		// The usual element has one byte each for key and length.
		w := load16(unsafe.Pointer(unsafe.SliceData(raw)), uint(i))
		start, end = i+2, i+2+int(w>>8)
		if (w&0x80ff^uint(key))|uint(key)&^0x7f|above(uint(end), uint(len(raw))) == 0 {
			return start, end
		}
	}
	return wire.Find(raw, i, key)
}
