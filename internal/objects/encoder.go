package objects

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// encoder appends the fields of a struct that travel, in protobuf and in the order
// of their numbers.
//
// It is a list that one loop reads, made once of the struct's tags, and it finds
// the fields by their offsets. Package reflect, which finds them too, takes longer
// for the way to a field than writing it takes; the code that is generated for
// k8s.io/api asks for the size of each message first, and then again for that of
// those within.
type encoder []fieldEncoder

// fieldEncoder appends a field.
type fieldEncoder struct {
	offset uintptr
	number uint64
	holds  holding
	kind   kind
	// empty says that a value is written even if it is empty, as the generated
	// code does.
	empty bool
	// size is that of an element of a list.
	size uintptr
	// message encodes what is a struct.
	message encoder
	// by encodes what is anything else.
	by func(b []byte, p unsafe.Pointer) ([]byte, error)
	// strings is what by encodes if it is a map of strings.
	strings *stringMap
}

// holding is what a field has of values.
type holding uint8

const (
	one holding = iota
	// maybe is one or none: a pointer.
	maybe
	// list is any number: a slice.
	list
)

// kind is how a value is encoded.
type kind uint8

const (
	text kind = iota
	flag
	int32s
	int64s
	submessage
	other
)

// append appends the fields of the struct at p.
func (e encoder) append(b []byte, p unsafe.Pointer) (_ []byte, err error) {
	for i := range e {
		f := &e[i]
		at := unsafe.Add(p, f.offset)
		switch f.holds {
		case maybe:
			if at = *(*unsafe.Pointer)(at); at == nil {
				continue
			}
		case list:
			// The head of a slice is the same whatever its elements are.
			elements := *(*[]struct{})(at)
			first := unsafe.Pointer(unsafe.SliceData(elements))
			for i := range uintptr(len(elements)) {
				if b, err = f.append(b, unsafe.Add(first, i*f.size)); err != nil {
					return nil, err
				}
			}
			continue
		}
		if b, err = f.append(b, at); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// append appends the value at p.
func (f *fieldEncoder) append(b []byte, p unsafe.Pointer) ([]byte, error) {
	switch f.kind {
	case text:
		s := *(*string)(p)
		if s == "" && !f.empty {
			return b, nil
		}
		return appendText(b, f.number, s), nil
	case submessage:
		b = append(appendVarint(b, f.number<<3|bytesType), 0)
		start := len(b)
		b, err := f.message.append(b, p)
		if err != nil {
			return nil, err
		}
		return endMessage(b, start), nil
	case other:
		return f.by(b, p)
	}
	var n uint64
	switch f.kind {
	case flag:
		if *(*bool)(p) {
			n = 1
		}
	case int32s:
		n = uint64(*(*int32)(p))
	case int64s:
		n = uint64(*(*int64)(p))
	}
	if n == 0 && !f.empty {
		return b, nil
	}
	return appendVarint(appendVarint(b, f.number<<3|varintType), n), nil
}

// equal reports whether the encodings of the structs at p and q are the same.
func (e encoder) equal(p, q unsafe.Pointer) bool {
	for i := range e {
		if f := &e[i]; !f.equal(unsafe.Add(p, f.offset), unsafe.Add(q, f.offset)) {
			return false
		}
	}
	return true
}

func (f *fieldEncoder) equal(p, q unsafe.Pointer) bool {
	switch f.holds {
	case maybe:
		p, q = *(*unsafe.Pointer)(p), *(*unsafe.Pointer)(q)
		return p == q || p != nil && q != nil && f.equalValues(p, q)
	case list:
		// The head of a slice is the same whatever its elements are.
		a, b := *(*[]struct{})(p), *(*[]struct{})(q)
		if len(a) != len(b) {
			return false
		}
		p, q = unsafe.Pointer(unsafe.SliceData(a)), unsafe.Pointer(unsafe.SliceData(b))
		for i := range uintptr(len(a)) {
			if !f.equalValues(unsafe.Add(p, i*f.size), unsafe.Add(q, i*f.size)) {
				return false
			}
		}
		return true
	}
	return f.equalValues(p, q)
}

func (f *fieldEncoder) equalValues(p, q unsafe.Pointer) bool {
	switch f.kind {
	case text:
		return *(*string)(p) == *(*string)(q)
	case flag:
		return *(*bool)(p) == *(*bool)(q)
	case int32s:
		return *(*int32)(p) == *(*int32)(q)
	case int64s:
		return *(*int64)(p) == *(*int64)(q)
	case submessage:
		return f.message.equal(p, q)
	}
	if f.strings != nil {
		return f.strings.equal(*(*map[string]string)(p), *(*map[string]string)(q))
	}
	a, err := f.by(nil, p)
	b, err2 := f.by(nil, q)
	return err == nil && err2 == nil && bytes.Equal(a, b)
}

// encoder returns the encoder of those fields of t, a struct, that the tree has.
//
// A string or a number that is named and empty is left out, which the generated
// code does not do: it reads the same.
func (tr *tree) encoder(t reflect.Type) encoder {
	if tr.whole {
		return wholeEncoder(t)
	}
	var e encoder
	for i, f := range tr.byStructField() {
		e = append(e, f.field(t.Field(i)))
	}
	return e.sorted()
}

// wholeEncoders holds what wholeEncoder made.
var wholeEncoders sync.Map

// wholeEncoder returns the encoder of a struct that makes the bytes that the
// generated code makes: TestEverythingIsWhatKubernetesWrites.
func wholeEncoder(t reflect.Type) encoder {
	if e, ok := wholeEncoders.Load(t); ok {
		return e.(encoder)
	}
	var e encoder
	for i := range t.NumField() {
		if f := t.Field(i); f.Tag.Get("protobuf") != "" {
			e = append(e, (&tree{whole: true, generated: true}).field(f))
		}
	}
	e = e.sorted()
	wholeEncoders.Store(t, e)
	return e
}

func (e encoder) sorted() encoder {
	slices.SortFunc(e, func(a, b fieldEncoder) int { return cmp.Compare(a.number, b.number) })
	return e
}

// byStructField returns what the tree has of each field of the struct. In Go some
// structs are embedded whose fields stand beside the others in JSON; in protobuf
// they are messages like any others.
func (tr *tree) byStructField() map[int]*tree {
	fields := map[int]*tree{}
	for _, f := range tr.fields {
		if len(f.index) == 1 {
			fields[f.index[0]] = f.tree
			continue
		}
		embedded := fields[f.index[0]]
		if embedded == nil {
			embedded = &tree{}
			fields[f.index[0]] = embedded
		}
		embedded.fields = append(embedded.fields, field{f.index[1:], f.tree})
	}
	return fields
}

// ofObject returns the tree by the fields of an object: those of its metadata too,
// without managedFields, if all of them travel.
func (tr *tree) ofObject(object reflect.Type) *tree {
	if tr == nil || tr.whole {
		tr = everythingOf(object)
	}
	fields := slices.Clone(tr.fields)
	for i := range fields {
		f := &fields[i]
		if t := object.FieldByIndex(f.index).Type; f.tree.whole && t == reflect.TypeFor[metav1.ObjectMeta]() {
			f.tree = everythingOf(t)
		}
	}
	return &tree{fields: fields}
}

// everythingOf returns the tree of all fields that travel, in the bytes that the
// generated code makes.
func everythingOf(t reflect.Type) *tree {
	tr := &tree{}
	each(t, func(name string, index []int, _ reflect.Type) {
		if name != managedFields {
			tr.fields = append(tr.fields, field{index, &tree{whole: true, generated: true}})
		}
	})
	return tr
}

// fieldNumber returns the number of a field in protobuf, which its tag tells. The
// wire type there is not always right.
func fieldNumber(f reflect.StructField) uint64 {
	text := strings.Split(f.Tag.Get("protobuf"), ",")
	number, err := strconv.ParseUint(text[min(1, len(text)-1)], 10, 29)
	if err != nil {
		panic(fmt.Sprintf("codec: field %s: %v", f.Name, err)) // They are generated.
	}
	return number
}

const (
	varintType = 0
	bytesType  = 2
)

// field returns the encoder of a field.
func (tr *tree) field(f reflect.StructField) fieldEncoder {
	e := tr.value(fieldNumber(f), f.Type)
	e.offset = f.Offset
	e.empty = e.empty || tr.generated
	return e
}

// value returns the encoder of a value of the type t.
func (tr *tree) value(number uint64, t reflect.Type) fieldEncoder {
	e := fieldEncoder{number: number, kind: other}
	switch {
	case t == reflect.TypeFor[resource.Quantity]():
		e.by = func(b []byte, p unsafe.Pointer) ([]byte, error) {
			return appendQuantity(b, number, *(*resource.Quantity)(p)), nil
		}
		return e
	case t == reflect.TypeFor[metav1.Time]():
		e.by = func(b []byte, p unsafe.Pointer) ([]byte, error) { return appendTime(b, number, (*metav1.Time)(p)), nil }
		return e
	case t.Kind() != reflect.Pointer && reflect.PointerTo(t).Implements(reflect.TypeFor[message]()) && !nested(t):
		e.by = func(b []byte, p unsafe.Pointer) ([]byte, error) {
			return appendGenerated(b, number, reflect.NewAt(t, p).Interface().(message))
		}
		return e
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		if t == reflect.TypeFor[[]byte]() {
			break
		}
		e = tr.value(number, t.Elem())
		if e.holds != one {
			break
		}
		// A pointer to an empty value says that it is empty.
		e.holds, e.empty, e.size = maybe, true, t.Elem().Size()
		if t.Kind() == reflect.Slice {
			e.holds = list
		}
		return e
	case reflect.Map:
		if t == reflect.TypeFor[map[string]string]() {
			e.strings = tr.stringMap(number)
			e.by = func(b []byte, p unsafe.Pointer) ([]byte, error) {
				return e.strings.append(b, *(*map[string]string)(p)), nil
			}
			return e
		}
		e.by = tr.mapOf(number, t)
		return e
	case reflect.Struct:
		e.kind, e.message = submessage, tr.encoder(t)
		return e
	case reflect.String:
		e.kind = text
		return e
	case reflect.Bool:
		e.kind = flag
		return e
	case reflect.Int32:
		e.kind = int32s
		return e
	case reflect.Int64:
		e.kind = int64s
		return e
	}
	panic(fmt.Sprintf("codec: no encoder of %s", t)) // TestEveryFieldHasAnEncoder
}

// mapOf returns the encoder of a map with strings as keys, in their order, so that
// equal maps have equal bytes.
func (tr *tree) mapOf(number uint64, t reflect.Type) func([]byte, unsafe.Pointer) ([]byte, error) {
	if t == reflect.TypeFor[corev1.ResourceList]() {
		return func(b []byte, p unsafe.Pointer) ([]byte, error) {
			return tr.appendResources(b, number, *(*corev1.ResourceList)(p)), nil
		}
	}
	value := (&tree{whole: true}).value(2, t.Elem())
	value.empty = true
	return func(b []byte, p unsafe.Pointer) (_ []byte, err error) {
		m := reflect.NewAt(t, p).Elem()
		keys := m.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, k := range keys {
			if !tr.hasEntry(k.String()) {
				continue
			}
			// An element of a map has no address.
			e := reflect.New(t.Elem())
			e.Elem().Set(m.MapIndex(k))
			b = append(appendVarint(b, number<<3|bytesType), 0)
			start := len(b)
			if b, err = value.append(appendText(b, 1, k.String()), e.UnsafePointer()); err != nil {
				return nil, err
			}
			b = endMessage(b, start)
		}
		return b, nil
	}
}

// appendResources appends a map of quantities.
func (tr *tree) appendResources(b []byte, number uint64, resources corev1.ResourceList) []byte {
	var room [8]corev1.ResourceName
	names := room[:0]
	for name := range resources {
		if tr.hasEntry(string(name)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		b = append(appendVarint(b, number<<3|bytesType), 0)
		start := len(b)
		b = endMessage(appendQuantity(appendText(b, 1, string(name)), 2, resources[name]), start)
	}
	return b
}

// hasEntry reports whether the entry of a map travels.
func (tr *tree) hasEntry(key string) bool {
	return tr.whole || slices.Contains(tr.entries, key)
}

func (tr *tree) stringMap(number uint64) *stringMap {
	return &stringMap{number: number, whole: tr.whole, entries: slices.Compact(slices.Sorted(slices.Values(tr.entries)))}
}

// stringMap encodes maps such as labels.
type stringMap struct {
	number uint64
	// entries are the keys that travel, sorted, unless all do.
	whole   bool
	entries []string
	// order is the keys of the last map, sorted. The Nodes of a cluster have the
	// same labels, for the most part, and to look 23 keys up takes a third of
	// the time that it takes to sort them.
	order atomic.Pointer[[]string]
}

// value returns the value of a key that travels.
func (s *stringMap) value(m map[string]string, key string) (value string, ok bool) {
	if s == nil || !s.whole && !slices.Contains(s.entries, key) {
		return "", false
	}
	value, ok = m[key]
	return value, ok
}

// equal reports whether the same of both travels.
func (s *stringMap) equal(m, n map[string]string) bool {
	if s.whole {
		return maps.Equal(m, n)
	}
	for _, k := range s.entries {
		v, ok := m[k]
		if w, okToo := n[k]; v != w || ok != okToo {
			return false
		}
	}
	return true
}

func (s *stringMap) append(b []byte, m map[string]string) []byte {
	if len(m) == 0 {
		return b
	}
	if !s.whole {
		for _, k := range s.entries {
			if value, ok := m[k]; ok {
				b = s.appendEntry(b, k, value)
			}
		}
		return b
	}
	if order := s.order.Load(); order != nil && len(*order) == len(m) {
		if all, ok := s.inOrder(b, m, *order); ok {
			return all
		}
	}
	order := make([]string, 0, len(m))
	for k := range m {
		order = append(order, k)
	}
	slices.Sort(order)
	b, _ = s.inOrder(b, m, order)
	s.order.Store(&order)
	return b
}

// inOrder appends the entries of m if order is its keys.
func (s *stringMap) inOrder(b []byte, m map[string]string, order []string) (all []byte, ok bool) {
	for _, k := range order {
		value, ok := m[k]
		if !ok {
			return nil, false
		}
		b = s.appendEntry(b, k, value)
	}
	return b, true
}

func (s *stringMap) appendEntry(b []byte, k, value string) []byte {
	n := 2 + varintSize(uint64(len(k))) + len(k) + varintSize(uint64(len(value))) + len(value)
	b = appendVarint(appendVarint(b, s.number<<3|bytesType), uint64(n))
	return appendText(appendText(b, 1, k), 2, value)
}

// appendTime appends a time as the generated code does: in seconds, and nothing
// for the zero time.
func appendTime(b []byte, number uint64, t *metav1.Time) []byte {
	b = append(appendVarint(b, number<<3|bytesType), 0)
	start := len(b)
	if !t.IsZero() {
		const nanos = 2<<3 | varintType
		b = append(appendVarint(append(b, 1<<3|varintType), uint64(t.Unix())), nanos, 0)
	}
	return endMessage(b, start)
}

// appendQuantity appends a quantity as its own code does. It is a copy, since String
// keeps the text in it, and others may read the object or encode it meanwhile.
func appendQuantity(b []byte, number uint64, q resource.Quantity) []byte {
	b = append(appendVarint(b, number<<3|bytesType), 0)
	start := len(b)
	return endMessage(appendText(b, 1, q.String()), start)
}

// appendGenerated appends a message that has code of its own.
func appendGenerated(b []byte, number uint64, m message) ([]byte, error) {
	size := m.Size()
	b = appendVarint(appendVarint(b, number<<3|bytesType), uint64(size))
	b = slices.Grow(b, size)
	n, err := m.MarshalToSizedBuffer(b[len(b) : len(b)+size])
	if err != nil {
		return nil, err
	}
	if n != size {
		return nil, fmt.Errorf("%T has %d bytes instead of %d", m, n, size)
	}
	return b[:len(b)+n], nil
}

func appendText(b []byte, number uint64, s string) []byte {
	return append(appendVarint(appendVarint(b, number<<3|bytesType), uint64(len(s))), s...)
}

// endMessage writes the length of the message that begins at start into the byte
// before it, and into more if it takes more.
func endMessage(b []byte, start int) []byte {
	n := len(b) - start
	if n < 0x80 {
		b[start-1] = byte(n)
		return b
	}
	more := varintSize(uint64(n)) - 1
	var room [9]byte
	b = append(b, room[:more]...)
	copy(b[start+more:], b[start:start+n])
	appendVarint(b[:start-1], uint64(n))
	return b
}

func appendVarint(b []byte, n uint64) []byte {
	for n >= 0x80 {
		b = append(b, byte(n)|0x80)
		n >>= 7
	}
	return append(b, byte(n))
}

func varintSize(n uint64) int { return (bits.Len64(n|1) + 6) / 7 }
