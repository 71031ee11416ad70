package view

import (
	"unsafe"

	"github.com/kubewasm/kubewasm/guest/internal/wire"
	"github.com/kubewasm/kubewasm/internal/json"
)

// Type describes a kind of message. Generated code declares it as data, once
// for each kind.
type Type struct {
	// Names are the names of the fields in JSON. Accessors take a field's index
	// here, which is its number unless there are Numbers. Index 0 is no field.
	Names []string
	// Numbers are the numbers of the fields in protobuf, by the same index and
	// in ascending order. They are set for a message whose numbers are sparse.
	Numbers []uint32
	// Inlined are the indexes of the messages that are inlined in JSON, as an
	// embedded struct is in Go.
	Inlined []uint32
}

// message is the parsed part of a message. It takes a line of the processor's
// cache.
type message struct {
	// cached is that of a field of the message above, unused for an element of a
	// list. Its version is the one in which this level was read.
	cached
	object *object
	// made is the first of the cached values of the fields.
	made *cached
	// The bytes of the message, or its JSON, are object.bytes[at:end].
	at, end uint32
	// fields are the positions of the fields: the first of as many as there are
	// Names, nil before the level is first read, and noFields in a part of an object.
	fields *field
	typ    *Type
	// mark is the target of the pointer that View.Mark returns. With it a message takes one line of
	// the processor's cache.
	mark uint64
}

// field is the position of a field.
type field struct {
	// value is the number of a numeric field. Otherwise the field's bytes, or
	// its value in JSON, are a span of the object.
	value uint64
	// first is the position in the object of the first element of a repeated
	// field, with its key. isNumber is added if value is a number.
	first uint32
	// version is that of the message that has the field. In any other version
	// the message does not have it, so nothing needs to be cleared.
	version uint32
}

const isNumber = 1 << 31

// A field is read as a json.Field.
var _ [0]struct{} = [unsafe.Sizeof(field{}) - unsafe.Sizeof(json.Field{})]struct{}{}

// ready reads this level for a view of the given version, before an access to field n, unless it
// was read already. It panics if the object has changed since.
func (m *message) ready(version uint64, n uint32) {
	if m.object.version != version {
		stale()
	}
	if m.lacks(n) {
		m.fetchField(version, n)
	} else if m.key.version() != version {
		m.read(version)
	}
}

// lacks reports whether field n may exist and was not fetched.
func (m *message) lacks(n uint32) bool {
	return (m.object.unread || m.object.missing>>n&1 != 0) && m == &m.object.root
}

// noFields are those of a part of an object. It has few fields, which its plugin reads, so they
// are searched for. Positions of as many as the type has would take more memory than they do,
// for each Node and each Pod.
var noFields [maxFields]field

// searched reports whether the fields of the message are searched for.
func (m *message) searched() bool { return m.fields == &noFields[0] }

// field returns the place of the position of field n. The message is ready. In one that is
// searched, no place has a position.
func (m *message) field(n uint32) *field {
	if uint64(n) >= uint64(len(m.typ.Names)) {
		panic("kubewasm: a view was asked for a field that its type has not")
	}
	return (*field)(unsafe.Add(unsafe.Pointer(m.fields), uintptr(n)*unsafe.Sizeof(field{})))
}

// position returns the position of field n. The message is ready.
func (m *message) position(n uint32) field {
	f := m.field(n)
	if m.searched() {
		return m.search(n)
	}
	return *f
}

// found is position for a number, or for the existence of field n, in a message that is searched.
// The field is fetched if it was not.
func (m *message) found(version uint64, n uint32) *field {
	k := keyOf(madePosition, version, n)
	if p := hit[position](m, k); p != nil {
		return &p.field
	}
	m.ready(version, n)
	f := m.search(n)
	p := cacheFor[position](m, k)
	p.field = f
	return &p.field
}

// read records the places of the fields of this level. If a field occurs more than once, the last
// counts, as in every decoder. Malformed bytes end the message.
func (m *message) read(version uint64) {
	if m.object.unread {
		m.object.fetch()
	}
	m.key = m.key.in(version)
	if m.searched() {
		return
	}
	if m.fields == nil {
		m.fields = unsafe.SliceData(m.object.makeFields(len(m.typ.Names)))
	}
	if m.object.json {
		m.readJSON()
	} else {
		m.readProto(0, nil)
	}
}

// search finds field n of a part that is ready.
func (m *message) search(n uint32) (f field) {
	if o := m.object; o.unread || o.missing>>n&1 != 0 {
		return f
	}
	m.readProto(m.tag(n)>>3, &f)
	return f
}

// readProto records the places of the fields of protobuf; if only is not nil, only that of the
// field with the number. It is one loop over locals, which reads numbers of one byte itself: in a
// Go guest a call costs as much as reading a short field does.
func (m *message) readProto(number uint64, only *field) {
	b, version := m.object.bytes[:m.end], uint32(m.key.version())
	for i := int(m.at); uint(i) < uint(len(b)); {
		start, key := i, uint64(b[i])
		if i++; key >= 0x80 {
			key, i = wire.Uvarint(b, start)
		}
		if i < 0 || i >= len(b) || key>>3 == 0 || key>>3 > wire.MaxField {
			return
		}
		first, value := uint32(start), uint64(b[i])
		switch wire.Type(key & 7) {
		case wire.Bytes:
			if i++; value >= 0x80 {
				value, i = wire.Uvarint(b, i-1)
			}
			if i < 0 || value > uint64(len(b)-i) {
				return
			}
			end := i + int(value)
			value, i = span(i, end), end
		case wire.Varint:
			if i++; value >= 0x80 {
				value, i = wire.Uvarint(b, i-1)
			}
			first |= isNumber
		case wire.Fixed64, wire.Fixed32:
			value, i = wire.Fixed(b, i, wire.Type(key&7))
			first |= isNumber
		default:
			return
		}
		if i < 0 {
			return
		}
		f := only
		if f == nil {
			if f = m.numbered(key >> 3); f == nil {
				continue
			}
		} else if key>>3 != number {
			continue
		}
		if f.version == version {
			first = first&isNumber | f.first&^isNumber
		}
		f.value, f.first, f.version = value, first, version
	}
}

// numbered returns the field with the number in protobuf, nil if there is none.
func (m *message) numbered(number uint64) *field {
	if m.typ.Numbers != nil {
		return m.farBetween(number)
	}
	if number < uint64(len(m.typ.Names)) {
		return m.field(uint32(number))
	}
	return nil
}

// farBetween is numbered for a type whose numbers are sparse.
func (m *message) farBetween(number uint64) *field {
	numbers := m.typ.Numbers
	low, high := 1, len(numbers)
	for low < high {
		if mid := (low + high) / 2; uint64(numbers[mid]) < number {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low < len(numbers) && uint64(numbers[low]) == number {
		return m.field(uint32(low))
	}
	return nil
}

// tag returns the tag of the field n in protobuf, if it is of type Bytes.
func (m *message) tag(n uint32) uint64 {
	if m.typ.Numbers != nil {
		n = m.typ.Numbers[n]
	}
	return uint64(n)<<3 | uint64(wire.Bytes)
}

// readJSON reads the fields of an object. A field is a json.Field by other names.
func (m *message) readJSON() {
	version := uint32(m.key.version())
	fields := unsafe.Slice((*json.Field)(unsafe.Pointer(m.fields)), len(m.typ.Names))
	m.object.once.walker.ReadObject(int(m.at), int(m.end), m.typ.Names, fields, version)
	for _, i := range m.typ.Inlined {
		*m.field(i) = field{value: span(int(m.at), int(m.end)), version: version}
	}
}

// bytes returns the bytes of a field or its JSON, nil for a number or a missing field. The message
// is ready.
func (m *message) bytes(n uint32) []byte {
	f, ok := m.spanned(n)
	if !ok {
		return nil
	}
	return m.object.at(f.value)
}

// spanned is position for a field that has bytes; ok reports whether it has.
func (m *message) spanned(n uint32) (f field, ok bool) {
	f = m.position(n)
	return f, uint64(f.version) == m.key.version() && f.first&isNumber == 0
}

// A span is a range of bytes of an object: the lower half is its start, the
// upper half its end.
func span(start, end int) uint64 { return uint64(end)<<32 | uint64(start) }

// at returns the bytes of a span.
func (o *object) at(span uint64) []byte {
	start, end := uint32(span), span>>32
	return o.bytes[start:end:end]
}

// spanOf returns the span of a part of the object.
func (o *object) spanOf(part []byte) uint64 {
	start := uintptr(unsafe.Pointer(unsafe.SliceData(part))) - uintptr(unsafe.Pointer(unsafe.SliceData(o.bytes)))
	return span(int(start), int(start)+len(part))
}

// place makes m the message in a span of the object. It is parsed when a field
// is first read.
func (m *message) place(span uint64) {
	m.at, m.end, m.key, m.mark = uint32(span), uint32(span>>32), m.key.in(0), 0
}

// keep returns raw, a part of the message, as a string that never changes. old
// is the string of the version before; it is reused if it is equal, since a copy
// would become garbage.
func (m *message) keep(raw []byte, old string) string {
	if m.object.kept {
		return inPlace(raw)
	}
	if inPlace(raw) == old {
		return old
	}
	return string(raw)
}

// inPlace returns raw as a string that shares its memory.
func inPlace(raw []byte) string { return unsafe.String(unsafe.SliceData(raw), len(raw)) }

// bytesOf returns the memory of s, which must not be written to.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
