// Package wire reads and writes the protobuf wire format where it lies: no
// reflection, no descriptors, no copies.
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

// Reader walks over the fields of one message:
//
//	for r := wire.NewReader(b); r.Next(); {
//		switch r.Field {
//		case 1:
//			name = r.String()
//		}
//	}
//
// Bytes that are not a message end the walk where they stop making sense; they
// never make a Reader panic or read beyond them.
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

// Next goes to the next field and reports whether there is one.
func (r *Reader) Next() bool {
	if r.end >= len(r.message) {
		return false
	}
	r.start = r.end
	key, ok := r.varint()
	if !ok || key>>3 == 0 || key>>3 > 1<<29-1 {
		return r.stop()
	}
	r.Field, r.Type = uint32(key>>3), Type(key&7)
	r.number, r.value = 0, nil
	switch r.Type {
	case Varint:
		if r.number, ok = r.varint(); !ok {
			return r.stop()
		}
	case Bytes:
		n, ok := r.varint()
		if !ok || n > uint64(len(r.message)-r.end) {
			return r.stop()
		}
		from := r.end
		r.end += int(n)
		r.value = r.message[from:r.end:r.end]
	case Fixed64:
		return r.fixed(8)
	case Fixed32:
		return r.fixed(4)
	default:
		return r.stop()
	}
	return true
}

// Malformed reports whether the walk ended before the bytes did.
func (r *Reader) Malformed() bool { return r.malformed }

// Span returns where in the message the field lies, its key included.
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
// it is right as long as nobody writes to the message.
func (r *Reader) String() string { return unsafe.String(unsafe.SliceData(r.value), len(r.value)) }

func (r *Reader) varint() (uint64, bool) {
	// Nearly all are one byte: keys of small fields, short lengths, bools.
	if r.end < len(r.message) && r.message[r.end] < 0x80 {
		r.end++
		return uint64(r.message[r.end-1]), true
	}
	var v uint64
	rest := r.message[r.end:]
	for i, shift := 0, uint(0); i < len(rest) && i < 10; i, shift = i+1, shift+7 {
		b := rest[i]
		if i == 9 && b > 1 {
			return 0, false // More than 64 bits.
		}
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			r.end += i + 1
			return v, true
		}
	}
	return 0, false
}

func (r *Reader) fixed(n int) bool {
	if len(r.message)-r.end < n {
		return r.stop()
	}
	for i := n - 1; i >= 0; i-- {
		r.number = r.number<<8 | uint64(r.message[r.end+i])
	}
	r.end += n
	return true
}

func (r *Reader) stop() bool {
	r.end, r.malformed = len(r.message), true
	return false
}

// AppendVarint appends a field of type bool, int32, int64, uint32 or uint64.
// A negative number is written as its 64-bit two's complement.
func AppendVarint(b []byte, field uint32, v uint64) []byte {
	b = appendUvarint(b, uint64(field)<<3|uint64(Varint))
	return appendUvarint(b, v)
}

// AppendBytes appends a field of type string, bytes or message.
func AppendBytes[T string | []byte](b []byte, field uint32, v T) []byte {
	b = appendUvarint(b, uint64(field)<<3|uint64(Bytes))
	b = appendUvarint(b, uint64(len(v)))
	return append(b, v...)
}

// AppendMapEntry appends an entry of a map<string, string>.
func AppendMapEntry(b []byte, field uint32, key, value string) []byte {
	n := sizeBytes(1, len(key)) + sizeBytes(2, len(value))
	b = appendUvarint(b, uint64(field)<<3|uint64(Bytes))
	b = appendUvarint(b, uint64(n))
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

func appendUvarint(b []byte, v uint64) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}
