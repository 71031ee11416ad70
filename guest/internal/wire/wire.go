// Package wire reads and writes the protobuf wire format in place: no reflection, no descriptors,
// no copies.
//
// The format is that of https://protobuf.dev/programming-guides/encoding.
package wire

import "unsafe"

// Type is the wire type of a field.
type Type uint8

// The wire types. Groups (3 and 4) are obsolete, and no Kubernetes message has
// any.
const (
	Varint  Type = 0
	Fixed64 Type = 1
	Bytes   Type = 2
	Fixed32 Type = 5
)

// MaxField is the largest number that a field may have.
const MaxField = 1<<29 - 1

// Reader walks over the fields of one message:
//
//	for r := wire.NewReader(b); r.Next(); {
//		switch r.Field {
//		case 1:
//			name = r.String()
//		}
//	}
//
// Bytes that are not a message end the walk at the first malformed field; they
// never make a Reader panic or read out of bounds.
type Reader struct {
	// Field and Type are those of the field that Next found.
	Field uint32
	Type  Type

	message []byte
	// start and end enclose the field with its key.
	start, end int
	number     uint64
	value      []byte
	malformed  bool
}

// NewReader returns a Reader of the message in b.
func NewReader(b []byte) Reader { return Reader{message: b} }

// NewReaderAt returns a Reader of the message in b that begins with the field at
// start.
func NewReaderAt(b []byte, start int) Reader { return Reader{message: b, end: start} }

// Next goes to the next field and reports whether there is one.
//
// It works on locals and itself reads the numbers of one byte, which nearly all
// are: in a Go guest a call costs as much as reading a short field does.
func (r *Reader) Next() bool {
	b, i := r.message, r.end
	if i >= len(b) {
		return false
	}
	r.start = i
	key := uint64(b[i])
	if i++; key >= 0x80 {
		key, i = Uvarint(b, i-1)
	}
	if i < 0 || key>>3 == 0 || key>>3 > MaxField {
		return r.stop()
	}
	r.Field, r.Type = uint32(key>>3), Type(key&7)
	r.number, r.value = 0, nil
	switch r.Type {
	case Varint, Bytes:
		if i >= len(b) {
			return r.stop()
		}
		n := uint64(b[i])
		if i++; n >= 0x80 {
			if n, i = Uvarint(b, i-1); i < 0 {
				return r.stop()
			}
		}
		if r.Type == Varint {
			r.number = n
			break
		}
		if n > uint64(len(b)-i) {
			return r.stop()
		}
		r.value = b[i : i+int(n) : i+int(n)]
		i += int(n)
	case Fixed64, Fixed32:
		if r.number, i = Fixed(b, i, r.Type); i < 0 {
			return r.stop()
		}
	default:
		return r.stop()
	}
	r.end = i
	return true
}

// Malformed reports whether the walk ended before the bytes did.
func (r *Reader) Malformed() bool { return r.malformed }

// Span returns the place of the field in the message, its key included.
func (r *Reader) Span() (start, end int) { return r.start, r.end }

// Message returns the bytes that the Reader walks over.
func (r *Reader) Message() []byte { return r.message }

// Uint64 returns the number of the field, 0 if it is not one.
func (r *Reader) Uint64() uint64 { return r.number }

// Int64 returns the number of a field of type int32 or int64.
func (r *Reader) Int64() int64 { return int64(r.number) }

// Bool returns the number of the field as a truth value.
func (r *Reader) Bool() bool { return r.number != 0 }

// Bytes returns the bytes of the field, nil if it has none. They are not copied.
func (r *Reader) Bytes() []byte { return r.value }

// String returns the bytes of the field as a string that shares their memory:
// it is valid as long as the message does not change.
func (r *Reader) String() string { return unsafe.String(unsafe.SliceData(r.value), len(r.value)) }

func (r *Reader) stop() bool {
	r.end, r.malformed = len(r.message), true
	return false
}

// Uvarint reads the varint at b[i] and returns the index after it, or -1 if it
// does not end or has more than 64 bits.
//
//go:noinline
func Uvarint(b []byte, i int) (v uint64, next int) {
	if i < 0 || i > len(b) {
		return 0, -1
	}
	for n, c := range b[i:min(len(b), i+10)] {
		if n == 9 && c > 1 {
			break
		}
		v |= uint64(c&0x7f) << (7 * n)
		if c < 0x80 {
			return v, i + n + 1
		}
	}
	return 0, -1
}

// Fixed reads the number of type Fixed32 or Fixed64 at b[i] and returns the index
// after it, or -1 if b ends before.
//
//go:noinline
func Fixed(b []byte, i int, t Type) (v uint64, next int) {
	n := 4
	if t == Fixed64 {
		n = 8
	}
	if i < 0 || i > len(b) || len(b)-i < n {
		return 0, -1
	}
	for k := n - 1; k >= 0; k-- {
		v = v<<8 | uint64(b[i+k])
	}
	return v, i + n
}

// Key returns the key that b begins with: the number and the type of a field.
func Key(b []byte) uint64 {
	if len(b) != 0 && b[0] < 0x80 {
		return uint64(b[0])
	}
	key, _ := Uvarint(b, 0)
	return key
}

// Find returns the contents of the first field with the key, a number and
// Bytes, that begins at b[i] or later; start is -1 if there is none.
func Find(b []byte, i int, key uint64) (start, end int) {
	for uint(i) < uint(len(b)) {
		var k uint64
		if k, start, end = Field(b, i); k == key {
			return start, end
		}
		i = end
	}
	return -1, -1
}

// Field returns the key of the field at b[i], and the beginning and the end of its contents: those
// of type Bytes without their length, and a number in its encoded form. The key of a malformed
// field is 0, and its end that of b. It is for loops that need no more of a field: a step of a
// Reader takes three times as long.
func Field(b []byte, i int) (key uint64, start, end int) {
	if uint(i) < uint(len(b)) && uint(i+1) < uint(len(b)) {
		key, n, at := b[i], int(b[i+1]), i+2
		if n >= 0x80 && at < len(b) && b[at] < 0x80 { // The length has two bytes.
			n, at = n&0x7f|int(b[at])<<7, at+1
		}
		if key&7 == byte(Bytes) && key >= 1<<3 && key < 0x80 && (n < 0x80 || at != i+2) && n <= len(b)-at {
			return uint64(key), at, at + n
		}
	}
	return anyField(b, i)
}

// anyField is Field for all fields.
func anyField(b []byte, i int) (key uint64, start, end int) {
	if i >= 0 && len(b)-i > 2 { // As the fields from 16 on are.
		low, high, n := b[i], b[i+1], int(b[i+2])
		if low >= 0x80 && low&7 == byte(Bytes) && high < 0x80 && high != 0 && n < 0x80 && n <= len(b)-i-3 {
			return uint64(low&0x7f) | uint64(high)<<7, i + 3, i + 3 + n
		}
	}
	r := Reader{message: b, end: i}
	if !r.Next() {
		return 0, len(b), len(b)
	}
	start, end = r.end-len(r.value), r.end
	if r.Type != Bytes {
		_, start = Uvarint(b, r.start)
	}
	return uint64(r.Field)<<3 | uint64(r.Type), start, end
}

// AppendVarint appends a field of type bool, int32, int64, uint32 or uint64.
// A negative number is written as its 64-bit two's complement.
func AppendVarint(b []byte, field uint32, v uint64) []byte {
	b = AppendUvarint(b, uint64(field)<<3|uint64(Varint))
	return AppendUvarint(b, v)
}

// AppendBytes appends a field of type string, bytes or message.
func AppendBytes[T string | []byte](b []byte, field uint32, v T) []byte {
	b = AppendUvarint(b, uint64(field)<<3|uint64(Bytes))
	b = AppendUvarint(b, uint64(len(v)))
	return append(b, v...)
}

// AppendMapEntry appends an entry of a map<string, string>.
func AppendMapEntry(b []byte, field uint32, key, value string) []byte {
	n := sizeBytes(1, len(key)) + sizeBytes(2, len(value))
	b = AppendUvarint(b, uint64(field)<<3|uint64(Bytes))
	b = AppendUvarint(b, uint64(n))
	b = AppendBytes(b, 1, key)
	return AppendBytes(b, 2, value)
}

func sizeBytes(field uint32, n int) int {
	return sizeUvarint(uint64(field)<<3) + sizeUvarint(uint64(n)) + n
}

func sizeUvarint(v uint64) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}

// AppendUvarint appends a varint.
func AppendUvarint(b []byte, v uint64) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

// AppendFixed32 appends a field of type fixed32, sfixed32 or float.
func AppendFixed32(b []byte, field, v uint32) []byte {
	b = AppendUvarint(b, uint64(field)<<3|uint64(Fixed32))
	return append(b, byte(v), byte(v>>8), byte(v>>16), byte(v>>24))
}

// AppendFixed64 appends a field of type fixed64, sfixed64 or double.
func AppendFixed64(b []byte, field uint32, v uint64) []byte {
	b = AppendUvarint(b, uint64(field)<<3|uint64(Fixed64))
	return append(b, byte(v), byte(v>>8), byte(v>>16), byte(v>>24), byte(v>>32), byte(v>>40), byte(v>>48), byte(v>>56))
}

// EndMessage writes the length of the message that begins at start into the byte before it,
// and into more if it takes more.
func EndMessage(b []byte, start int) []byte {
	n := len(b) - start
	if n < 0x80 {
		b[start-1] = byte(n)
		return b
	}
	more := sizeUvarint(uint64(n)) - 1
	var room [9]byte
	b = append(b, room[:more]...)
	copy(b[start+more:], b[start:start+n])
	AppendUvarint(b[:start-1], uint64(n))
	return b
}
