package objects

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/wire"
)

// Encoder encodes some fields of objects of a kind: [corev1.Pod] or [corev1.Node]. It does
// not change, and is safe for use by several goroutines. No object is changed.
type Encoder[T any] struct {
	fields encoder
	// labels and annotations are their places in an object, with their encoders.
	labels, annotations *mapAt
}

// mapAt is a map of strings in an object.
type mapAt struct {
	offset uintptr
	*stringMap
}

// The metadata of an object, by the number of its field, and the numbers of its fields that
// are maps of strings.
const (
	MetadataPart     = 1
	LabelsField      = 11
	AnnotationsField = 12
)

func newEncoder[T any](fields encoder) *Encoder[T] {
	e := &Encoder[T]{fields: fields}
	for i := range fields {
		if fields[i].number != MetadataPart {
			continue
		}
		for _, f := range fields[i].message {
			at := &mapAt{fields[i].offset + f.offset, f.strings}
			switch f.number {
			case LabelsField:
				e.labels = at
			case AnnotationsField:
				e.annotations = at
			}
		}
	}
	return e
}

// Append appends the fields of an object.
func (e *Encoder[T]) Append(b []byte, of *T) []byte { return e.fields.append(b, unsafe.Pointer(of)) }

// AppendPart appends the message in a field of an object, nothing if that is not there. In a
// Pod and a Node, metadata is 1, spec 2 and status 3. mask selects the fields of the message:
// bit n is field number n. Numbers above 63 are selected only by [abi.AllFields].
func (e *Encoder[T]) AppendPart(b []byte, of *T, part uint32, mask uint64) []byte {
	for i := range e.fields {
		f := &e.fields[i]
		if f.number != protowire.Number(part) || f.kind != submessage || f.holds != one {
			continue
		}
		at := unsafe.Add(unsafe.Pointer(of), f.offset)
		for i := range f.message {
			if only := f.message[i : i+1]; has(mask, only[0].number) {
				b = only.append(b, at)
			}
		}
	}
	return b
}

// has reports whether a mask selects a field.
func has(mask uint64, number protowire.Number) bool {
	return mask == abi.AllFields || number < 64 && mask>>number&1 != 0
}

// Entry returns the value of a key in the labels or the annotations of an object, by the
// number of the field. Other fields have no entries. The key is not kept.
func (e *Encoder[T]) Entry(of *T, field uint32, key string) (value string, ok bool) {
	m := e.labels
	switch field {
	case LabelsField:
	case AnnotationsField:
		m = e.annotations
	default:
		return "", false
	}
	if m == nil {
		return "", false
	}
	if !m.whole && !slices.Contains(m.entries, key) {
		return "", false
	}
	value, ok = (*(*map[string]string)(unsafe.Add(unsafe.Pointer(of), m.offset)))[key]
	return value, ok
}

// EntryKey is a key of the labels or the annotations, by the number of the field.
type EntryKey struct {
	Field uint32
	Key   string
}

// Only returns the Encoder of those fields of e that masks select, by the numbers of their
// parts, and of entries of labels and annotations, where these are not selected whole.
func (e *Encoder[T]) Only(masks []uint64, entries []EntryKey) *Encoder[T] {
	var fields encoder
	for _, part := range e.fields {
		var mask uint64
		if int(part.number) < len(masks) {
			mask = masks[part.number]
		}
		var message encoder
		for _, f := range part.message {
			if has(mask, f.number) {
				message = append(message, f)
			} else if part.number == MetadataPart && f.strings != nil {
				if f.strings = f.strings.only(entries); len(f.strings.entries) != 0 {
					message = append(message, f)
				}
			}
		}
		if len(message) != 0 {
			part.message = message
			fields = append(fields, part)
		}
	}
	return newEncoder[T](fields)
}

// encoder appends the fields of a struct that travel, in protobuf and in the order
// of their numbers.
//
// It is a list that one loop reads, made once from the struct's tags, and it finds the fields by
// their offsets. Package reflect, which finds them too, takes longer for the way to a field than
// writing it takes; the code that is generated for k8s.io/api asks for the size of each message
// first, and then again for that of those within.
type encoder []fieldEncoder

// fieldEncoder appends a field.
type fieldEncoder struct {
	offset uintptr
	number protowire.Number
	holds  holding
	kind   valueKind
	// empty is set if a value is written even if it is empty, as the generated
	// code does.
	empty bool
	// size is that of an element of a list.
	size uintptr
	// message encodes a struct.
	message encoder
	// strings encodes a map of strings, and by anything else.
	strings *stringMap
	by      func(b []byte, p unsafe.Pointer) []byte
}

// holding is the arrangement of a field's values.
type holding uint8

const (
	one holding = iota
	// maybe is one or none: a pointer.
	maybe
	// list is any number: a slice.
	list
)

// valueKind is the encoding of a value.
type valueKind uint8

const (
	text valueKind = iota
	flag
	int32s
	int64s
	submessage
	stringMaps
	other
)

// append appends the fields of the struct at p.
func (e encoder) append(b []byte, p unsafe.Pointer) []byte {
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
				b = f.append(b, unsafe.Add(first, i*f.size))
			}
			continue
		}
		b = f.append(b, at)
	}
	return b
}

// append appends the value at p.
func (f *fieldEncoder) append(b []byte, p unsafe.Pointer) []byte {
	switch f.kind {
	case text:
		s := *(*string)(p)
		if s == "" && !f.empty {
			return b
		}
		return wire.AppendItem(b, f.number, s)
	case submessage:
		b, start := wire.BeginMessage(b, f.number)
		return wire.EndMessage(f.message.append(b, p), start)
	case stringMaps:
		return f.strings.append(b, *(*map[string]string)(p))
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
		return b
	}
	return wire.AppendVarint(wire.AppendTag(b, f.number, protowire.VarintType), n)
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

// wholeEncoders holds the results of wholeEncoder.
var wholeEncoders sync.Map

// wholeEncoder returns the encoder of a struct whose output equals that of the generated code:
// TestEverythingIsWhatKubernetesWrites.
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

// byStructField returns the part of the tree for each field of the struct. Some structs are
// embedded in Go, with their fields among the others in JSON; in protobuf they are messages like
// any others.
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

// everythingOf returns the tree of all fields that travel, encoded as by the generated code.
func everythingOf(t reflect.Type) *tree {
	tr := &tree{}
	each(t, func(name string, index []int, _ reflect.Type) {
		if name != managedFields {
			tr.fields = append(tr.fields, field{index, &tree{whole: true, generated: true}})
		}
	})
	return tr
}

// fieldNumber returns the number of a field in protobuf, from its tag. The wire type there is not
// always right.
func fieldNumber(f reflect.StructField) protowire.Number {
	text := strings.Split(f.Tag.Get("protobuf"), ",")
	number, err := strconv.ParseUint(text[min(1, len(text)-1)], 10, 29)
	if err != nil {
		panic(fmt.Sprintf("codec: field %s: %v", f.Name, err)) // They are generated.
	}
	return protowire.Number(number)
}

// field returns the encoder of a field.
func (tr *tree) field(f reflect.StructField) fieldEncoder {
	e := tr.value(fieldNumber(f), f.Type)
	e.offset = f.Offset
	e.empty = e.empty || tr.generated
	return e
}

// value returns the encoder of a value of the type t.
func (tr *tree) value(number protowire.Number, t reflect.Type) fieldEncoder {
	e := fieldEncoder{number: number, kind: other}
	switch {
	case t == reflect.TypeFor[resource.Quantity]():
		e.by = func(b []byte, p unsafe.Pointer) []byte { return appendQuantity(b, number, *(*resource.Quantity)(p)) }
		return e
	case t == reflect.TypeFor[metav1.Time]():
		e.by = func(b []byte, p unsafe.Pointer) []byte { return appendTime(b, number, (*metav1.Time)(p)) }
		return e
	case t.Kind() != reflect.Pointer && reflect.PointerTo(t).Implements(reflect.TypeFor[message]()) && !nested(t):
		e.by = func(b []byte, p unsafe.Pointer) []byte {
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
		// A pointer to an empty value is not the same as no pointer.
		e.holds, e.empty, e.size = maybe, true, t.Elem().Size()
		if t.Kind() == reflect.Slice {
			e.holds = list
		}
		return e
	case reflect.Map:
		if t == reflect.TypeFor[map[string]string]() {
			e.kind, e.strings = stringMaps, tr.stringMap(number)
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
func (tr *tree) mapOf(number protowire.Number, t reflect.Type) func([]byte, unsafe.Pointer) []byte {
	if t == reflect.TypeFor[corev1.ResourceList]() {
		return func(b []byte, p unsafe.Pointer) []byte {
			return tr.appendResources(b, number, *(*corev1.ResourceList)(p))
		}
	}
	value := (&tree{whole: true}).value(2, t.Elem())
	value.empty = true
	return func(b []byte, p unsafe.Pointer) []byte {
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
			entry, start := wire.BeginMessage(b, number)
			b = wire.EndMessage(value.append(wire.AppendItem(entry, 1, k.String()), e.UnsafePointer()), start)
		}
		return b
	}
}

// appendResources appends a map of quantities.
func (tr *tree) appendResources(b []byte, number protowire.Number, resources corev1.ResourceList) []byte {
	var room [8]corev1.ResourceName
	names := room[:0]
	for name := range resources {
		if tr.hasEntry(string(name)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		entry, start := wire.BeginMessage(b, number)
		b = wire.EndMessage(appendQuantity(wire.AppendItem(entry, 1, string(name)), 2, resources[name]), start)
	}
	return b
}

// hasEntry reports whether the entry of a map travels.
func (tr *tree) hasEntry(key string) bool {
	return tr.whole || slices.Contains(tr.entries, key)
}

func (tr *tree) stringMap(number protowire.Number) *stringMap {
	return &stringMap{number: number, whole: tr.whole, entries: slices.Compact(slices.Sorted(slices.Values(tr.entries)))}
}

// stringMap encodes maps such as labels.
type stringMap struct {
	number protowire.Number
	// entries are the keys that travel, sorted, unless all do.
	whole   bool
	entries []string
	// order is the keys of the last map, sorted. The Nodes of a cluster have the
	// same labels, for the most part, and to look 23 keys up takes a third of
	// the time that it takes to sort them.
	order atomic.Pointer[[]string]
}

// only returns the encoder of those of the entries that travel.
func (s *stringMap) only(entries []EntryKey) *stringMap {
	only := &stringMap{number: s.number}
	for _, e := range entries {
		if protowire.Number(e.Field) == s.number && (s.whole || slices.Contains(s.entries, e.Key)) {
			only.entries = append(only.entries, e.Key)
		}
	}
	slices.Sort(only.entries)
	return only
}

func (s *stringMap) append(b []byte, m map[string]string) []byte {
	if len(m) == 0 {
		return b
	}
	if !s.whole {
		for _, k := range s.entries {
			if value, ok := m[k]; ok {
				b = wire.AppendEntry(b, s.number, k, value)
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
		b = wire.AppendEntry(b, s.number, k, value)
	}
	return b, true
}

// appendTime appends a time as the generated code does: in seconds, and nothing
// for the zero time.
func appendTime(b []byte, number protowire.Number, t *metav1.Time) []byte {
	b, start := wire.BeginMessage(b, number)
	if !t.IsZero() {
		b = wire.AppendOptionalNumber(b, 1, new(t.Unix()))
		b = wire.AppendOptionalNumber(b, 2, new(int64(0)))
	}
	return wire.EndMessage(b, start)
}

// appendQuantity appends a quantity as its own code does. It is a copy, since String
// keeps the text in it, and others may read the object or encode it meanwhile.
func appendQuantity(b []byte, number protowire.Number, q resource.Quantity) []byte {
	b, start := wire.BeginMessage(b, number)
	return wire.EndMessage(wire.AppendItem(b, 1, q.String()), start)
}

// appendGenerated appends a message with generated code. It panics with the error
// of that code; none is known that fails.
func appendGenerated(b []byte, number protowire.Number, m message) []byte {
	size := m.Size()
	b = wire.AppendVarint(wire.AppendTag(b, number, protowire.BytesType), uint64(size))
	b = slices.Grow(b, size)
	n, err := m.MarshalToSizedBuffer(b[len(b) : len(b)+size])
	if err == nil && n != size {
		err = fmt.Errorf("%d bytes instead of %d", n, size)
	}
	if err != nil {
		panic(fmt.Errorf("codec: encode %T: %w", m, err))
	}
	return b[:len(b)+n]
}
