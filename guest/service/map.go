package service

import (
	"unsafe"

	"github.com/kubewasm/kubewasm/guest/internal/wire"
	"github.com/kubewasm/kubewasm/guest/view"
)

// Map is a view of a map of strings to values of another type. The zero value is an empty map.
// Of several entries with the same key the last counts.
type Map[V any] struct {
	in   *Encoded
	kept *Entries[V]
	of   *MapOf[V]
}

// MapOf describes the maps in a field. It is for generated code, and does not change.
type MapOf[V any] struct {
	key uint64
	// read reads the value of an entry, and convert that of a number of the kind by its bits.
	read    func(view.Value) V
	convert func(bits uint64) V
	kind    view.NumberKind
	tag     mapTag
	// texts is set for values of type string, doubles for numbers of 64 bits on the wire as in memory.
	texts, doubles bool
}

// mapTag is the key of a field in its form in memory.
type mapTag struct {
	// encoded and mask are those of encodedKey. length is the number of bytes.
	encoded, mask uint16
	length        uint8
}

func mapTagOf(field uint32) mapTag {
	encoded, mask, n := encodedKey(uint64(field)<<3 | uint64(wire.Bytes))
	return mapTag{encoded, mask, uint8(n)}
}

// ValuesOf describes the maps in the field with the number. read gets the encoded value of each
// entry.
func ValuesOf[V any](field uint32, read func(view.Value) V) MapOf[V] {
	_, texts := any(*new(V)).(string)
	return MapOf[V]{key: uint64(field)<<3 | uint64(wire.Bytes), read: read, tag: mapTagOf(field), texts: texts}
}

// NumbersOf describes the maps of numbers in the field with the number. convert gets the bits of
// each.
func NumbersOf[V any](field uint32, kind view.NumberKind, convert func(bits uint64) V) MapOf[V] {
	return MapOf[V]{
		key: uint64(field)<<3 | uint64(wire.Bytes), convert: convert, kind: kind, tag: mapTagOf(field),
		doubles: kind == view.Fixed64,
	}
}

// Entries is a field that is a map: its entries, if there are many. It is for generated code.
type Entries[V any] struct {
	made *entries[V]
	// first is the slot of the field in the order of hosts, whose place is 0 if there are no
	// entries, and 0 if it is not known.
	first uint64
}

// entries are those of a map, in the order in which they were written.
type entries[V any] struct {
	of []entry[V]
	// places are the indexes by key.
	places map[string]int
	read   bool
}

// entry is a key with its value.
type entry[V any] struct {
	key   string
	value V
}

// fewEntries is the maximum number of entries that are searched in place, in the message.
const fewEntries = 8

// Map returns the map in a field of e.
func (l *Entries[V]) Map(e *Encoded, of *MapOf[V]) Map[V] {
	if e.n == 0 {
		return Map[V]{}
	}
	return Map[V]{e, l, of}
}

// Begin sets the first entry by the slot of the field (see [Encoded.Wide]).
func (l *Entries[V]) Begin(e *Encoded, slot uint64) {
	if e.ordered() {
		l.first = slot | noEntry
	}
}

// noEntry marks the slot of a map that is known. It is a bit of no length that scan reads.
const noEntry = 1 << 31

// Reset returns an empty map with the memory of l.
func (l *Entries[V]) Reset() Entries[V] {
	if l.made != nil {
		clear(l.made.of)
		clear(l.made.places)
		l.made.read = false
	}
	return Entries[V]{made: l.made}
}

// Get returns the value of key, the zero value if there is none.
func (m Map[V]) Get(key string) (value V) {
	value, _ = m.Lookup(key)
	return value
}

// Lookup returns the value of key and whether there is one.
func (m Map[V]) Lookup(key string) (value V, ok bool) {
	e, of := m.in, m.of
	switch {
	case e == nil:
		return value, false
	case m.kept.made != nil && m.kept.made.read:
		return m.kept.made.lookup(key)
	case e.ordered() && of.key < 1<<14: // Few calls: each takes as long as a look at some entries.
		first := m.kept.first
		if first == 0 {
			at, length := e.find(of.key)
			first = slotOf(at, uint(length)) | noEntry
			m.kept.first = first
		}
		start, end, n := e.scan(first, &of.tag, key)
		switch {
		case n > fewEntries:
		case start == 0:
			return value, false
		case of.texts && end-start >= 2 && *(*uint16)(unsafe.Add(e.at, start)) == uint16((end-start-2)<<8|2<<3|uint(wire.Bytes)):
			if start += 2; start != end {
				given.bytes = true
				*(*string)(unsafe.Pointer(&value)) = unsafe.String((*byte)(unsafe.Add(e.at, start)), end-start)
			}
			return value, true
		case of.doubles && end-start == 9:
			*(*uint64)(unsafe.Pointer(&value)) = *(*uint64)(unsafe.Add(e.at, start+1))
			return value, true
		case of.convert != nil && of.kind != view.Zigzag && start < end:
			_, bits := e.value(start+1, onWire(of.kind))
			return of.convert(bits), true
		default:
			return of.value(entryValue(e.contents(start, end))), true
		}
	}
	n := 0
	var found []byte
	for start, end, more := e.part(of.key, 0); more; start, end, more = e.part(of.key, end) {
		if n++; n > fewEntries {
			return m.all().lookup(key)
		}
		if name, encoded := entryIn(e.contents(start, end)); name == key {
			found, ok = encoded, true
		}
	}
	if ok {
		value = of.value(found)
	}
	return value, ok
}

// Has reports whether the map has the key.
func (m Map[V]) Has(key string) bool {
	_, ok := m.Lookup(key)
	return ok
}

// Len returns the number of entries.
func (m Map[V]) Len() int {
	if m.in == nil { // Without a call, for loops.
		return 0
	}
	return m.count()
}

func (m Map[V]) count() (n int) {
	if made := m.kept.made; made != nil && made.read {
		return len(made.of)
	}
	for _, end, more := m.in.part(m.of.key, 0); more; _, end, more = m.in.part(m.of.key, end) {
		n++
	}
	return n
}

// All calls yield with each key and value, in the order in which the message has them, until
// it returns false: for k, v := range m.All.
func (m Map[V]) All(yield func(key string, value V) bool) {
	if m.in == nil {
		return
	}
	for start, end, more := m.in.part(m.of.key, 0); more; start, end, more = m.in.part(m.of.key, end) {
		key, encoded := entryIn(m.in.contents(start, end))
		given.bytes = true
		if !yield(key, m.of.value(encoded)) {
			return
		}
	}
}

// value reads the value of an entry.
func (of *MapOf[V]) value(encoded []byte) V {
	if of.convert != nil {
		var n uint64
		if len(encoded) != 0 {
			in := EncodedOf(encoded)
			_, n = in.value(0, onWire(of.kind))
		}
		if of.kind == view.Zigzag {
			n = uint64(Zigzag(n))
		}
		return of.convert(n)
	}
	given.bytes = true
	return of.read(view.Value{Raw: encoded, Kept: true})
}

// all reads the entries.
func (m Map[V]) all() *entries[V] {
	if m.kept.made == nil {
		m.kept.made = &entries[V]{places: map[string]int{}}
	}
	made := m.kept.made
	made.of, made.read = made.of[:0], true
	for key, value := range m.All {
		made.places[key] = len(made.of)
		made.of = append(made.of, entry[V]{key, value})
	}
	return made
}

func (e *entries[V]) lookup(key string) (value V, ok bool) {
	i, ok := e.places[key]
	if ok {
		value = e.of[i].value
	}
	return value, ok
}

// scan returns the beginning and the end of the value, with its key, of the last entry with the
// name, and the number of entries. The first has the slot first. It reads none of the entries that
// are not short, and returns more than fewEntries for them. It calls no function, as short.
func (e *Encoded) scan(first uint64, tag *mapTag, name string) (start, end uint, n int) {
	at, length, size := uint(first>>32), uint(uint32(first)&^noEntry), uint(len(name))
	if at == 0 {
		return 0, 0, 0
	}
	p, q, limit := e.at, unsafe.Pointer(unsafe.StringData(name)), uint(e.n)
	encoded, mask, skip := tag.encoded, tag.mask, uint(tag.length)+1
	head := uint16(size<<8 | 1<<3 | uint(wire.Bytes))
	for {
		stop := at + length
		if n++; n > fewEntries || length-2 >= 0x80-2 || stop > limit || size >= 0x80 {
			return 0, 0, fewEntries + 1
		}
		if from := at + 2; *(*uint16)(unsafe.Add(p, at)) == head && from+size <= stop {
			var differs uint64
			switch {
			case 8 <= size && size <= 16: // Two words, which overlap.
				differs = (*(*uint64)(unsafe.Add(p, from)) ^ *(*uint64)(q)) |
					(*(*uint64)(unsafe.Add(p, from+size-8)) ^ *(*uint64)(unsafe.Add(q, size-8)))
			case 4 <= size && size < 8:
				differs = uint64((*(*uint32)(unsafe.Add(p, from)) ^ *(*uint32)(q)) |
					(*(*uint32)(unsafe.Add(p, from+size-4)) ^ *(*uint32)(unsafe.Add(q, size-4))))
			default:
				for i := uint(0); i < size; i++ {
					differs |= uint64(*(*byte)(unsafe.Add(p, from+i)) ^ *(*byte)(unsafe.Add(q, i)))
				}
			}
			if differs == 0 {
				start, end = from+size, stop
			}
		}
		if at = stop + skip; at > limit || *(*uint16)(unsafe.Add(p, stop))&mask != encoded {
			return start, end, n
		}
		length = uint(*(*byte)(unsafe.Add(p, at-1)))
	}
}

// entryValue returns the encoded value in the bytes after the key of an entry.
func entryValue(b []byte) []byte {
	switch {
	case len(b) < 2:
		return nil
	case b[0] != 2<<3|byte(wire.Bytes):
		return b[1:] // A number.
	case int(b[1]) == len(b)-2:
		return b[2:]
	}
	_, value := entryIn(b)
	return value
}

// entryIn returns the key of an entry and the encoded value.
func entryIn(b []byte) (key string, value []byte) {
	for r := wire.NewReader(b); r.Next(); {
		switch r.Field {
		case 1:
			key = r.String()
		case 2:
			if value = r.Bytes(); r.Type != wire.Bytes {
				start, end := r.Span()
				value = b[start+1 : end] // After the key, which has one byte.
			}
		}
	}
	return key, value
}
