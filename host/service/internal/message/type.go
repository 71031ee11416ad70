// Package message encodes and decodes the messages of services: Go structs that kubewasm gen
// writes, whose tags define the encoding of their fields.
//
// The tag protobuf has the wire type and the number of a field: "varint,1", "zigzag,2",
// "fixed32,3", "fixed64,4", "bytes,5"; "object,6" for an object of Kubernetes; "timestamp,7" and
// "duration,8" for those messages of google.protobuf. After them "optional" stands for bytes that
// may be there and empty, and "oneof=NAME" for a field of a oneof. The tag protobuf_val has the wire type of the values of a map, whose keys are strings.
package message

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/internal/objects"
)

// Type describes the messages of a Go struct. It does not change.
type Type struct {
	of     reflect.Type
	fields []field // By their numbers.
	// index is the place of each field below 64 in fields, plus one.
	index [64]uint8
}

// Clear empties the struct at p.
func (m *Type) Clear(p unsafe.Pointer) { reflect.NewAt(m.of, p).Elem().SetZero() }

// field is a field of a message. The members that an encoder needs for each field, set or not, come
// first.
type field struct {
	// frequent is set for the fields that nearly all messages have and Append encodes by
	// itself.
	frequent frequent
	// tag is the tag of a single value or of an entry, offset the place of the field in the struct.
	tag    uint64
	offset uintptr
	// emptiness is the place in a sparse field of the word that is 0 if the field is empty.
	emptiness uintptr
	name      string
	number    uint32
	// wire is the wire type of a value, onWire protobuf's type for it, kind its form in memory.
	wire   wireType
	onWire protowire.Type
	kind   kind
	// optional is set for bytes that are there if the slice is not nil.
	optional bool
	// holds is the arrangement of the field's values.
	holds holding
	// of is the type of a value, of size bytes, whether the field holds one or many. goes is the
	// type of the field.
	of, goes reflect.Type
	size     uintptr
	// message is that of a value that is one.
	message *Type
	// oneof are the places of the fields of which only one is set.
	oneof []uint8
	// maps is the type of a map, if it is one that is walked without reflection.
	maps mapType
	// walks has memory for maps, each a *walk.
	walks *sync.Pool
}

// frequent marks a field for which an encoder seldom or never calls a function. All but sparse ones
// have one value, and a tag of at most two bytes.
type frequent uint8

const (
	otherField frequent = iota
	// sparseField is a pointer, a slice or a map, which most messages leave empty.
	sparseField
	textField
	numberField32 // A varint, extended by its sign.
	unsignedField32
	numberField64
	flagField
	doubleField
)

type holding uint8

const (
	one holding = iota
	// maybe is a pointer.
	maybe
	// list is a slice, entries a map with strings as keys.
	list
	entries
)

type mapType uint8

const (
	otherMap mapType = iota
	mapOfTexts
	mapOfInt32s
	mapOfUint32s
	mapOfInt64s
	mapOfUint64s
	mapOfFloat32s
	mapOfFloat64s
	mapOfBools
)

var mapTypes = map[reflect.Type]mapType{
	reflect.TypeFor[map[string]string]():  mapOfTexts,
	reflect.TypeFor[map[string]int32]():   mapOfInt32s,
	reflect.TypeFor[map[string]uint32]():  mapOfUint32s,
	reflect.TypeFor[map[string]int64]():   mapOfInt64s,
	reflect.TypeFor[map[string]uint64]():  mapOfUint64s,
	reflect.TypeFor[map[string]float32](): mapOfFloat32s,
	reflect.TypeFor[map[string]float64](): mapOfFloat64s,
	reflect.TypeFor[map[string]bool]():    mapOfBools,
}

type wireType uint8

const (
	varint wireType = iota
	zigzag
	fixed32
	fixed64
	lengthDelimited
	object
	timestamp
	duration
)

var wires = map[string]wireType{"varint": varint, "zigzag": zigzag, "fixed32": fixed32, "fixed64": fixed64, "bytes": lengthDelimited, "object": object, "timestamp": timestamp, "duration": duration}

// kind is the form of a value in memory. A number of 32 bits is extended by its sign if it has one.
type kind uint8

const (
	text kind = iota
	data
	flag
	int32s
	uint32s
	int64s
	messages
	// objectPointers are pointers to objects of Kubernetes.
	objectPointers
	// values are other messages of Kubernetes.
	values
	// times and durations are those of package meta/v1.
	times
	durations
)

// frequentOf are the frequent fields, by wire type and kind.
var frequentOf = map[[2]uint8]frequent{
	{uint8(lengthDelimited), uint8(text)}: textField,
	{uint8(varint), uint8(int32s)}:        numberField32,
	{uint8(varint), uint8(uint32s)}:       unsignedField32,
	{uint8(varint), uint8(int64s)}:        numberField64,
	{uint8(varint), uint8(flag)}:          flagField,
	{uint8(fixed64), uint8(int64s)}:       doubleField,
}

// onWire returns the type that a single value has on the wire.
func (w wireType) onWire() protowire.Type {
	switch w {
	case fixed32:
		return protowire.Fixed32Type
	case fixed64, object:
		return protowire.Fixed64Type
	case lengthDelimited, timestamp, duration:
		return protowire.BytesType
	}
	return protowire.VarintType
}

// delimited reports whether values of the type are bytes after their length.
func (w wireType) delimited() bool {
	return w == lengthDelimited || w == timestamp || w == duration
}

// value is the interface that the generated code of Kubernetes gives its messages.
type value interface {
	Size() int
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

var (
	mu    sync.Mutex
	types = map[reflect.Type]*Type{}
)

// Of returns the Type of a struct that kubewasm gen wrote. It panics for any other type.
func Of(t reflect.Type) *Type {
	mu.Lock()
	defer mu.Unlock()
	return of(t)
}

func of(t reflect.Type) *Type {
	if m := types[t]; m != nil {
		return m
	}
	if t.Kind() != reflect.Struct {
		panic(fmt.Sprintf("service: %v is not a message written by kubewasm gen", t))
	}
	m := &Type{of: t}
	types[t] = m // A message may be a part of itself.
	groups := map[string][]uint32{}
	for i := range t.NumField() {
		f := t.Field(i)
		tag, ok := f.Tag.Lookup("protobuf")
		if !ok {
			continue
		}
		made, group := fieldOf(f, tag)
		m.fields = append(m.fields, made)
		if group != "" {
			groups[group] = append(groups[group], made.number)
		}
	}
	slices.SortFunc(m.fields, func(a, b field) int { return cmp.Compare(a.number, b.number) })
	for i := range m.fields {
		if n := m.fields[i].number; n < uint32(len(m.index)) {
			m.index[n] = uint8(i + 1)
		}
	}
	for _, numbers := range groups {
		var places []uint8
		for _, n := range numbers {
			i, _ := m.place(n)
			places = append(places, uint8(i))
		}
		for _, i := range places {
			m.fields[i].oneof, m.fields[i].frequent = places, otherField
		}
	}
	return m
}

// Objects adds the types of objects of Kubernetes that messages of the type have, and those in
// them. m may be nil.
func (m *Type) Objects(types map[reflect.Type]bool) { m.objects(types, map[*Type]bool{nil: true}) }

func (m *Type) objects(types map[reflect.Type]bool, seen map[*Type]bool) {
	if seen[m] {
		return
	}
	seen[m] = true
	for i := range m.fields {
		if f := &m.fields[i]; f.kind == objectPointers {
			types[f.of.Elem()] = true
		}
		m.fields[i].message.objects(types, seen)
	}
}

// place returns the index of a field in m.fields.
func (m *Type) place(number uint32) (int, bool) {
	if number < uint32(len(m.index)) {
		return int(m.index[number]) - 1, m.index[number] != 0
	}
	return slices.BinarySearchFunc(m.fields, number, func(f field, n uint32) int { return cmp.Compare(f.number, n) })
}

// fieldOf returns a field by its tag, and the name of the oneof that it belongs to.
func fieldOf(f reflect.StructField, tag string) (field, string) {
	parts := strings.Split(tag, ",")
	number, err := strconv.ParseUint(parts[min(1, len(parts)-1)], 10, 29)
	w, ok := wires[parts[0]]
	if err != nil || !ok {
		panic(fmt.Sprintf("service: the tag of field %s is %q", f.Name, tag))
	}
	group, optional := "", false
	for _, part := range parts[2:] {
		if name, ok := strings.CutPrefix(part, "oneof="); ok {
			group = name
		}
		optional = optional || part == "optional"
	}
	made := field{name: f.Name, optional: optional, holds: one, number: uint32(number), offset: f.Offset, wire: w, goes: f.Type}
	of := f.Type
	switch {
	case of.Kind() == reflect.Map:
		made.holds, of, made.walks, made.maps = entries, of.Elem(), &sync.Pool{}, mapTypes[f.Type]
		if made.wire, ok = wires[f.Tag.Get("protobuf_val")]; !ok || f.Type.Key().Kind() != reflect.String {
			panic(fmt.Sprintf("service: field %s is a map without a tag of its values", f.Name))
		}
	case of.Kind() == reflect.Slice && of.Elem().Kind() != reflect.Uint8:
		made.holds, of = list, of.Elem()
	case of.Kind() == reflect.Pointer && made.wire != object:
		made.holds, of = maybe, of.Elem()
	}
	made.of, made.size = of, of.Size()
	made.onWire = made.wire.onWire()
	if made.tag = tagOf(made.number, made.onWire); made.holds == entries {
		made.tag = tagOf(made.number, protowire.BytesType)
	}
	made.setKind()
	if made.holds == one && made.tag < 1<<14 {
		made.frequent = frequentOf[[2]uint8{uint8(made.wire), uint8(made.kind)}]
	}
	switch {
	case made.holds == list:
		made.frequent, made.emptiness = sparseField, unsafe.Sizeof(uintptr(0)) // The length.
	case made.holds != one, made.kind == objectPointers:
		made.frequent = sparseField
	}
	return made, group
}

// setKind sets the form of values in memory.
func (f *field) setKind() {
	t := f.of
	switch {
	case f.wire == object && t.Kind() == reflect.Pointer && objects.IsObject(t.Elem()):
		f.kind = objectPointers
		return
	case f.wire == object:
		panic(fmt.Sprintf("service: field %s is a %v, not an object of Kubernetes", f.name, t))
	case f.wire == timestamp && t == reflect.TypeFor[metav1.Time]():
		f.kind = times
		return
	case f.wire == duration && t == reflect.TypeFor[metav1.Duration]():
		f.kind = durations
		return
	case f.wire == timestamp || f.wire == duration:
		panic(fmt.Sprintf("service: field %s is a %v, not a time", f.name, t))
	case t.Kind() == reflect.Struct && reflect.PointerTo(t).Implements(reflect.TypeFor[value]()):
		f.kind = values
		return
	}
	switch t.Kind() {
	case reflect.String:
		f.kind = text
	case reflect.Slice:
		f.kind = data
	case reflect.Bool:
		f.kind = flag
	case reflect.Int32:
		f.kind = int32s
	case reflect.Uint32, reflect.Float32:
		f.kind = uint32s
	case reflect.Int64, reflect.Uint64, reflect.Float64:
		f.kind = int64s
	case reflect.Struct:
		f.kind, f.message = messages, of(t)
	default:
		panic(fmt.Sprintf("service: field %s is a %v, which has no wire type", f.name, t))
	}
}
