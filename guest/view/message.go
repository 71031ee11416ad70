package view

import (
	"math/bits"
	"unsafe"

	"github.com/kubewasm/kubewasm/guest/internal/wire"
	"github.com/kubewasm/kubewasm/internal/json"
)

// Type says what a message looks like. It is data that generated code declares,
// once for each kind of message.
type Type struct {
	// Names are the names of the fields in JSON. A field's index here is what
	// the accessors know it by: its number, unless there are Numbers. Index 0
	// is no field.
	Names []string
	// Numbers are the numbers of the fields in protobuf, in ascending order and
	// by the same index, of a message whose numbers are far between.
	Numbers []uint32
	// Inlined are the indexes of those messages whose fields stand among those
	// of this message in JSON, as an embedded struct's do in Go.
	Inlined []uint32
}

// message is what was read of a message so far.
type message struct {
	object *object
	typ    *Type
	// raw is the bytes of the message, or its JSON.
	raw []byte
	// version is that of the object when this level was read, 0 before.
	version uint32
	// fields says where each field lies.
	fields []field
	// texts and children are what was made of the fields, each nil before
	// anything was; lists are what was made of those with several elements, of
	// which most messages have one or two. What is of an earlier version is kept
	// to be used again.
	texts    []text
	children []*message
	lists    []*list
	// in is the list that the message is an element of, nil if of none.
	in *list
}

// field is where a field lies.
type field struct {
	// value is the number of a numeric field. Otherwise the field's bytes, or
	// its value in JSON, end at value>>32 and begin at the lower half.
	value uint64
	// first is where the first of the elements of a repeated field begins,
	// with its key. isNumber is added if value is a number.
	first uint32
	// version is that of the message that has the field. In any other version
	// the message has not: so nothing needs to be cleared.
	version uint32
}

const isNumber = 1 << 31

// text is the string that was made of a field in a version.
type text struct {
	string
	version uint32
}

// ready reads this level for a view of the given version, unless it was read
// already. It panics if the object has changed since.
func (m *message) ready(version uint32) {
	if m.object.version != version {
		stale()
	}
	if m.version != version {
		m.read(version)
	}
}

// read notes where the fields of this level lie. Of a field that occurs more
// than once the last counts, as in every decoder; of bytes that are no message
// what comes before they stop making sense.
func (m *message) read(version uint32) {
	if m.object.unread {
		m.object.fetch()
	}
	if m.fields == nil {
		m.fields = make([]field, len(m.typ.Names))
	}
	m.version = version
	switch {
	case m.object.json:
		m.readJSON()
	case m.typ.Numbers != nil:
		m.readSparse()
	default:
		m.readProto()
	}
}

// readProto reads the fields of protobuf: nearly all in readUsual, the others one
// by one.
func (m *message) readProto() {
	for i := m.readUsual(0); i < len(m.raw); {
		if i = m.readField(m.raw, i); i < 0 {
			return
		}
		if i < len(m.raw) && m.raw[i]&0x87 == byte(wire.Bytes) {
			i = m.readUsual(i)
		}
	}
}

// readUsual reads fields from raw[i] on, as long as they are known, of type Bytes,
// and have one byte for the key and one or two for the length, and returns the
// index after them. It is the loop in which a guest spends its time.
//
// In the Go compiler's code for wasm any basic block can be jumped to through a
// table at the head of its function, so all locals have to be in the same places
// at the beginning of each: blocks cost, instructions hardly. So there is one
// condition without && in it, and what follows with the same key, as labels do,
// is passed over before the field is noted. And what is alive across a call goes
// through memory: so nothing is called.
//
//go:noinline
func (m *message) readUsual(at int) int {
	b, n, i := unsafe.Pointer(unsafe.SliceData(m.raw)), uint(len(m.raw)), uint(at)
	// What is behind the message may be looked at, if there is something.
	readable := uint(cap(m.raw))
	fields, version := m.fields[1:], m.version
	for i+4 <= readable {
		w := load32(b, i)
		long := w >> 15 & 1 // A second byte of the length.
		start := i + 2 + long
		end := start + w>>8&0x7f + (w>>16&0x7f)<<7*long
		k := w>>3&15 - 1
		if (w&0x87^uint(wire.Bytes))|w>>23&long|above(end, n) != 0 || k >= uint(len(fields)) {
			break
		}
		first := i
		for i = end; i+2 <= readable; i = end {
			next := load16(b, i)
			if (next^w&0xff)&0x80ff|above(i+2+next>>8, n) != 0 {
				break
			}
			start, end = i+2, i+2+next>>8
		}
		f := &fields[k]
		if f.version == version {
			first = uint(f.first &^ isNumber)
		}
		f.value, f.first, f.version = uint64(end)<<32|uint64(start), uint32(first), version
	}
	return int(i)
}

// load16 and load32 return the number of two and four bytes at b[i], which must
// be there.
func load16(b unsafe.Pointer, i uint) uint {
	p := (*[2]byte)(unsafe.Add(b, i))
	return uint(p[0]) | uint(p[1])<<8
}

func load32(b unsafe.Pointer, i uint) uint {
	p := (*[4]byte)(unsafe.Add(b, i))
	return uint(p[0]) | uint(p[1])<<8 | uint(p[2])<<16 | uint(p[3])<<24
}

// above returns 1 if a > b, without a branch. Both are lengths: below 1<<63.
func above(a, b uint) uint { return (b - a) >> (bits.UintSize - 1) }

// readSparse is readProto for a message whose fields are not known by their
// numbers.
func (m *message) readSparse() {
	for i := 0; i >= 0 && i < len(m.raw); {
		i = m.readField(m.raw, i)
	}
}

// readField reads any field at b[i], and returns the index after it or -1 if it
// does not make sense.
//
//go:noinline
func (m *message) readField(b []byte, i int) int {
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
	if end < 0 {
		return -1
	}
	if f := m.field(key >> 3); f != nil {
		first := f.first &^ isNumber
		if f.version != m.version {
			first = uint32(start)
		}
		if key&7 != uint64(wire.Bytes) {
			first |= isNumber
		}
		f.value, f.first, f.version = n, first, m.version
	}
	return end
}

// field returns the field with the number in protobuf, nil if there is none.
func (m *message) field(number uint64) *field {
	numbers := m.typ.Numbers
	if numbers == nil {
		if number < uint64(len(m.fields)) {
			return &m.fields[number]
		}
		return nil
	}
	low, high := 1, len(numbers)
	for low < high {
		if mid := (low + high) / 2; uint64(numbers[mid]) < number {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low < len(numbers) && uint64(numbers[low]) == number {
		return &m.fields[low]
	}
	return nil
}

// key returns the key of the field n in protobuf, if it is of type Bytes.
func (m *message) key(n uint32) uint64 {
	if m.typ.Numbers != nil {
		n = m.typ.Numbers[n]
	}
	return uint64(n)<<3 | uint64(wire.Bytes)
}

func (m *message) readJSON() {
	// Members come in the order of the fields, for the most part.
	next := 1
	for it := json.Object(m.raw); it.Next(); {
		i := find(m.typ.Names, it.Key(), next)
		if i == 0 {
			continue
		}
		next = i + 1
		v := it.Value()
		if v.IsNull() {
			m.fields[i] = field{}
			continue
		}
		start := uintptr(unsafe.Pointer(unsafe.SliceData(v))) - uintptr(unsafe.Pointer(unsafe.SliceData(m.raw)))
		end := start + uintptr(len(v))
		m.fields[i] = field{value: uint64(end)<<32 | uint64(start), version: m.version}
	}
	for _, i := range m.typ.Inlined {
		m.fields[i] = field{value: uint64(len(m.raw)) << 32, version: m.version}
	}
}

// find returns the index of the name, 0 if there is none. It begins to look at
// index from.
func find(names []string, name string, from int) int {
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

// has reports whether the message, which was read, has the field.
func (m *message) has(n uint32) bool { return m.fields[n].version == m.version }

// bytes returns the bytes of a field or its JSON, nil of a number or nothing. The
// message is ready.
func (m *message) bytes(n uint32) []byte {
	f := &m.fields[n]
	if f.version != m.version || f.first&isNumber != 0 {
		return nil
	}
	start, end := uint32(f.value), f.value>>32
	return m.raw[start:end:end]
}

// textOf returns the place for the text of a field.
func (m *message) textOf(n uint32) *text {
	if m.texts == nil {
		m.texts = make([]text, len(m.fields))
	}
	return &m.texts[n]
}

// keep returns raw, which lies in the message, as a string that stays as it is.
// old is the string that stood there before: it is used again if it is the same,
// since a copy is garbage one day.
func (m *message) keep(raw []byte, old string) string {
	if m.object.kept {
		return inPlace(raw)
	}
	if wire.Equal(inPlace(raw), old) {
		return old
	}
	return string(raw)
}

// inPlace returns raw as a string that shares its memory.
func inPlace(raw []byte) string { return unsafe.String(unsafe.SliceData(raw), len(raw)) }

// bytesOf returns the memory of s, which must not be written to.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
