package view

import (
	"math"
	"unsafe"

	"github.com/kubewasm/kubewasm/internal/json"
	"github.com/kubewasm/kubewasm/guest/internal/wire"
)

// Message is a message in an object.
type Message struct {
	object *Object
	raw    []byte
	// Version is that of the object when this level was read, 0 before.
	Version uint32
	// kept says that raw is never overwritten.
	kept bool
	// flat says that the strings are wanted in place when the level is read.
	flat bool
}

// Names are the names of a message's fields in JSON, by their numbers.
type Names []string

// Field is where a field of a message lies, and what was made of it.
type Field struct {
	// text is the field as a string that stays as it is, if textVersion is
	// version: it is made when it is asked for, since to write pointers costs
	// more than to read a field. Of a flat message it is in place before.
	text string
	// value is the number of a numeric field. Otherwise the field's bytes, or
	// its value in JSON, end at value>>32 and begin at the lower half.
	value uint64
	// first is where the first of the elements of a repeated field begins,
	// with its key.
	first uint32
	// version is that of the message that has the field. In any other version
	// the message has not: so nothing needs to be cleared.
	version, textVersion uint32
	// number says that value is a number.
	number bool
}

// None is the Version of a message that is not there.
const None = math.MaxUint32

// In makes m a part of the memory of o, which says by Set where m lies.
func (m *Message) In(o *Object) { m.object = o }

// Set makes m the message in the field f of parent, an empty one if there is
// none.
func (m *Message) Set(parent *Message, f *Field) {
	m.object, m.raw, m.Version, m.kept = parent.object, parent.bytes(f), 0, parent.kept
}

// SetElement makes m the message in raw, an element of a list in parent.
func (m *Message) SetElement(parent *Message, raw []byte) {
	m.object, m.raw, m.Version, m.kept = parent.object, raw, 0, parent.kept
}

// SetFlat is SetElement for a message that is read for its strings: see
// [Field.Peek].
func (m *Message) SetFlat(parent *Message, raw []byte) {
	m.SetElement(parent, raw)
	m.flat = true
}

// Read notes where the fields of this level lie. Of a field that occurs more
// than once the last counts, as in every decoder; of bytes that are no message
// what comes before they stop making sense. version is that of the view that
// asks.
func (m *Message) Read(version uint32, fields []Field, names Names) {
	m.object.start(version)
	m.Version = version
	if m.object.json {
		m.readJSON(fields, names)
	} else {
		m.readProto(fields)
	}
	if m.flat {
		m.peek(fields)
	}
}

// peek makes the strings of a flat message.
func (m *Message) peek(fields []Field) {
	for i := 1; i < len(fields); i++ {
		f := &fields[i]
		switch {
		case f.version != m.Version || f.number:
			f.text = ""
		case m.object.json:
			m.text(f)
		default:
			f.text = inPlace(m.raw[uint32(f.value) : f.value>>32])
		}
	}
}

// readProto is the loop in which a guest spends its time. In a Go guest every
// jump goes through a table at the head of its function, so the usual field, of
// type Bytes with one byte each for key and length, jumps but once, back to the
// next; all others are read by readField.
func (m *Message) readProto(fields []Field) {
	b, version := m.raw, m.Version
	// What is left when the loop ends is one byte, which makes no sense.
	for i := 0; i+1 < len(b); {
		key, n := uint(b[i]), int(b[i+1])
		start := i + 2
		end := start + n
		if (key&0x87)|uint(n&0x80) != uint(wire.Bytes) || end > len(b) || key == uint(wire.Bytes) {
			if i = m.readField(b, i, fields); i < 0 {
				return
			}
			continue
		}
		if number := key >> 3; number < uint(len(fields)) {
			f := &fields[number]
			first := f.first
			if f.version != version {
				first = uint32(i)
			}
			f.value, f.first, f.version, f.number = uint64(end)<<32|uint64(start), first, version, false
		}
		i = end
	}
}

// readField reads any field at b[i], and returns the index after it or -1 if it
// does not make sense.
//
//go:noinline
func (m *Message) readField(b []byte, i int, fields []Field) int {
	start := i
	key := uint64(b[i])
	if i++; key >= 0x80 {
		key, i = wire.Uvarint(b, start)
	}
	if i < 0 || i >= len(b) || key>>3 == 0 || key>>3 > wire.MaxField {
		return -1
	}
	n := uint64(b[i])
	end := -1
	switch wire.Type(key & 7) {
	case wire.Bytes:
		if i++; n >= 0x80 {
			if i < len(b) && b[i] < 0x80 {
				n = n&0x7f | uint64(b[i])<<7
				i++
			} else {
				n, i = wire.Uvarint(b, i-1)
			}
		}
		if i < 0 || n > uint64(len(b)-i) {
			return -1
		}
		end = i + int(n)
		n = uint64(end)<<32 | uint64(i)
	case wire.Varint:
		if end = i + 1; n >= 0x80 {
			n, end = wire.Uvarint(b, i)
		}
	case wire.Fixed64, wire.Fixed32:
		n, end = wire.Fixed(b, i, wire.Type(key&7))
	}
	if end >= 0 && key>>3 < uint64(len(fields)) {
		f := &fields[key>>3]
		if f.version != m.Version {
			f.first = uint32(start)
		}
		f.value, f.version, f.number = n, m.Version, key&7 != uint64(wire.Bytes)
	}
	return end
}

func (m *Message) readJSON(fields []Field, names Names) {
	// Members come in the order of the fields, for the most part.
	next := 1
	for it := json.Object(m.raw); it.Next(); {
		number := names.find(it.Key(), next)
		if number <= 0 || number >= len(fields) {
			continue
		}
		next = number + 1
		v := it.Value()
		if v.IsNull() {
			fields[number] = Field{}
			continue
		}
		start := uintptr(unsafe.Pointer(unsafe.SliceData(v))) - uintptr(unsafe.Pointer(unsafe.SliceData(m.raw)))
		end := start + uintptr(len(v))
		fields[number] = Field{value: uint64(end)<<32 | uint64(start), version: m.Version}
	}
}

// find returns the number of the field with the name, 0 if there is none. It
// begins to look at number from.
func (names Names) find(name string, from int) int {
	for i := from; i < len(names); i++ {
		if names[i] == name {
			return i
		}
	}
	for i := min(from, len(names)) - 1; i > 0; i-- {
		if names[i] == name {
			return i
		}
	}
	return 0
}

// ObjectVersion returns the version of the object that the message is part of,
// for views of it.
func (m *Message) ObjectVersion() uint32 { return m.object.version }

// Has reports whether the message has the field.
func (m *Message) Has(f *Field) bool { return f.version == m.Version }

// bytes returns the bytes of a field, nil of a number or nothing.
func (m *Message) bytes(f *Field) []byte {
	if f.version != m.Version || f.number {
		return nil
	}
	if m.object.version != m.Version {
		stale()
	}
	return m.raw[uint32(f.value) : f.value>>32]
}

// Text returns a string, which may be kept.
func (m *Message) Text(f *Field) string {
	if f.textVersion == m.Version {
		return f.text
	}
	return m.text(f)
}

func (m *Message) text(f *Field) string {
	raw := m.bytes(f)
	if m.object == nil {
		return "" // The message is not there.
	}
	if m.object.json {
		f.text = json.Value(raw).String()
	} else {
		f.text = m.keep(raw)
	}
	f.textVersion = m.Version
	return f.text
}

// Peek returns the string of a field of a flat message that was read, where it
// lies in the object's bytes: to compare it, after [Message.Current], and never to
// hand it out.
func (f *Field) Peek() string { return f.text }

// Current panics if the object has changed since the message was read.
func (m *Message) Current() {
	if m.object != nil && m.object.version != m.Version {
		stale()
	}
}

// keep returns raw, which lies in the message, as a string that stays as it is.
func (m *Message) keep(raw []byte) string {
	if m.kept {
		return inPlace(raw)
	}
	return string(raw)
}

// inPlace returns raw as a string that shares its memory.
func inPlace(raw []byte) string { return unsafe.String(unsafe.SliceData(raw), len(raw)) }

// Int64 returns a number of type int32 or int64.
func (m *Message) Int64(f *Field) int64 {
	if f.version != m.Version {
		return 0
	}
	if f.number {
		return int64(f.value)
	}
	if m.object.json {
		n, _ := json.Value(m.bytes(f)).Int64()
		return n
	}
	return 0
}

// Bool returns a truth value.
func (m *Message) Bool(f *Field) bool {
	if f.version != m.Version {
		return false
	}
	if f.number {
		return f.value != 0
	}
	if m.object.json {
		v, _ := json.Value(m.bytes(f)).Bool()
		return v
	}
	return false
}
