package service

import (
	"math/bits"
	"unsafe"

	"github.com/kubewasm/kubewasm/guest/internal/wire"
)

// The struct of a message with many fields has a slot of eight bytes for each of their numbers, so
// that accessors, which are inlined, read numbers as members. One walk fills all slots when the
// first field is read: a search for a few fields takes as long.
//
// The kinds of a message have a byte for each number: the wire type of the field plus one, or 0, and
// marks: of truth values, of numbers that are encoded by zigzag, and of members of four bytes.
const (
	truth  = 8
	zigzag = 16
	half   = 32
)

// Wide fills the slots at the address, one for each of the kinds. They are 0. The slot of the number
// 0 is set to 1, that of a field of bytes to the place and the length of its contents. Those of maps
// and lists are of the first element, and are set in messages from hosts alone. It is for generated
// code.
func (e *Encoded) Wide(slots *uint64, kinds string) {
	*slots = 1
	first := unsafe.Pointer(slots)
	if e.ordered() {
		e.wide(first, unsafe.Pointer(unsafe.StringData(kinds)), uint(len(kinds)))
		return
	}
	for r := e.reader(); r.Next(); {
		if r.Field >= uint32(len(kinds)) || kinds[r.Field]&7 != byte(r.Type)+1 {
			continue
		}
		kind, slot, n := kinds[r.Field], unsafe.Add(first, uintptr(r.Field)*8), r.Uint64()
		if kind&zigzag != 0 {
			n = uint64(Zigzag(n))
		}
		switch { // Programs that run this need not be little-endian.
		case r.Type == wire.Bytes:
			_, end := r.Span()
			*(*uint64)(slot) = slotOf(uint(end-len(r.Bytes())), uint(len(r.Bytes())))
		case kind&truth != 0:
			*(*bool)(slot) = n != 0
		case kind&half != 0:
			*(*uint32)(slot) = uint32(n)
		default:
			*(*uint64)(slot) = n
		}
	}
}

// slotOf returns the slot of a field of bytes, by the place and the length of its contents.
func slotOf(at, n uint) uint64 { return uint64(at)<<32 | uint64(n) }

// wide is Wide for messages from hosts. It calls no function for fields that are short, as short.
func (e *Encoded) wide(slots, kinds unsafe.Pointer, count uint) {
	p, i, end := e.at, uint(0), uint(e.n)
	for i+1 < end { // A field has two bytes or more.
		key := uint(*(*byte)(unsafe.Add(p, i)))
		i++
		if key >= 0x80 {
			high := uint(*(*byte)(unsafe.Add(p, i)))
			i++
			if key = key&0x7f | high<<7; high >= 0x80 || i >= end {
				return
			}
		}
		number := key >> 3
		if number >= count {
			return
		}
		kind, slot := uint(*(*byte)(unsafe.Add(kinds, number))), (*uint64)(unsafe.Add(slots, number*8))
		n := uint64(*(*byte)(unsafe.Add(p, i)))
		if kind&7 != key&7+1 {
			if i = e.past(i, wire.Type(key&7)); i == 0 {
				return
			}
			continue
		}
		switch key & 7 {
		case uint(wire.Varint):
			i++
			if n >= 0x80 {
				ends := uint64(0)
				if i+7 <= end { // As value, which is called for the others.
					word := *(*uint64)(unsafe.Add(p, i-1))
					ends = ^word & 0x8080808080808080
					n = word & (ends ^ (ends - 1)) & 0x7f7f7f7f7f7f7f7f
					n = n&0x007f007f007f007f | n&0x7f007f007f007f00>>1
					n = n&0x00003fff00003fff | n&0x3fff00003fff0000>>2
					n = n&0x000000000fffffff | n&0x0fffffff00000000>>4
				}
				if ends != 0 {
					i += uint(bits.TrailingZeros64(ends)) / 8
				} else {
					_, n = e.value(i-1, wire.Varint)
					i = e.after(i-1, wire.Varint)
				}
			}
			if kind&(truth|zigzag) != 0 {
				if kind&zigzag != 0 {
					n = n>>1 ^ -(n & 1)
				} else if n != 0 {
					n = 1
				}
			}
			*slot = n
		case uint(wire.Fixed64):
			if i+8 > end {
				return
			}
			*slot = *(*uint64)(unsafe.Add(p, i))
			i += 8
		case uint(wire.Bytes):
			i++
			if n >= 0x80 {
				long, next := wire.Uvarint(e.bytes(), int(i-1))
				if next < 0 {
					return
				}
				i, n = uint(next), long
			}
			if n > uint64(end-i) {
				return
			}
			if *slot == 0 {
				*slot = slotOf(i, uint(n))
			}
			i += uint(n)
		default: // Fixed32, since no kind is of another type.
			if i+4 > end {
				return
			}
			*slot = uint64(*(*uint32)(unsafe.Add(p, i)))
			i += 4
		}
	}
}

// past returns the index after the field of a type whose key ends at i, 0 if it is malformed.
func (e *Encoded) past(i uint, t wire.Type) uint {
	switch t {
	case wire.Varint, wire.Bytes:
		return e.after(i, t)
	case wire.Fixed64:
		return i + 8
	case wire.Fixed32:
		return i + 4
	}
	return 0
}

// TextIn returns the contents of the field with a slot, which may be kept. It is for generated code.
func (e *Encoded) TextIn(slot uint64) string {
	if uint32(slot) == 0 {
		return ""
	}
	given.bytes = true
	return unsafe.String((*byte)(unsafe.Add(e.at, slot>>32)), uint32(slot))
}
