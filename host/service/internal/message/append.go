package message

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"time"
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/wire"
)

// Refs gives the objects in messages their refs, and finds them again.
type Refs interface {
	// Ref returns the ref of the object of a type at p.
	Ref(t reflect.Type, p unsafe.Pointer) (abi.Ref, error)
	// Object returns the object of a type with the ref, which belongs to the call.
	Object(t reflect.Type, ref abi.Ref) (unsafe.Pointer, error)
}

// Append appends the message at p, a pointer to the struct. Errors are those of refs, and those of
// a message that a decoder would read differently: text that is not UTF-8, two fields of a oneof.
func (m *Type) Append(b []byte, p unsafe.Pointer, refs Refs) ([]byte, error) {
	e := encoder{refs: refs}
	b = e.message(b, m, p)
	return b, e.err
}

// encoder is the state of one Append.
type encoder struct {
	refs Refs
	err  error
	// keys are those of a map with many.
	keys []string
}

func (e *encoder) fail(f *field, err error) {
	if e.err == nil {
		e.err = fmt.Errorf("field %s: %w", f.name, err)
	}
}

func (e *encoder) message(b []byte, m *Type, p unsafe.Pointer) []byte {
	fields := m.fields
	for i := range fields {
		f := &fields[i]
		at := unsafe.Add(p, f.offset)
		var n uint64
		switch f.frequent {
		case sparseField:
			if *(*uintptr)(unsafe.Add(at, f.emptiness)) != 0 {
				b = e.field(b, m, f, p)
			}
			continue
		case textField:
			if s := *(*string)(at); s != "" {
				b = e.text(b, f, f.tag, s)
			}
			continue
		case doubleField:
			if n = *(*uint64)(at); n != 0 {
				b = binary.LittleEndian.AppendUint64(appendTag(b, f.tag), n)
			}
			continue
		case numberField32:
			n = uint64(*(*int32)(at))
		case unsignedField32:
			n = uint64(*(*uint32)(at))
		case flagField:
			n = uint64(*(*byte)(at))
		case numberField64:
			n = *(*uint64)(at)
		default:
			b = e.field(b, m, f, p)
			continue
		}
		if n != 0 {
			if b = appendTag(b, f.tag); n < 0x80 {
				b = append(b, byte(n))
			} else {
				b = wire.AppendVarint(b, n)
			}
		}
	}
	return b
}

// field appends a field of the message at p.
func (e *encoder) field(b []byte, m *Type, f *field, p unsafe.Pointer) []byte {
	at := unsafe.Add(p, f.offset)
	if f.oneof != nil && !e.alone(m, f, p) {
		return b
	}
	switch f.holds {
	case maybe:
		if at = *(*unsafe.Pointer)(at); at == nil {
			return b
		}
		return e.value(b, f, f.tag, at, true)
	case list:
		return e.list(b, f, at)
	case entries:
		return e.entries(b, f, at)
	}
	return e.value(b, f, f.tag, at, f.optional && *(*[]byte)(at) != nil)
}

// alone reports whether no field of the oneof before f is set.
func (e *encoder) alone(m *Type, f *field, p unsafe.Pointer) bool {
	for _, i := range f.oneof {
		other := &m.fields[i]
		if other == f {
			return true
		}
		if *(*unsafe.Pointer)(unsafe.Add(p, other.offset)) != nil && *(*unsafe.Pointer)(unsafe.Add(p, f.offset)) != nil {
			e.fail(f, fmt.Errorf("%s of the same oneof is also set", other.name))
			return false
		}
	}
	return true
}

// list appends the elements of a slice: numbers in one field, everything else in one each.
func (e *encoder) list(b []byte, f *field, at unsafe.Pointer) []byte {
	// The head of a slice is the same whatever its elements are.
	elements := *(*[]struct{})(at)
	if len(elements) == 0 {
		return b
	}
	first := unsafe.Pointer(unsafe.SliceData(elements))
	if f.kind == messages {
		long := false
		for i := range uintptr(len(elements)) {
			inner, start := begin(b, f.tag)
			if long { // As the one before is: two bytes for the length.
				inner = append(inner, 0)
			}
			inner = e.message(inner, f.message, unsafe.Add(first, i*f.size))
			if n := len(inner) - start - 1; long && 0x80 <= n && n < 1<<14 {
				inner[start-1], inner[start] = byte(n)|0x80, byte(n>>7)
				b = inner
				continue
			}
			if long {
				inner = append(inner[:start], inner[start+1:]...)
			}
			long = len(inner)-start >= 0x80
			b = wire.EndMessage(inner, start)
		}
		return b
	}
	if f.wire.delimited() || f.wire == object {
		for i := range uintptr(len(elements)) {
			b = e.value(b, f, f.tag, unsafe.Add(first, i*f.size), true)
		}
		return b
	}
	b, start := begin(b, tagOf(f.number, protowire.BytesType))
	for i := range uintptr(len(elements)) {
		b = f.appendNumber(b, f.bits(unsafe.Add(first, i*f.size)))
	}
	return wire.EndMessage(b, start)
}

// entries appends a map in the order of its keys.
func (e *encoder) entries(b []byte, f *field, at unsafe.Pointer) []byte {
	switch f.maps {
	case mapOfTexts:
		return e.texts(b, f, *(*map[string]string)(at))
	case mapOfInt32s:
		return numbers(e, b, f, *(*map[string]int32)(at))
	case mapOfUint32s:
		return numbers(e, b, f, *(*map[string]uint32)(at))
	case mapOfInt64s:
		return numbers(e, b, f, *(*map[string]int64)(at))
	case mapOfUint64s:
		return numbers(e, b, f, *(*map[string]uint64)(at))
	case mapOfFloat32s:
		return numbers(e, b, f, *(*map[string]float32)(at))
	case mapOfFloat64s:
		return numbers(e, b, f, *(*map[string]float64)(at))
	case mapOfBools:
		return numbers(e, b, f, *(*map[string]bool)(at))
	}
	return e.others(b, f, at)
}

// mapEntry is an entry of a map.
type mapEntry[V any] struct {
	key   string
	value V
}

// fewEntries is the number of entries that are sorted on the stack.
const fewEntries = 8

// sorted returns the entries of a map in the order of their keys. It has at most fewEntries.
func sorted[V any](m map[string]V, room *[fewEntries]mapEntry[V]) []mapEntry[V] {
	n := 0
	for key, value := range m {
		if n == fewEntries { // Another goroutine writes to the map.
			break
		}
		at := n
		for ; at > 0 && key < room[at-1].key; at-- {
			room[at] = room[at-1]
		}
		room[at] = mapEntry[V]{key, value}
		n++
	}
	return room[:n]
}

// sortedKeys returns the keys of a map in their order.
func sortedKeys[V any](e *encoder, m map[string]V) []string {
	e.keys = slices.Grow(e.keys[:0], len(m))
	for key := range m {
		e.keys = append(e.keys, key)
	}
	slices.Sort(e.keys)
	return e.keys
}

func (e *encoder) texts(b []byte, f *field, m map[string]string) []byte {
	if len(m) > fewEntries {
		for _, key := range sortedKeys(e, m) {
			b = e.textEntry(b, f, key, m[key])
		}
		return b
	}
	var room [fewEntries]mapEntry[string]
	for _, p := range sorted(m, &room) {
		b = e.textEntry(b, f, p.key, p.value)
	}
	return b
}

func (e *encoder) textEntry(b []byte, f *field, key, value string) []byte {
	b, start := begin(b, f.tag)
	b = e.text(b, f, tagOf(1, protowire.BytesType), key)
	return wire.EndMessage(e.text(b, f, tagOf(2, protowire.BytesType), value), start)
}

// numbers appends a map of numbers or truth values.
func numbers[V int32 | uint32 | int64 | uint64 | float32 | float64 | bool](e *encoder, b []byte, f *field, m map[string]V) []byte {
	if len(m) > fewEntries {
		for _, key := range sortedKeys(e, m) {
			v := m[key]
			b = e.numberEntry(b, f, key, f.bits(unsafe.Pointer(&v)))
		}
		return b
	}
	var room [fewEntries]mapEntry[V]
	list := sorted(m, &room)
	for i := range list {
		b = e.numberEntry(b, f, list[i].key, f.bits(unsafe.Pointer(&list[i].value)))
	}
	return b
}

func (e *encoder) numberEntry(b []byte, f *field, key string, n uint64) []byte {
	b, start := begin(b, f.tag)
	b = e.text(b, f, tagOf(1, protowire.BytesType), key)
	return wire.EndMessage(f.appendNumber(append(b, byte(tagOf(2, f.onWire))), n), start)
}

// others appends a map of any type: its entries as they come, which it sorts afterwards.
func (e *encoder) others(b []byte, f *field, at unsafe.Pointer) []byte {
	m := reflect.NewAt(f.goes, at).Elem()
	if m.Len() == 0 {
		return b
	}
	w, _ := f.walks.Get().(*walk)
	if w == nil {
		w = &walk{key: reflect.New(f.goes.Key()).Elem(), value: reflect.New(f.of).Elem()}
	}
	first := len(b)
	for w.entries.Reset(m); w.entries.Next(); {
		w.key.SetIterKey(&w.entries)
		w.value.SetIterValue(&w.entries) // A value in a map has no address.
		start := len(b)
		b = e.entry(b, f, w.key.String(), w.value.Addr().UnsafePointer())
		w.places = append(w.places, place{w.key.String(), start, len(b)})
	}
	slices.SortFunc(w.places, func(a, b place) int { return cmp.Compare(a.key, b.key) })
	end := len(b)
	for _, p := range w.places {
		b = append(b, b[p.start:p.end]...)
	}
	b = b[:first+copy(b[first:], b[end:])]
	w.forget()
	f.walks.Put(w)
	return b
}

// walk is the memory that others needs.
type walk struct {
	entries    reflect.MapIter
	key, value reflect.Value
	places     []place
}

// place is the position at which an entry of a map was written.
type place struct {
	key        string
	start, end int
}

// forget drops the map and its values.
func (w *walk) forget() {
	w.entries.Reset(reflect.Value{})
	w.key.SetZero()
	w.value.SetZero()
	clear(w.places)
	w.places = w.places[:0]
}

func (e *encoder) entry(b []byte, f *field, key string, value unsafe.Pointer) []byte {
	b, start := begin(b, f.tag)
	b = e.text(b, f, tagOf(1, protowire.BytesType), key)
	return wire.EndMessage(e.value(b, f, tagOf(2, f.onWire), value, true), start)
}

// begin begins a message, which wire.EndMessage ends.
func begin(b []byte, tag uint64) (_ []byte, start int) {
	b = append(appendTag(b, tag), 0)
	return b, len(b)
}

// value appends one value with a tag. An empty one is left out unless it is kept.
func (e *encoder) value(b []byte, f *field, tag uint64, p unsafe.Pointer, keep bool) []byte {
	switch f.kind {
	case text:
		if s := *(*string)(p); s != "" || keep {
			b = e.text(b, f, tag, s)
		}
		return b
	case data:
		if s := *(*[]byte)(p); len(s) != 0 || keep {
			b = append(wire.AppendVarint(appendTag(b, tag), uint64(len(s))), s...)
		}
		return b
	case messages:
		b, start := begin(b, tag)
		return wire.EndMessage(e.message(b, f.message, p), start)
	case objectPointers:
		return e.object(b, f, tag, *(*unsafe.Pointer)(p), keep)
	case values:
		return e.kubernetes(b, f, tag, p)
	case times:
		return e.time(b, f, tag, (*metav1.Time)(p).Time)
	case durations:
		d := (*metav1.Duration)(p).Duration
		return appendPair(b, tag, int64(d/time.Second), int64(d%time.Second))
	}
	n := f.bits(p)
	if n == 0 && !keep {
		return b
	}
	return f.appendNumber(appendTag(b, tag), n)
}

func (e *encoder) object(b []byte, f *field, tag uint64, p unsafe.Pointer, keep bool) []byte {
	var ref abi.Ref
	if p == nil {
		if !keep {
			return b
		}
	} else {
		var err error
		if ref, err = e.refs.Ref(f.of.Elem(), p); err != nil {
			e.fail(f, err)
			return b
		}
	}
	return protowire.AppendFixed64(appendTag(b, tag), uint64(ref))
}

// kubernetes appends a message of Kubernetes that is no object. It encodes a copy, since the code
// of Kubernetes may change the message: a quantity keeps its text.
func (e *encoder) kubernetes(b []byte, f *field, tag uint64, p unsafe.Pointer) []byte {
	v := reflect.NewAt(f.of, p)
	if deep := v.MethodByName("DeepCopy"); deep.IsValid() {
		if v = deep.Call(nil)[0]; v.Kind() != reflect.Pointer {
			at := reflect.New(f.of) // That of a Quantity is a value.
			at.Elem().Set(v)
			v = at
		}
	}
	encoded, err := v.Interface().(value).Marshal()
	if err != nil {
		e.fail(f, err)
		return b
	}
	return append(wire.AppendVarint(appendTag(b, tag), uint64(len(encoded))), encoded...)
}

func (e *encoder) text(b []byte, f *field, tag uint64, s string) []byte {
	if n := len(s); 8 <= n && n <= 16 && tag < 0x80 { // As most names are: two words, which overlap.
		first, last := (*[8]byte)(unsafe.Pointer(unsafe.StringData(s))), (*[8]byte)(unsafe.Add(unsafe.Pointer(unsafe.StringData(s)), n-8))
		const high = 0x8080808080808080
		if start := len(b); start+18 <= cap(b) && (binary.NativeEndian.Uint64(first[:])|binary.NativeEndian.Uint64(last[:]))&high == 0 {
			b = b[:start+18]
			b[start], b[start+1] = byte(tag), byte(n)
			*(*[8]byte)(b[start+2:]) = *first
			*(*[8]byte)(b[start+n-6:]) = *last
			return b[:start+2+n]
		}
	}
	if n := len(s); 4 <= n && n < 8 && tag < 0x80 { // As many keys are.
		first, last := (*[4]byte)(unsafe.Pointer(unsafe.StringData(s))), (*[4]byte)(unsafe.Add(unsafe.Pointer(unsafe.StringData(s)), n-4))
		const high = 0x80808080
		if start := len(b); start+9 <= cap(b) && (binary.NativeEndian.Uint32(first[:])|binary.NativeEndian.Uint32(last[:]))&high == 0 {
			b = b[:start+9]
			b[start], b[start+1] = byte(tag), byte(n)
			*(*[4]byte)(b[start+2:]) = *first
			*(*[4]byte)(b[start+n-2:]) = *last
			return b[:start+2+n]
		}
	}
	if !utf8.ValidString(s) {
		e.fail(f, errText)
	}
	if tag < 0x80 && len(s) < 0x80 { // As nearly all are.
		b = append(b, byte(tag), byte(len(s)))
	} else {
		b = wire.AppendVarint(appendTag(b, tag), uint64(len(s)))
	}
	return append(b, s...)
}

// tagOf returns the tag of a field.
func tagOf(number uint32, typ protowire.Type) uint64 { return uint64(number)<<3 | uint64(typ) }

func appendTag(b []byte, tag uint64) []byte {
	if tag < 0x80 {
		return append(b, byte(tag))
	}
	return appendLongTag(b, tag)
}

func appendLongTag(b []byte, tag uint64) []byte {
	if tag < 1<<14 {
		return append(b, byte(tag)|0x80, byte(tag>>7))
	}
	return wire.AppendVarint(b, tag)
}

// bits returns the number at p in the form of a varint.
func (f *field) bits(p unsafe.Pointer) uint64 {
	switch f.kind {
	case flag:
		return uint64(*(*byte)(p)) // 0 or 1.
	case int32s:
		return uint64(*(*int32)(p))
	case uint32s:
		return uint64(*(*uint32)(p))
	}
	return *(*uint64)(p)
}

func (f *field) appendNumber(b []byte, n uint64) []byte {
	switch f.wire {
	case zigzag:
		n = protowire.EncodeZigZag(int64(n))
	case fixed32:
		return protowire.AppendFixed32(b, uint32(n))
	case fixed64:
		return protowire.AppendFixed64(b, n)
	}
	return wire.AppendVarint(b, n)
}
