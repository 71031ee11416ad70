package wasmbin

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

var errEnd = errors.New("unexpected end")

// reader reads the primitives of the binary format. The first error sticks: after it every read
// returns zero and nothing advances, so a caller checks err once, after its last read, or in each
// round of a loop.
type reader struct {
	buf     []byte
	pos     int
	base    int // the offset of buf in the binary
	section SectionID
	types   int64 // how many types there must be for the type indexes that were read so far
	groups  int   // how many types there are in the groups that were read so far
	values  int   // how many parameters and results, or elements
	err     error
}

func (r *reader) fail(at int, format string, args ...any) {
	if r.err == nil {
		r.err = &DecodeError{r.section, r.base + at, fmt.Errorf(format, args...)}
	}
	r.pos = len(r.buf) // no loop goes on after an error
}

func (r *reader) left() int { return len(r.buf) - r.pos }

func (r *reader) byte(what string) byte {
	if r.pos >= len(r.buf) {
		r.fail(r.pos, "%w: want %s", errEnd, what)
		return 0
	}
	b := r.buf[r.pos]
	r.pos++
	return b
}

func (r *reader) bytes(n uint32, what string) []byte {
	if uint64(n) > uint64(r.left()) {
		r.fail(r.pos, "%w: want %s of %d bytes, %d left", errEnd, what, n, r.left())
		return nil
	}
	b := r.buf[r.pos : r.pos+int(n) : r.pos+int(n)]
	r.pos += int(n)
	return b
}

func (r *reader) u32(what string) uint32 {
	v, n := uvarint32(r.buf[r.pos:])
	if n == 0 {
		r.fail(r.pos, "want %s as an unsigned 32-bit integer", what)
		return 0
	}
	r.pos += n
	return v
}

// s33 reads a heap type or a block type: negative for a type without an index, otherwise the index
// of a type.
func (r *reader) s33(what string) int64 {
	v, n := varint(r.buf[r.pos:], 5)
	if n == 0 || v < -1<<32 || v >= 1<<32 {
		r.fail(r.pos, "want %s as a signed 33-bit integer", what)
		return 0
	}
	if v < 0 && v >= -64 {
		r.refuseType(r.pos, byte(v&0x7f))
	}
	r.pos = min(r.pos+n, len(r.buf))
	r.types = max(r.types, v+1)
	return v
}

// sized reads a size, and returns a reader of as many bytes.
func (r *reader) sized(what string) reader {
	size := r.u32("the size of " + what)
	base := r.base + r.pos
	return reader{buf: r.bytes(size, what), base: base, section: r.section}
}

// count reads the length of a vector whose entries take at least min bytes each. A length that
// cannot fit into the remaining bytes, or exceeds most, is refused before anything is allocated for
// it.
func (r *reader) count(what string, min, most int) int {
	at := r.pos
	n := r.u32("the number of " + what)
	switch {
	case uint64(n) > uint64(r.left()/min):
		r.fail(at, "%d %s do not fit into %d bytes", n, what, r.left())
		return 0
	case int(n) > most:
		r.fail(at, "%w: %d %s, possible are %d", ErrTooComplex, n, what, most)
		return 0
	}
	return int(n)
}

// total adds n to a sum that may come to most.
func (r *reader) total(sum *int, n, most int, what string) {
	if *sum += n; *sum > most {
		r.fail(r.pos, "%w: %d %s, possible are %d", ErrTooComplex, *sum, what, most)
	}
}

func (r *reader) name(what string) string {
	at := r.pos
	b := r.bytes(r.u32("the length of "+what), what)
	if len(b) > maxNameBytes {
		r.fail(at, "%w: %s has %d bytes, possible are %d", ErrTooComplex, what, len(b), maxNameBytes)
		return ""
	}
	if !utf8.Valid(b) {
		r.fail(at, "want %s in UTF-8, have %.100q", what, b)
		return ""
	}
	return string(b)
}

// uvarint32 decodes an unsigned LEB128 integer; n is its length, or 0 if it is
// cut off or exceeds 32 bits.
func uvarint32(b []byte) (v uint32, n int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint32(b[0]), 1
	}
	for i, c := range b {
		if i == 4 && c > 0x0f {
			return 0, 0
		}
		v |= uint32(c&0x7f) << (7 * i)
		if c < 0x80 {
			return v, i + 1
		}
	}
	return 0, 0
}

// varint decodes a signed LEB128 integer of at most max bytes; n is its length,
// or 0 if it is cut off or longer.
func varint(b []byte, max int) (v int64, n int) {
	for i, c := range b {
		if i == max {
			break
		}
		v |= int64(c&0x7f) << (7 * i)
		if c < 0x80 {
			if shift := 7 * (i + 1); shift < 64 {
				v = v << (64 - shift) >> (64 - shift)
			}
			return v, i + 1
		}
	}
	return 0, 0
}

func appendUvarint(b []byte, v uint64) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

func appendVarint(b []byte, v int64) []byte {
	for v < -64 || v > 63 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v&0x7f))
}

func appendName(b []byte, s string) []byte {
	return append(appendUvarint(b, uint64(len(s))), s...)
}
