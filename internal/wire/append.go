package wire

import (
	"math/bits"

	"google.golang.org/protobuf/encoding/protowire"
)

// AppendNumber appends a number without presence: zero is left out.
func AppendNumber(dst []byte, field protowire.Number, v int64) []byte {
	if v == 0 {
		return dst
	}
	return AppendVarint(AppendTag(dst, field, protowire.VarintType), uint64(v))
}

// AppendOptionalNumber appends a number with presence: nil is left out.
func AppendOptionalNumber(dst []byte, field protowire.Number, v *int64) []byte {
	if v == nil {
		return dst
	}
	return AppendVarint(AppendTag(dst, field, protowire.VarintType), uint64(*v))
}

// AppendString appends a string without presence: an empty one is left out.
func AppendString(dst []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return dst
	}
	return AppendItem(dst, field, s)
}

// AppendOptionalString appends a string with presence: nil is left out.
func AppendOptionalString(dst []byte, field protowire.Number, s *string) []byte {
	if s == nil {
		return dst
	}
	return AppendItem(dst, field, *s)
}

// AppendItem appends a string that is written even if it is empty: an item of a
// repeated field.
func AppendItem(dst []byte, field protowire.Number, s string) []byte {
	return append(AppendVarint(AppendTag(dst, field, protowire.BytesType), uint64(len(s))), s...)
}

// AppendEntry appends an entry of a map<string, string>. Its key and its value are
// written even if they are empty, as protobuf's own encoders do.
func AppendEntry(dst []byte, field protowire.Number, key, value string) []byte {
	n := 2 + SizeVarint(uint64(len(key))) + len(key) + SizeVarint(uint64(len(value))) + len(value)
	dst = AppendVarint(AppendTag(dst, field, protowire.BytesType), uint64(n))
	return AppendItem(AppendItem(dst, 1, key), 2, value)
}

// BeginMessage appends the tag of a message and one byte for its length. start is where
// its fields begin, for EndMessage.
func BeginMessage(dst []byte, field protowire.Number) (_ []byte, start int) {
	dst = append(AppendTag(dst, field, protowire.BytesType), 0)
	return dst, len(dst)
}

// EndMessage writes the length of the message whose fields begin at start, and moves
// them if the length takes more than one byte.
func EndMessage(dst []byte, start int) []byte {
	n := len(dst) - start
	if n < 0x80 {
		dst[start-1] = byte(n)
		return dst
	}
	var room [9]byte
	more := SizeVarint(uint64(n)) - 1
	dst = append(dst, room[:more]...)
	copy(dst[start+more:], dst[start:start+n])
	AppendVarint(dst[:start-1], uint64(n))
	return dst
}

// AppendTag appends the tag of a field.
func AppendTag(dst []byte, field protowire.Number, typ protowire.Type) []byte {
	return AppendVarint(dst, uint64(field)<<3|uint64(typ))
}

// AppendVarint appends a number by itself. Unlike that of protowire it is inlined.
func AppendVarint(dst []byte, v uint64) []byte {
	for v >= 0x80 {
		dst = append(dst, byte(v)|0x80)
		v >>= 7
	}
	return append(dst, byte(v))
}

// SizeVarint returns how many bytes AppendVarint appends.
func SizeVarint(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }
