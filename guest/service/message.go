package service

import (
	"math"
	"math/bits"
	"slices"
	"unsafe"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/internal/wire"
	"github.com/kubewasm/kubewasm/guest/view"
)

// The types and functions of this file and the next ones read messages. They are for generated
// code: a struct for each message, with its bytes and the lists and maps that were read from it. A
// number or a text is searched for when it is requested, since plugins read a few fields of many
// messages, and data written for each message of a list costs more than a search.

// given records the parts of the served request that plugins received.
var given struct {
	// bytes is set if a plugin received a part of its bytes, which it may keep.
	bytes bool
}

// Encoded is a message of a service. It shares the bytes. The zero value and nil are an empty
// message.
type Encoded struct {
	at unsafe.Pointer
	n  uint32
	// from is the beginning of the field that was found last, or anyOrder. The fields of messages
	// from hosts come in the order of their numbers (section 9 of the SPEC): a search for a field
	// ends at a larger number, and begins at the field before if its number is smaller.
	from uint32
}

// anyOrder stands in place of a position in a message whose fields may be in any order. Of
// those with the same number the last counts.
const anyOrder = math.MaxUint32

func (e *Encoded) ordered() bool { return e.from != anyOrder }

// EncodedOf returns the message in b, whose fields may be in any order.
func EncodedOf(b []byte) Encoded { return encoded(b, anyOrder) }

// FromHost returns the message in b, which a host has encoded. In native programs tests are
// the host, so that fields may be in any order.
func FromHost(b []byte) Encoded { return encoded(b, hostOrder) }

func encoded(b []byte, from uint32) Encoded {
	return Encoded{unsafe.Pointer(unsafe.SliceData(b)), uint32(len(b)), from}
}

func (e *Encoded) bytes() []byte { return unsafe.Slice((*byte)(e.at), e.n) }

// Number returns the number in the field with the key, as its bits, 0 if there is none.
func (e *Encoded) Number(key uint64) uint64 {
	_, n := e.find(key)
	return n
}

// Has reports whether there is a field with the key.
func (e *Encoded) Has(key uint64) bool {
	at, _ := e.find(key)
	return at != 0
}

// Text returns the contents of the field with the key, which may be kept.
func (e *Encoded) Text(key uint64) string {
	at, n := e.find(key)
	if n == 0 {
		return ""
	}
	given.bytes = true
	return unsafe.String((*byte)(unsafe.Add(e.at, at)), n)
}

// Data returns the contents of the field with the key, which may be kept but not written to,
// nil if there is none.
func (e *Encoded) Data(key uint64) []byte {
	at, n := e.find(key)
	switch {
	case at == 0:
		return nil
	case n == 0:
		return []byte{}
	}
	given.bytes = true
	return unsafe.Slice((*byte)(unsafe.Add(e.at, at)), n)
}

// Value returns the contents of the field with the key, for functions that read messages of
// Kubernetes.
func (e *Encoded) Value(key uint64) view.Value {
	at, n := e.find(key)
	if at == 0 {
		return view.Value{}
	}
	given.bytes = true
	return view.Value{Raw: e.bytes()[at : at+uint(n) : at+uint(n)], Kept: true}
}

// View returns a view of a message of Kubernetes in the field with the key.
func (e *Encoded) View(key uint64, t *view.Type) view.View {
	if v := e.Value(key); v.Raw != nil {
		return view.FromProto(v.Raw, t)
	}
	return view.View{}
}

// lengths has in four bits for each wire type the length of a field that has a number below 0x80 or
// no bytes. The types without a length are malformed.
const lengths = 0x00500292

// find returns the beginning of the value of the field with the key, 0 if there is none, and its
// bits, or for one of bytes their length. It reads without slices, whose bounds Go checks at each
// byte.
func (e *Encoded) find(key uint64) (at uint, n uint64) {
	if e == nil || !e.ordered() || key >= 0x80 {
		return e.findAny(key)
	}
	p, i, end := e.at, uint(e.from), uint(e.n)
	if i != 0 && uint64(*(*byte)(unsafe.Add(p, i))) > key {
		i = 0
	}
	for i+1 < end { // A field has two bytes or more.
		k := uint64(*(*byte)(unsafe.Add(p, i)))
		n := *(*byte)(unsafe.Add(p, i+1))
		if k >= key { // A key of several bytes is larger, too.
			if k > key {
				return 0, 0
			}
			e.from = uint32(i)
			if key&7 == uint64(wire.Varint) && n < 0x80 {
				return i + 1, uint64(n)
			}
			if key&7 == uint64(wire.Bytes) && n < 0x80 && i+2+uint(n) <= end {
				return i + 2, uint64(n)
			}
			return e.value(i+1, wire.Type(k&7))
		}
		t := k & 7
		i += uint(lengths >> (4 * t) & 15)
		switch {
		case t&^uint64(wire.Bytes) != 0:
			if lengths>>(4*t)&15 == 0 {
				return 0, 0
			}
		case n >= 0x80:
			i = e.after(i-1, wire.Type(t))
		case t == uint64(wire.Bytes):
			i += uint(n)
		}
	}
	return 0, 0
}

// findLong is find for keys of two bytes, those of the fields from 16 to 2047.
func (e *Encoded) findLong(key uint64) (at uint, n uint64) {
	p, i, end := e.at, uint(e.from), uint(e.n)
	if i != 0 && e.keyAt(i) > key {
		i = 0
	}
	for i+2 < end {
		k, v := uint64(*(*byte)(unsafe.Add(p, i))), i+1
		if k >= 0x80 {
			k, v = e.keyAt(i), v+1
		}
		t := wire.Type(k & 7)
		if k >= key {
			if k > key {
				return 0, 0
			}
			e.from = uint32(i)
			return e.value(v, t)
		}
		n := *(*byte)(unsafe.Add(p, v))
		switch {
		case t == wire.Fixed64:
			i = v + 8
		case t == wire.Fixed32:
			i = v + 4
		case t&^wire.Bytes != 0:
			return 0, 0
		case n >= 0x80:
			i = e.after(v, t)
		case t == wire.Bytes:
			i = v + 1 + uint(n)
		default:
			i = v + 1
		}
	}
	return 0, 0
}

// keyAt returns the key of the field at i, which has three bytes or more if its key has more than
// one. In place of keys of more than two bytes it returns a larger one.
func (e *Encoded) keyAt(i uint) uint64 {
	key := uint64(*(*byte)(unsafe.Add(e.at, i)))
	if key < 0x80 {
		return key
	}
	if high := uint64(*(*byte)(unsafe.Add(e.at, i+1))); high < 0x80 {
		return key&0x7f | high<<7
	}
	return math.MaxUint64
}

// value returns the results of find for the field of a type whose key ends at i.
func (e *Encoded) value(i uint, t wire.Type) (at uint, n uint64) {
	p, end := e.at, uint(e.n)
	switch {
	case t == wire.Varint && i+10 <= end:
		word := *(*uint64)(unsafe.Add(p, i))
		ends := ^word & 0x8080808080808080
		n = word & (ends ^ (ends - 1)) & 0x7f7f7f7f7f7f7f7f // Up to the first byte below 0x80.
		n = n&0x007f007f007f007f | n&0x7f007f007f007f00>>1
		n = n&0x00003fff00003fff | n&0x3fff00003fff0000>>2
		n = n&0x000000000fffffff | n&0x0fffffff00000000>>4
		if ends == 0 {
			ninth, tenth := uint64(*(*byte)(unsafe.Add(p, i+8))), uint64(*(*byte)(unsafe.Add(p, i+9)))
			if n |= ninth & 0x7f << 56; ninth >= 0x80 {
				n |= tenth << 63
			}
		}
		return i, n
	case t == wire.Varint:
		at = i
		for shift := uint(0); i < end && shift < 64; shift += 7 {
			c := uint64(*(*byte)(unsafe.Add(p, i)))
			i++
			if n |= c & 0x7f << (shift & 63); c < 0x80 {
				return at, n
			}
		}
	case t == wire.Fixed64 && i+8 <= end:
		return i, *(*uint64)(unsafe.Add(p, i))
	case t == wire.Fixed32 && i+4 <= end:
		return i, uint64(*(*uint32)(unsafe.Add(p, i)))
	case t == wire.Bytes:
		if n, at := wire.Uvarint(e.bytes(), int(i)); at >= 0 && n <= uint64(end)-uint64(at) {
			return uint(at), n
		}
	}
	return 0, 0
}

// after returns the index after the field whose key ends at i, a long number or bytes.
func (e *Encoded) after(i uint, t wire.Type) uint {
	if t == wire.Varint && i+10 <= uint(e.n) {
		// The last byte of a number is below 0x80.
		p := unsafe.Add(e.at, i)
		ends := ^*(*uint64)(p) & 0x8080808080808080
		if ends != 0 {
			return i + 1 + uint(bits.TrailingZeros64(ends))/8
		}
		if *(*byte)(unsafe.Add(p, 8)) >= 0x80 {
			return i + 10
		}
		return i + 9
	}
	n, next := wire.Uvarint(e.bytes(), int(i))
	switch {
	case next < 0:
		return uint(e.n)
	case t != wire.Bytes:
		return uint(next)
	}
	return uint(min(uint64(e.n), uint64(next)+min(n, uint64(e.n))))
}

// findAny is find for any message.
func (e *Encoded) findAny(key uint64) (at uint, n uint64) {
	if e == nil {
		return 0, 0
	}
	if e.ordered() && 0x80 <= key && key < 1<<14 {
		return e.findLong(key)
	}
	r := e.reader()
	if e.ordered() && wire.Key(e.bytes()[e.from:]) <= key {
		r = wire.NewReaderAt(e.bytes(), int(e.from))
	}
	for r.Next() {
		k := uint64(r.Field)<<3 | uint64(r.Type)
		if k == key {
			_, end := r.Span()
			if n = r.Uint64(); r.Type == wire.Bytes {
				n = uint64(len(r.Bytes()))
				end -= int(n)
			}
			at = uint(end)
		}
		if e.ordered() && k >= key {
			if start, _ := r.Span(); k == key {
				e.from = uint32(start)
			}
			break
		}
	}
	return at, n
}

func (e *Encoded) reader() wire.Reader { return wire.NewReader(e.bytes()) }

// readerOf returns a reader that next moves to the fields with the number, which have a type of
// two.
func (e *Encoded) readerOf(field uint32, one, other wire.Type) wire.Reader {
	if e == nil || e.n == 0 {
		return wire.Reader{}
	}
	if !e.ordered() {
		return e.reader()
	}
	key := uint64(field) << 3
	if at, _ := e.find(key | uint64(one)); at == 0 {
		if one == other {
			return wire.Reader{}
		}
		if at, _ = e.find(key | uint64(other)); at == 0 {
			return wire.Reader{}
		}
	}
	return wire.NewReaderAt(e.bytes(), int(e.from))
}

// next goes to the next field with a number and reports whether there is one.
func (e *Encoded) next(r *wire.Reader, field uint32) bool {
	for r.Next() {
		if r.Field == field {
			return true
		}
		if e.ordered() && r.Field > field {
			break
		}
	}
	return false
}

// part returns the beginning and the end of the contents of the first field with the key that
// begins at i or later, and that has bytes. In the order of hosts i is 0 or the end of such a
// field.
func (e *Encoded) part(key uint64, i uint) (start, end uint, ok bool) {
	switch {
	case e == nil: // That of a view that was kept.
	case !e.ordered():
		for i < uint(e.n) {
			of, from, until := wire.Field(e.bytes(), int(i))
			if of == key {
				return uint(from), uint(until), true
			}
			i = uint(until)
		}
	case i == 0:
		at, n := e.find(key)
		return at, at + uint(n), at != 0
	case i < uint(e.n):
		of, from, until := wire.Field(e.bytes(), int(i))
		return uint(from), uint(until), of == key
	}
	return 0, 0, false
}

// contents returns a part of the message.
func (e *Encoded) contents(start, end uint) []byte { return e.bytes()[start:end:end] }

// count returns the number of fields that next finds.
func (e *Encoded) count(r wire.Reader, field uint32) (n int) {
	for e.next(&r, field) {
		n++
	}
	return n
}

// Zigzag returns a number of type sint32 or sint64.
func Zigzag(n uint64) int64 { return int64(n>>1) ^ -int64(n&1) }

// Messages is a field of messages, or of one. M is the struct of the message, which begins with an
// Encoded, and V the type by which plugins read it, a struct with a pointer to it.
type Messages[M, V any] struct{ made *messages[M, V] }

// messages are those that were read. Their memory is that of the request before.
type messages[M, V any] struct {
	items []M
	// views are the views that the plugin got, which may have sorted them. Each of pristine has the
	// address of the item at the same place.
	views, pristine []V
	// read is set until the next request.
	read bool
	// wide is set for messages with slots. ahead is set once the plugin has read the last message of a
	// request: those of the next ones are read in one go, which takes half the time.
	wide, ahead bool
}

// Views returns the messages in the fields of e with the key.
func (l *Messages[M, V]) Views(e *Encoded, key uint64) []V {
	if l.made == nil {
		if !e.Has(key) {
			return nil
		}
		l.made = new(messages[M, V])
	}
	if !l.made.read {
		l.made.fill(e, key)
	}
	return l.made.views
}

// WideViews is Views for messages that [Encoded.Wide] reads, which fill does. Their slots follow the
// Encoded.
func (l *Messages[M, V]) WideViews(e *Encoded, key uint64, fill func(*M) *M) []V {
	if l.made != nil && l.made.read {
		return l.made.views
	}
	views := l.Views(e, key)
	if l.made == nil {
		return views
	}
	if l.made.wide = true; l.made.ahead && e.ordered() {
		for i := range l.made.items {
			fill(&l.made.items[i])
		}
	}
	return views
}

// lastRead reports whether the last of the messages, which have slots, was read.
func (m *messages[M, V]) lastRead() bool {
	n := len(m.items)
	return n != 0 && *(*uint64)(unsafe.Add(unsafe.Pointer(&m.items[n-1]), unsafe.Sizeof(Encoded{}))) != 0
}

// View returns the message in the field of e with the key, an empty one if there is none.
func (l *Messages[M, V]) View(e *Encoded, key uint64) (v V) {
	if views := l.Views(e, key); len(views) != 0 {
		v = views[len(views)-1]
	}
	return v
}

// Reset returns a field without messages, with the memory of l.
func (l *Messages[M, V]) Reset() Messages[M, V] {
	if l.made != nil {
		if l.made.wide && l.made.read {
			l.made.ahead = l.made.ahead || l.made.lastRead()
		}
		clear(l.made.items)
		l.made.read = false
	}
	return Messages[M, V]{l.made}
}

// fill reads the messages in the fields of e with the key.
func (m *messages[M, V]) fill(e *Encoded, key uint64) {
	m.items, m.read = m.items[:0], true
	if e.ordered() {
		m.ordered(e, key)
	} else {
		for r := e.reader(); r.Next(); {
			if uint64(r.Field)<<3|uint64(r.Type) == key {
				m.add(EncodedOf(r.Bytes()))
			}
		}
	}
	m.views = append(m.views[:0], m.pristine[:len(m.items)]...)
}

// ordered reads the messages in the fields of e with the key, which lie one after the other.
func (m *messages[M, V]) ordered(e *Encoded, key uint64) {
	for at, n := e.find(key); at != 0; {
		start := at
		if n == 0 {
			start = 0 // No pointer goes beyond the bytes, where another object may be.
		}
		m.add(Encoded{unsafe.Add(e.at, start), uint32(n), 0})
		at += uint(n)
		if room := cap(m.items) - len(m.items); room > 0 && key < 0x80 {
			var count int
			count, at = e.short(at, key, unsafe.Pointer(&m.items[:cap(m.items)][len(m.items)]), unsafe.Sizeof(m.items[0]), room)
			m.items = m.items[:len(m.items)+count]
		}
		of, from, until := wire.Field(e.bytes(), int(at))
		if of != key {
			break
		}
		at, n = uint(from), uint64(until-from)
	}
}

// short sets the messages at to, of size bytes each, to those in the fields with the key from at on
// that have less than 0x4000 bytes, at most room of them. It returns their number and the index after
// them. It calls no function, so that its variables stay where a loop is fast.
func (e *Encoded) short(at uint, key uint64, to unsafe.Pointer, size uintptr, room int) (count int, next uint) {
	p, end := e.at, uint(e.n)
	for count < room && at+1 < end && uint64(*(*byte)(unsafe.Add(p, at))) == key {
		n, start := uint(*(*byte)(unsafe.Add(p, at+1))), at+2
		if n >= 0x80 {
			if start >= end || *(*byte)(unsafe.Add(p, start)) >= 0x80 {
				break
			}
			n = n&0x7f | uint(*(*byte)(unsafe.Add(p, start)))<<7
			start++
		}
		next := start + n
		if next > end {
			break
		}
		if n == 0 {
			start = 0 // As in ordered.
		}
		m := (*Encoded)(unsafe.Add(to, uintptr(count)*size))
		m.at, m.n, m.from = unsafe.Add(p, start), uint32(n), 0
		at = next
		count++
	}
	return count, at
}

// encodedKey returns a key of up to two bytes in its form in memory, the bits that count of two
// bytes there, and its number of bytes.
func encodedKey(key uint64) (encoded, mask uint16, n uint) {
	if key < 0x80 {
		return uint16(key), 0xff, 1
	}
	return uint16(key&0x7f | 0x80 | key>>7<<8), 0xffff, 2
}

// add adds a message.
func (m *messages[M, V]) add(e Encoded) {
	n := len(m.items)
	if n == cap(m.items) {
		items := make([]M, n, max(1, 4*n))
		copy(items, m.items)
		m.items, m.pristine = items, make([]V, cap(items))
		for i := range m.pristine {
			// A V is a struct with a pointer to an M.
			*(**M)(unsafe.Pointer(&m.pristine[i])) = &items[:cap(items)][i]
		}
	}
	m.items = m.items[:n+1]
	// An M begins with an Encoded.
	*(*Encoded)(unsafe.Pointer(&m.items[n])) = e
}

// List is a repeated field of anything but messages of the service. Its slice is made anew for
// each request: a plugin may keep it, or make it a part of the response.
type List[T any] struct {
	made []T
	read bool
}

// Values returns the results of read for the elements of a field of e.
func (l *List[T]) Values(e *Encoded, field uint32, read func(view.Value) T) []T {
	if l.read {
		return l.made
	}
	l.read = true
	r := e.readerOf(field, wire.Bytes, wire.Bytes)
	if n := e.count(r, field); n != 0 {
		given.bytes = true
		l.made = make([]T, 0, n)
		for e.next(&r, field) {
			if r.Type == wire.Bytes {
				l.made = append(l.made, read(view.Value{Raw: r.Bytes(), Kept: true}))
			}
		}
	}
	return l.made
}

// Numbers returns the results of read for the elements of a field of e, packed or not.
func (l *List[T]) Numbers(e *Encoded, field uint32, kind view.NumberKind, read func(bits uint64) T) []T {
	if l.read {
		return l.made
	}
	l.read = true
	one, list := onWire(kind), l.made
	add := func(n uint64) {
		if kind == view.Zigzag {
			n = uint64(Zigzag(n))
		}
		list = append(list, read(n))
	}
	for r := e.readerOf(field, wire.Bytes, one); e.next(&r, field); {
		switch r.Type {
		case one:
			if list == nil {
				list = make([]T, 0, e.count(r, field)+1)
			}
			add(r.Uint64())
		case wire.Bytes: // Packed.
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
	l.made = list
	return list
}

// onWire returns the type of a number.
func onWire(kind view.NumberKind) wire.Type {
	switch kind {
	case view.Fixed32:
		return wire.Fixed32
	case view.Fixed64:
		return wire.Fixed64
	}
	return wire.Varint
}

// Int converts the bits of a whole number or an enumeration's value.
func Int[T ~int32 | ~int64 | ~uint32 | ~uint64](bits uint64) T { return T(bits) }

// Object returns a function that returns the view of an object by its ref.
func Object[V view.Of](t *view.Type, kind view.ObjectKind) func(bits uint64) V {
	return func(bits uint64) V { return V(view.ByRef(abi.Ref(bits), t, kind)) }
}
