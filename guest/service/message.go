package service

import (
	"encoding/binary"
	"math"
	"slices"
	"unsafe"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/internal/wire"
	"github.com/kubewasm/kubewasm/guest/view"
)

// The types and functions of this file and the next ones read messages. They are for generated
// code: a struct for each message, and a function that fills it in one pass over the bytes, in
// the order in which fields are encoded. Loops and rare cases are in functions of their own,
// since they make a large function slow in a guest in Go. Numbers and strings are read at once;
// of everything else the pass records where it lies, and it is read when it is asked for.

// given is what plugins were given of the request that is served.
var given struct {
	// bytes is set if a plugin was given a part of its bytes, which it may keep.
	bytes bool
}

// Text is a field of type string or bytes. It lies in the bytes of its message.
type Text struct{ of string }

// String returns the string, which may be kept.
func (t Text) String() string {
	given.bytes = true
	return t.of
}

// Bytes returns the bytes, which may be kept but not written to, nil if there are none.
func (t Text) Bytes() []byte {
	if t.of == "" {
		return nil
	}
	given.bytes = true
	return unsafe.Slice(unsafe.StringData(t.of), len(t.of))
}

// TextOf returns b as a Text.
func TextOf(b []byte) Text { return Text{unsafe.String(unsafe.SliceData(b), len(b))} }

// Rest reads the rest of a varint of more than one byte, whose first byte is n. It returns the
// index after it, which is len(b) if the varint does not end.
//
//go:noinline
func Rest(b []byte, i uint, n uint64) (uint64, uint) {
	n &= 0x7f
	for shift := 7; i < uint(len(b)) && shift < 64; shift += 7 {
		c := uint64(b[i])
		i++
		if n |= c & 0x7f << shift; c < 0x80 {
			return n, i
		}
	}
	return 0, uint(len(b))
}

// Fixed64 returns the number at the beginning of b, of type fixed64, sfixed64 or double.
func Fixed64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// Fixed32 returns the number at the beginning of b, of type fixed32, sfixed32 or float.
func Fixed32(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }

// Zigzag returns a number of type sint32 or sint64.
func Zigzag(n uint64) int64 { return int64(n>>1) ^ -int64(n&1) }

// Double returns the number at the beginning of b.
func Double(b []byte) float64 { return math.Float64frombits(Fixed64(b)) }

// Float returns the number at the beginning of b.
func Float(b []byte) float32 { return math.Float32frombits(Fixed32(b)) }

// Skip returns the index after the field at b[i], len(b) if it is malformed.
func Skip(b []byte, i uint) uint {
	_, _, end := wire.Field(b, int(i))
	return uint(end)
}

// Next returns where the contents of the next field with the key lie in b[i:], or end 0 if
// there is none. The key is that of type Bytes, of one byte or more, the first one lowest.
func Next(b []byte, i uint, key uint64) (start, end uint) {
	var raw [8]byte
	binary.LittleEndian.PutUint64(raw[:], key)
	s, e := wire.Find(b, int(i), wire.Key(raw[:]))
	if s < 0 {
		return 0, 0
	}
	return uint(s), uint(e)
}

// Found is a field that was found and not read: where in the bytes of the message the first
// value begins, with its key, and where the last one ends, with other fields in between.
type Found struct{ first, end, count uint32 }

// Add finds the values of a repeated field or a map at b[i] and directly after it, and returns
// the index after them. The key is that of type Bytes, as for Next.
func (f *Found) Add(b []byte, i uint, key uint64) uint {
	from, count := i, uint32(0)
	for i+1 < uint(len(b)) && uint64(b[i]) == key {
		n := uint64(b[i+1])
		if i += 2; n >= 0x80 {
			n, i = Rest(b, i, n)
		}
		if n > uint64(uint(len(b))-i) {
			i = uint(len(b))
			break
		}
		i += uint(n)
		count++
	}
	if count == 0 { // The key has several bytes, or the values are numbers.
		for of := wire.Key(b[i:]); i < uint(len(b)); count++ {
			k, _, end := wire.Field(b, int(i))
			if k != of && count > 0 {
				break
			}
			i = uint(end)
		}
	}
	if f.count == 0 {
		f.first = uint32(from)
	}
	f.end = uint32(i)
	f.count += count
	return i
}

// Set records a value of which the last one counts.
func (f *Found) Set(start, end uint) { *f = Found{uint32(start), uint32(end), 1} }

// Has reports whether there is a value.
func (f *Found) Has() bool { return f.count != 0 }

// First returns where the first value begins.
func (f *Found) First() uint { return uint(f.first) }

// Value returns the contents of a field that was Set in the message b, for functions that read
// messages of Kubernetes.
func (f *Found) Value(b []byte) view.Value {
	if f.count == 0 {
		return view.Value{}
	}
	_, start, end := wire.Field(b[:f.end], int(f.first))
	given.bytes = true
	return view.Value{Raw: b[start:end:end], Kept: true}
}

// View returns a view of a message of Kubernetes.
func (f *Found) View(b []byte, t *view.Type) view.View {
	if f.count == 0 {
		return view.View{}
	}
	return view.FromProto(f.Value(b).Raw, t)
}

// Messages is a field of messages, or of one. M is the struct of the message, and V what plugins
// read it by, a struct with a pointer to it.
type Messages[M, V any] struct {
	Found
	made *messages[M, V]
}

// messages are those that were read. Their memory is that of the request before.
type messages[M, V any] struct {
	items []M
	// views are what the plugin got, which may have sorted them, and each of pristine has
	// the address of the item at the same place.
	views, pristine []V
	// read is set until the next request.
	read bool
}

// Begin returns memory for the messages that were found, or nil if they were read already or
// there are none.
func (l *Messages[M, V]) Begin() []M {
	if l.count == 0 || l.made != nil && l.made.read {
		return nil
	}
	made := l.made
	if made == nil {
		made = new(messages[M, V])
		l.made = made
	}
	n := int(l.count)
	if n > cap(made.items) {
		made.items, made.views, made.pristine = make([]M, n), make([]V, n), make([]V, n)
		for i := range made.items {
			// A V is a struct with a pointer to an M.
			*(**M)(unsafe.Pointer(&made.pristine[i])) = &made.items[i]
		}
	}
	made.items, made.views, made.read = made.items[:n], made.views[:n], true
	copy(made.views, made.pristine)
	return made.items
}

// Views returns the messages, which were read.
func (l *Messages[M, V]) Views() []V {
	if l.count == 0 {
		return nil
	}
	return l.made.views
}

// View returns the one message, which was read, or an empty one if there is none.
func (l *Messages[M, V]) View() (v V) {
	if l.count == 0 {
		return v
	}
	return l.made.views[0]
}

// Reset returns a field without messages, with the memory of l.
func (l *Messages[M, V]) Reset() Messages[M, V] {
	if l.made != nil {
		clear(l.made.items)
		clear(l.made.views)
		l.made.read = false
	}
	return Messages[M, V]{made: l.made}
}

// List is a repeated field of anything but messages of the service. Its slice is made anew for
// each request: a plugin may keep it, or make it a part of the response.
type List[T any] struct {
	Found
	made *[]T
}

// Values returns the results of read for the elements of a field in the message b.
func (l *List[T]) Values(b []byte, field uint32, read func(view.Value) T) []T {
	if l.count == 0 {
		return nil
	}
	if l.made == nil {
		given.bytes = true
		list := make([]T, 0, l.count)
		for r := wire.NewReaderAt(b[:l.end], int(l.first)); r.Next(); {
			if r.Field == field && r.Type == wire.Bytes {
				list = append(list, read(view.Value{Raw: r.Bytes(), Kept: true}))
			}
		}
		l.made = &list
	}
	return *l.made
}

// Numbers returns the results of read for the elements of a field in the message b, packed or
// not.
func (l *List[T]) Numbers(b []byte, field uint32, kind view.NumberKind, read func(bits uint64) T) []T {
	if l.count == 0 {
		return nil
	}
	if l.made != nil {
		return *l.made
	}
	one := wire.Varint
	switch kind {
	case view.Fixed32:
		one = wire.Fixed32
	case view.Fixed64:
		one = wire.Fixed64
	}
	list := make([]T, 0, l.count)
	add := func(n uint64) {
		if kind == view.Zigzag {
			n = uint64(Zigzag(n))
		}
		list = append(list, read(n))
	}
	for r := wire.NewReaderAt(b[:l.end], int(l.first)); r.Next(); {
		switch {
		case r.Field != field:
		case r.Type == one:
			add(r.Uint64())
		case r.Type == wire.Bytes: // Packed.
			packed := r.Bytes()
			if one == wire.Fixed64 {
				list = slices.Grow(list, len(packed)/8)
			}
			for i := 0; i < len(packed); {
				var n uint64
				if one == wire.Varint {
					n, i = wire.Uvarint(packed, i)
				} else {
					n, i = wire.Fixed(packed, i, one)
				}
				if i < 0 {
					break
				}
				add(n)
			}
		}
	}
	l.made = &list
	return list
}

// Int converts the bits of a whole number or an enumeration's value.
func Int[T ~int32 | ~int64 | ~uint32 | ~uint64](bits uint64) T { return T(bits) }

// Bool converts the bits of a truth value.
func Bool(bits uint64) bool { return bits != 0 }

// Float32 converts the bits of a number of type float.
func Float32(bits uint64) float32 { return math.Float32frombits(uint32(bits)) }

// Float64 converts the bits of a number of type double.
func Float64(bits uint64) float64 { return math.Float64frombits(bits) }

// Object returns a function that returns the view of an object by its ref.
func Object[V view.Of](t *view.Type, kind view.ObjectKind) func(bits uint64) V {
	return func(bits uint64) V { return V(view.ByRef(abi.Ref(bits), t, kind)) }
}
