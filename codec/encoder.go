package codec

import (
	"cmp"
	"fmt"
	"math/bits"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// encoder appends a value in protobuf. It reads the value where it lies and makes
// no copy of it; v is addressable.
type encoder func(b []byte, v reflect.Value) ([]byte, error)

// message returns the encoder of those fields of t, a struct, that the tree has,
// in the order of their numbers. Below a field that is there as a whole the generated code of k8s.io/api
// encodes.
//
// A string or a number that is named and empty is left out, which the generated
// code does not do: it reads the same.
func (tr *tree) message(t reflect.Type) encoder {
	if tr.whole {
		return marshalMessage
	}
	type part struct {
		number uint64
		index  int
		encode encoder
	}
	var parts []part
	for i, f := range tr.byStructField() {
		number := fieldNumber(t.Field(i))
		parts = append(parts, part{number, i, f.field(number, t.Field(i).Type, f.generated)})
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.number, b.number) })
	return func(b []byte, v reflect.Value) ([]byte, error) {
		var err error
		for i := range parts {
			if b, err = parts[i].encode(b, v.Field(parts[i].index)); err != nil {
				return nil, err
			}
		}
		return b, nil
	}
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

// field returns the encoder of a field or of one of its elements, which is there
// even if it is empty.
func (tr *tree) field(number uint64, t reflect.Type, element bool) encoder {
	key := number<<3 | bytesType
	switch t.Kind() {
	case reflect.Pointer:
		value := tr.field(number, t.Elem(), true)
		return func(b []byte, v reflect.Value) ([]byte, error) {
			if v.IsNil() {
				return b, nil
			}
			return value(b, v.Elem())
		}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			break
		}
		value := tr.field(number, t.Elem(), true)
		return func(b []byte, v reflect.Value) (_ []byte, err error) {
			for i := range v.Len() {
				if b, err = value(b, v.Index(i)); err != nil {
					return nil, err
				}
			}
			return b, nil
		}
	case reflect.Map:
		return tr.mapOf(key, t)
	case reflect.Struct:
		message := tr.message(t)
		return func(b []byte, v reflect.Value) ([]byte, error) {
			b = appendVarint(b, key)
			start := len(b)
			b, err := message(b, v)
			if err != nil {
				return nil, err
			}
			return insertLength(b, start), nil
		}
	case reflect.String:
		return func(b []byte, v reflect.Value) ([]byte, error) {
			s := v.String()
			if s == "" && !element {
				return b, nil
			}
			return append(appendVarint(appendVarint(b, key), uint64(len(s))), s...), nil
		}
	case reflect.Bool:
		key = number<<3 | varintType
		return func(b []byte, v reflect.Value) ([]byte, error) {
			if v.Bool() {
				return append(appendVarint(b, key), 1), nil
			}
			if !element {
				return b, nil
			}
			return append(appendVarint(b, key), 0), nil
		}
	case reflect.Int32, reflect.Int64:
		key = number<<3 | varintType
		return func(b []byte, v reflect.Value) ([]byte, error) {
			n := v.Int()
			if n == 0 && !element {
				return b, nil
			}
			return appendVarint(appendVarint(b, key), uint64(n)), nil
		}
	}
	panic(fmt.Sprintf("codec: no encoder of %s", t)) // TestEveryFieldHasAnEncoder
}

// mapOf returns the encoder of a map with strings as keys, in their order, so that
// equal maps have equal bytes.
func (tr *tree) mapOf(key uint64, t reflect.Type) encoder {
	entry := func(b []byte, k string, value func([]byte) ([]byte, error)) ([]byte, error) {
		b = appendVarint(b, key)
		start := len(b)
		b = append(appendVarint(append(b, 1<<3|bytesType), uint64(len(k))), k...)
		b, err := value(b)
		if err != nil {
			return nil, err
		}
		return insertLength(b, start), nil
	}
	if t == reflect.TypeFor[map[string]string]() {
		m := &stringMap{key: key, whole: tr.whole, entries: slices.Compact(slices.Sorted(slices.Values(tr.entries)))}
		return m.encode
	}
	value := (&tree{whole: true}).field(2, t.Elem(), true)
	return func(b []byte, v reflect.Value) (_ []byte, err error) {
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, k := range keys {
			if !tr.hasEntry(k.String()) {
				continue
			}
			// An element of a map has no address.
			e := reflect.New(t.Elem()).Elem()
			e.Set(v.MapIndex(k))
			if b, err = entry(b, k.String(), func(b []byte) ([]byte, error) { return value(b, e) }); err != nil {
				return nil, err
			}
		}
		return b, nil
	}
}

// hasEntry reports whether the entry of a map travels.
func (tr *tree) hasEntry(key string) bool {
	return tr.whole || slices.Contains(tr.entries, key)
}

// stringMap encodes maps such as labels.
type stringMap struct {
	key uint64
	// entries are the keys that travel, sorted, unless all do.
	whole   bool
	entries []string
	// order is the keys of the last map, sorted. The Nodes of a cluster have the
	// same labels, for the most part, and to look 23 keys up takes a third of
	// the time that it takes to sort them.
	order atomic.Pointer[[]string]
}

func (s *stringMap) encode(b []byte, v reflect.Value) ([]byte, error) {
	m := *v.Addr().Interface().(*map[string]string)
	if len(m) == 0 {
		return b, nil
	}
	if !s.whole {
		for _, k := range s.entries {
			if value, ok := m[k]; ok {
				b = s.append(b, k, value)
			}
		}
		return b, nil
	}
	if order := s.order.Load(); order != nil && len(*order) == len(m) {
		if all, ok := s.inOrder(b, m, *order); ok {
			return all, nil
		}
	}
	order := make([]string, 0, len(m))
	for k := range m {
		order = append(order, k)
	}
	slices.Sort(order)
	b, _ = s.inOrder(b, m, order)
	s.order.Store(&order)
	return b, nil
}

// inOrder appends the entries of m if order is its keys.
func (s *stringMap) inOrder(b []byte, m map[string]string, order []string) (all []byte, ok bool) {
	for _, k := range order {
		value, ok := m[k]
		if !ok {
			return nil, false
		}
		b = s.append(b, k, value)
	}
	return b, true
}

func (s *stringMap) append(b []byte, k, value string) []byte {
	n := 2 + varintSize(uint64(len(k))) + len(k) + varintSize(uint64(len(value))) + len(value)
	b = appendVarint(appendVarint(b, s.key), uint64(n))
	b = append(appendVarint(append(b, 1<<3|bytesType), uint64(len(k))), k...)
	return append(appendVarint(append(b, 2<<3|bytesType), uint64(len(value))), value...)
}

// marshalMessage encodes a message by its own code.
func marshalMessage(b []byte, v reflect.Value) ([]byte, error) {
	m := v.Addr().Interface().(message)
	size := m.Size()
	b = slices.Grow(b, size)
	n, err := m.MarshalToSizedBuffer(b[len(b) : len(b)+size])
	if err != nil {
		return nil, err
	}
	if n != size {
		copy(b[len(b):], b[len(b)+size-n:len(b)+size])
	}
	return b[:len(b)+n], nil
}

// insertLength puts the length of the message that begins at start before it.
func insertLength(b []byte, start int) []byte {
	n := len(b) - start
	size := varintSize(uint64(n))
	var room [10]byte
	b = append(b, room[:size]...)
	copy(b[start+size:], b[start:start+n])
	appendVarint(b[:start], uint64(n))
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
