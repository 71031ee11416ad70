package message

import (
	"fmt"
	"reflect"
	"slices"
	"time"
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

// Append appends the message at p, a pointer to the struct. Errors are those of refs, and
// those of a message of which a decoder would make another one: text that is not UTF-8, two
// fields of a oneof.
func (m *Type) Append(b []byte, p unsafe.Pointer, refs Refs) ([]byte, error) {
	e := encoder{refs: refs}
	b = e.message(b, m, p)
	return b, e.err
}

// encoder is the state of one Append.
type encoder struct {
	refs Refs
	err  error
}

func (e *encoder) fail(f *field, err error) {
	if e.err == nil {
		e.err = fmt.Errorf("field %s: %w", f.name, err)
	}
}

func (e *encoder) message(b []byte, m *Type, p unsafe.Pointer) []byte {
	for i := range m.fields {
		f := &m.fields[i]
		at := unsafe.Add(p, f.offset)
		if f.oneof != nil && !e.alone(m, f, p) {
			continue
		}
		switch f.holds {
		case maybe:
			if at = *(*unsafe.Pointer)(at); at != nil {
				b = e.value(b, f, f.number, at, true)
			}
		case list:
			b = e.list(b, f, at)
		case entries:
			b = e.entries(b, f, at)
		default:
			b = e.value(b, f, f.number, at, false)
		}
	}
	return b
}

// alone reports whether no field of the oneof before f is set.
func (e *encoder) alone(m *Type, f *field, p unsafe.Pointer) bool {
	for _, i := range f.oneof {
		other := &m.fields[i]
		if other == f {
			return true
		}
		if *(*unsafe.Pointer)(unsafe.Add(p, other.offset)) != nil && *(*unsafe.Pointer)(unsafe.Add(p, f.offset)) != nil {
			e.fail(f, fmt.Errorf("%s of the same oneof is set, too", other.name))
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
	first, size := unsafe.Pointer(unsafe.SliceData(elements)), f.of.Size()
	if f.wire.delimited() || f.wire == object {
		for i := range uintptr(len(elements)) {
			b = e.value(b, f, f.number, unsafe.Add(first, i*size), true)
		}
		return b
	}
	b = append(wire.AppendVarint(b, uint64(f.number)<<3|uint64(protowire.BytesType)), 0)
	start := len(b)
	for i := range uintptr(len(elements)) {
		b = f.appendNumber(b, f.bits(unsafe.Add(first, i*size)))
	}
	return wire.EndMessage(b, start)
}

// entries appends a map in the order of its keys.
func (e *encoder) entries(b []byte, f *field, at unsafe.Pointer) []byte {
	if f.goes == reflect.TypeFor[map[string]string]() {
		m := *(*map[string]string)(at)
		var room [16]string
		keys := room[:0]
		for key := range m {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		for _, key := range keys {
			b = append(wire.AppendVarint(b, uint64(f.number)<<3|uint64(protowire.BytesType)), 0)
			start := len(b)
			b = wire.EndMessage(e.text(e.text(b, f, 1, key), f, 2, m[key]), start)
		}
		return b
	}
	m := reflect.NewAt(f.goes, at).Elem()
	keys := make([]string, 0, m.Len())
	for it := m.MapRange(); it.Next(); {
		keys = append(keys, it.Key().String())
	}
	slices.Sort(keys)
	for _, key := range keys {
		v := reflect.New(f.of) // A value in a map has no address.
		v.Elem().Set(m.MapIndex(reflect.ValueOf(key).Convert(f.goes.Key())))
		b = e.entry(b, f, key, v.UnsafePointer())
	}
	return b
}

func (e *encoder) entry(b []byte, f *field, key string, value unsafe.Pointer) []byte {
	b = append(wire.AppendVarint(b, uint64(f.number)<<3|uint64(protowire.BytesType)), 0)
	start := len(b)
	b = e.text(b, f, 1, key)
	return wire.EndMessage(e.value(b, f, 2, value, true), start)
}

// value appends one value under a number. An empty one is left out unless it is kept.
func (e *encoder) value(b []byte, f *field, number uint32, p unsafe.Pointer, keep bool) []byte {
	switch f.kind {
	case text:
		if s := *(*string)(p); s != "" || keep {
			b = e.text(b, f, number, s)
		}
		return b
	case data:
		if s := *(*[]byte)(p); len(s) != 0 || keep {
			b = wire.AppendVarint(b, uint64(number)<<3|uint64(protowire.BytesType))
			b = append(wire.AppendVarint(b, uint64(len(s))), s...)
		}
		return b
	case messages:
		b = append(wire.AppendVarint(b, uint64(number)<<3|uint64(protowire.BytesType)), 0)
		start := len(b)
		return wire.EndMessage(e.message(b, f.message, p), start)
	case objectPointers:
		return e.object(b, f, number, *(*unsafe.Pointer)(p), keep)
	case values:
		return e.kubernetes(b, f, number, p)
	case times:
		return e.time(b, f, number, (*metav1.Time)(p).Time)
	case durations:
		d := (*metav1.Duration)(p).Duration
		return appendPair(b, number, int64(d/time.Second), int64(d%time.Second))
	}
	n := f.bits(p)
	if n == 0 && !keep {
		return b
	}
	return f.appendNumber(wire.AppendVarint(b, uint64(number)<<3|uint64(f.onWire())), n)
}

func (e *encoder) object(b []byte, f *field, number uint32, p unsafe.Pointer, keep bool) []byte {
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
	return protowire.AppendFixed64(wire.AppendVarint(b, uint64(number)<<3|uint64(protowire.Fixed64Type)), uint64(ref))
}

// kubernetes appends a message of Kubernetes that is no object. Its code may change what it
// encodes: a quantity keeps its text. So it encodes a copy.
func (e *encoder) kubernetes(b []byte, f *field, number uint32, p unsafe.Pointer) []byte {
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
	b = wire.AppendVarint(b, uint64(number)<<3|uint64(protowire.BytesType))
	return append(wire.AppendVarint(b, uint64(len(encoded))), encoded...)
}

func (e *encoder) text(b []byte, f *field, number uint32, s string) []byte {
	b = wire.AppendVarint(b, uint64(number)<<3|uint64(protowire.BytesType))
	if !validText(s) {
		e.fail(f, errText)
	}
	return append(wire.AppendVarint(b, uint64(len(s))), s...)
}

// bits returns the number at p, as a varint has it.
func (f *field) bits(p unsafe.Pointer) uint64 {
	switch f.kind {
	case flag:
		if *(*bool)(p) {
			return 1
		}
		return 0
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
		return wire.AppendVarint(b, protowire.EncodeZigZag(int64(n)))
	case fixed32:
		return protowire.AppendFixed32(b, uint32(n))
	case fixed64:
		return protowire.AppendFixed64(b, n)
	}
	return wire.AppendVarint(b, n)
}

// onWire returns the type that a single value has on the wire.
func (f *field) onWire() protowire.Type {
	switch f.wire {
	case fixed32:
		return protowire.Fixed32Type
	case fixed64, object:
		return protowire.Fixed64Type
	case lengthDelimited, timestamp, duration:
		return protowire.BytesType
	}
	return protowire.VarintType
}
