package view

import (
	"math"
	"unsafe"

	"github.com/kubewasm/kubewasm/guest/internal/wire"
	"github.com/kubewasm/kubewasm/internal/json"
)

// messages is the cached value of a field that is a list of messages, or a map
// to messages.
type messages struct {
	cached
	// views is the result of accessors: a new slice for each version of the object,
	// since a plugin may keep the one before.
	views []View
	// elements are used again for the next version.
	elements []message
}

// List returns the views of the elements of a repeated message, in their order.
// The slice is cached: the caller must not change it.
func List[V Of](v View, n uint32, t *Type) []V {
	views := v.list(n, t)
	return *(*[]V)(unsafe.Pointer(&views)) // V is View by another name.
}

func (v View) list(n uint32, t *Type) []View {
	m := v.m
	if m == nil {
		return nil
	}
	if l := hit[messages](m, keyOf(madeMessages, v.version, n)); l != nil {
		return l.views
	}
	return m.makeList(v.version, n, t)
}

// makeList is list for a field that was not read in this version.
func (m *message) makeList(version uint64, n uint32, t *Type) []View {
	m.ready(version, n)
	f := field{value: uint64(m.end) << 32, first: m.at} // A part is searched by placeElements.
	if !m.searched() {
		if f = *m.field(n); uint64(f.version) != version || f.first&isNumber != 0 {
			return nil
		}
	} else if m.at == m.end {
		return nil
	}
	l := cacheFor[messages](m, keyOf(madeMessages, version, n))
	count := m.placeElements(f, n, l.elements)
	if count > len(l.elements) {
		l.elements = m.object.makeMessages(count, t)
		m.placeElements(f, n, l.elements)
	}
	if count == 0 {
		l.views = nil
		return nil
	}
	views, elements := m.object.newViews(count), l.elements[:count]
	for i := range elements {
		views[i] = View{&elements[i], version}
	}
	l.views = views
	return views
}

// newViews returns n views. Small lists of objects of which more versions come share an allocation,
// which costs as much as to read a message: there are thousands of such objects, so none has spare
// views.
func (o *object) newViews(n int) []View {
	if o.once != nil || n > viewsAtOnce {
		return make([]View, n)
	}
	if n > len(spareViews) {
		spareViews = make([]View, viewsAtOnce)
	}
	views := spareViews[:n:n]
	spareViews = spareViews[n:]
	return views
}

// viewsAtOnce is the number of views that are made at once, and spareViews are those that no list
// has yet.
const viewsAtOnce = 64

var spareViews []View

// placeElements places the elements of field n, which lies at f, as many as there is room for, and
// returns their number.
func (m *message) placeElements(f field, n uint32, into []message) (count int) {
	tag := m.tag(n)
	if m.object.json {
		it := &m.object.once.walker
		for it.Array(int(uint32(f.value)), int(f.value>>32)); it.Next(); count++ {
			if count < len(into) {
				into[count].place(span(it.Span()))
			}
		}
		return count
	}
	b, number := m.object.bytes[:f.value>>32], false
	for i := int(f.first); i < len(b); {
		key, start, end := wire.Field(b, i)
		if i = end; key != tag {
			number = number || key>>3 == tag>>3
			continue
		}
		if count < len(into) {
			into[count].place(span(start, end))
		}
		count++
		number = false
	}
	if number {
		return 0 // The last occurrence counts, and is no message.
	}
	return count
}

// Strings returns the elements of a repeated string, in their order.
func (v View) Strings(n uint32) []string {
	m := v.m
	if m == nil {
		return nil
	}
	if l := hit[values[[]string]](m, keyOf(madeStrings, v.version, n)); l != nil {
		return l.of
	}
	return m.makeStrings(v.version, n)
}

func (m *message) makeStrings(version uint64, n uint32) []string {
	m.ready(version, n)
	f, ok := m.spanned(n)
	if !ok {
		return nil
	}
	raw := m.repeated(f)
	kept := m.keep(raw, "") // One copy for all.
	first := uint32(m.object.spanOf(raw))
	count := 0
	m.each(f, n, func(uint64) { count++ })
	list := make([]string, 0, count)
	m.each(f, n, func(element uint64) {
		if m.object.json {
			// Without escapes it is a part of kept.
			element := bytesOf(kept)[uint32(element)-first : uint32(element>>32)-first]
			list = append(list, json.Value(element).String())
		} else {
			list = append(list, kept[uint32(element)-first:uint32(element>>32)-first])
		}
	})
	cacheFor[values[[]string]](m, keyOf(madeStrings, version, n)).of = list
	return list
}

// Values returns the results of of for the elements of a repeated field, in their order. It is for
// bytes, and for messages that are read into a type other than a view.
func Values[T any](v View, n uint32, of func(Value) T) []T {
	m := v.m
	if m == nil {
		return nil
	}
	if l := hit[values[any]](m, keyOf(madeValues, v.version, n)); l != nil {
		return l.of.([]T)
	}
	m.ready(v.version, n)
	f, ok := m.spanned(n)
	if !ok {
		return nil
	}
	list := []T{}
	m.each(f, n, func(element uint64) {
		list = append(list, of(Value{Raw: m.object.at(element), JSON: m.object.json, Kept: m.object.kept}))
	})
	cacheFor[values[any]](m, keyOf(madeValues, v.version, n)).of = list
	return list
}

// NumberKind is the encoding of a number in protobuf.
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

// integer is the types of fields that are whole numbers.
type integer interface {
	~int32 | ~int64 | ~uint32 | ~uint64
}

// Ints returns the elements of a repeated whole number, in their order, packed or
// not.
func Ints[T integer](v View, n uint32, kind NumberKind) []T {
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

// numbers returns the results of of for the elements, which gets the bits of
// each, or its JSON if there is any.
func numbers[T any](v View, n uint32, kind NumberKind, of func(bits uint64, v json.Value) T) []T {
	m := v.m
	if m == nil {
		return nil
	}
	if l := hit[values[any]](m, keyOf(madeValues, v.version, n)); l != nil {
		return l.of.([]T)
	}
	m.ready(v.version, n)
	f := m.position(n)
	if uint64(f.version) != v.version {
		return nil
	}
	list := []T{}
	m.eachNumber(f, n, kind, func(bits uint64, v json.Value) { list = append(list, of(bits, v)) })
	cacheFor[values[any]](m, keyOf(madeValues, v.version, n)).of = list
	return list
}

// eachNumber calls f with each element of a repeated number, field n, which lies at the position.
func (m *message) eachNumber(position field, n uint32, kind NumberKind, f func(uint64, json.Value)) {
	if m.object.json {
		m.each(position, n, func(element uint64) { f(0, m.object.at(element)) })
		return
	}
	one, number := wire.Varint, uint32(m.tag(n)>>3)
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
	for r := wire.NewReaderAt(m.object.bytes[:m.end], int(position.first&^isNumber)); r.Next(); {
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

// repeated returns the bytes from the first element of the field at f to the last, with
// other fields in between, or the array in JSON.
func (m *message) repeated(f field) []byte {
	if m.object.json {
		return m.object.at(f.value)
	}
	return m.object.at(f.value&^math.MaxUint32 | uint64(f.first))
}

// each calls call with the span of each element of field n, which lies at f and is not a number.
func (m *message) each(f field, n uint32, call func(span uint64)) {
	raw := m.repeated(f)
	if m.object.json {
		for it := json.Array(raw); it.Next(); {
			call(m.object.spanOf(it.Value()))
		}
		return
	}
	first, tag := int(f.first), m.tag(n)
	for start, end := wire.Find(raw, 0, tag); end >= 0; start, end = wire.Find(raw, end, tag) {
		call(span(first+start, first+end))
	}
}
