package service

import (
	"encoding/binary"
	"slices"
	"unsafe"

	"github.com/kubewasm/kubewasm/guest/internal/wire"
	"github.com/kubewasm/kubewasm/guest/view"
)

// The functions of this file append fields of messages. They are for generated code.

// AppendVarint appends a field of a type that is a varint.
func AppendVarint(b []byte, field uint32, v uint64) []byte { return wire.AppendVarint(b, field, v) }

// AppendFixed32 appends a field of type fixed32 or sfixed32.
func AppendFixed32(b []byte, field, v uint32) []byte { return wire.AppendFixed32(b, field, v) }

// AppendFixed64 appends a field of type fixed64 or sfixed64.
func AppendFixed64(b []byte, field uint32, v uint64) []byte {
	return wire.AppendFixed64(b, field, v)
}

// AppendBytes appends a field of type string or bytes.
func AppendBytes[T string | []byte](b []byte, field uint32, v T) []byte {
	return wire.AppendBytes(b, field, v)
}

// AppendPacked appends a list of whole numbers, truth values excepted, that are varints.
func AppendPacked[T ~int32 | ~int64 | ~uint32 | ~uint64](b []byte, field uint32, list []T) []byte {
	if len(list) == 0 {
		return b
	}
	b, start := BeginMessage(b, field)
	for _, v := range list {
		b = wire.AppendUvarint(b, uint64(v))
	}
	return wire.EndMessage(b, start)
}

// AppendPackedZigzag appends a list of type sint32 or sint64.
func AppendPackedZigzag[T int32 | int64](b []byte, field uint32, list []T) []byte {
	if len(list) == 0 {
		return b
	}
	b, start := BeginMessage(b, field)
	for _, v := range list {
		b = wire.AppendUvarint(b, uint64(int64(v))<<1^uint64(int64(v)>>63))
	}
	return wire.EndMessage(b, start)
}

// AppendPackedFixed appends a list of numbers of 32 or 64 bits that have a fixed length, or of truth
// values.
func AppendPackedFixed[T bool | int32 | int64 | uint32 | uint64 | float32 | float64](b []byte, field uint32, list []T) []byte {
	return appendFixed(b, field, list)
}

// AppendObject appends a field that refers to an object. The object is one that the host passed
// in the call; any other view appends nothing.
func AppendObject(b []byte, field uint32, v view.View) []byte {
	if ref := view.RefOf(v); ref != 0 {
		b = wire.AppendFixed64(b, field, uint64(ref))
	}
	return b
}

// BeginMessage begins a field that is a message, up to EndMessage with the same start.
func BeginMessage(b []byte, field uint32) (_ []byte, start int) {
	b = wire.AppendBytes(b, field, "")
	return b, len(b)
}

// EndMessage ends the message that begins at start.
func EndMessage(b []byte, start int) []byte { return wire.EndMessage(b, start) }

// bigEndian reports whether numbers in memory and in messages differ in their order of bytes, as on
// some machines that run native tests.
var bigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

func appendFixed[T any](b []byte, field uint32, list []T) []byte {
	if len(list) == 0 {
		return b
	}
	size := int(unsafe.Sizeof(list[0]))
	raw := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(list))), len(list)*size)
	b = wire.AppendBytes(b, field, raw)
	if bigEndian {
		for raw = b[len(b)-len(raw):]; len(raw) != 0; raw = raw[size:] {
			slices.Reverse(raw[:size])
		}
	}
	return b
}
