package message

import (
	"errors"
	"fmt"
	"reflect"
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/serviceschema"
)

var (
	errText   = errors.New("text is not UTF-8")
	errMemory = errors.New("it takes much more memory than bytes")
	errDeep   = fmt.Errorf("messages are nested more than %d deep", maxDepth)
)

func validText(s string) bool { return utf8.ValidString(s) }

const (
	// maxDepth is how deep messages may nest.
	maxDepth = 100
	// minMemory and memoryPerByte bound the memory of a decoded message by the length of its
	// encoding: an empty element of a list takes two bytes there, and a whole struct here.
	minMemory, memoryPerByte = 1 << 20, 32
)

// Parse reads a message into the struct at p, which is empty. Fields that it does not know are
// skipped. Nothing of b is kept. Bytes from a guest may be anything: the error names the field
// where they are no message.
func (m *Type) Parse(b []byte, p unsafe.Pointer, refs Refs) error {
	d := decoder{refs: refs, memory: minMemory + memoryPerByte*len(b)}
	return d.message(b, m, p, 0)
}

// decoder is the state of one Parse.
type decoder struct {
	refs Refs
	// memory is how many bytes of memory are left.
	memory int
}

// take counts memory that is allocated.
func (d *decoder) take(n uintptr) error {
	if d.memory -= int(n); d.memory < 0 {
		return errMemory
	}
	return nil
}

func (d *decoder) message(b []byte, m *Type, p unsafe.Pointer, depth int) error {
	if depth > maxDepth {
		return errDeep
	}
	for len(b) > 0 {
		number, typ, n := consumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		i, ok := m.place(uint32(number))
		if !ok {
			if n = protowire.ConsumeFieldValue(number, typ, b); n < 0 {
				return protowire.ParseError(n)
			}
			b = b[n:]
			continue
		}
		f := &m.fields[i]
		n, err := d.field(b, typ, m, f, p, depth)
		if err != nil {
			return fmt.Errorf("field %s: %w", f.name, err)
		}
		b = b[n:]
	}
	return nil
}

// field reads the value at the beginning of b into field f of the message at p and returns its
// length.
func (d *decoder) field(b []byte, typ protowire.Type, m *Type, f *field, p unsafe.Pointer, depth int) (int, error) {
	at := unsafe.Add(p, f.offset)
	for _, i := range f.oneof { // The last one counts.
		if other := &m.fields[i]; other != f {
			reflect.NewAt(other.goes, unsafe.Add(p, other.offset)).Elem().SetZero()
		}
	}
	switch f.holds {
	case maybe:
		if *(*unsafe.Pointer)(at) == nil {
			if err := d.take(f.of.Size()); err != nil {
				return 0, err
			}
			*(*unsafe.Pointer)(at) = reflect.New(f.of).UnsafePointer()
		}
		return d.value(b, typ, f, *(*unsafe.Pointer)(at), depth)
	case list:
		return d.list(b, typ, f, at, depth)
	case entries:
		return d.entry(b, typ, f, at, depth)
	}
	return d.value(b, typ, f, at, depth)
}

// list reads an element, or several numbers in one field.
func (d *decoder) list(b []byte, typ protowire.Type, f *field, at unsafe.Pointer, depth int) (int, error) {
	slice := reflect.NewAt(f.goes, at).Elem()
	add := func() (unsafe.Pointer, error) {
		n := slice.Len()
		if n == slice.Cap() {
			grown := max(4, 2*n)
			if err := d.take(uintptr(grown-n) * f.of.Size()); err != nil {
				return nil, err
			}
			slice.Grow(grown - n)
		}
		slice.SetLen(n + 1)
		return slice.Index(n).Addr().UnsafePointer(), nil
	}
	if typ == protowire.BytesType && !f.wire.delimited() && f.wire != object {
		packed, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return 0, protowire.ParseError(n)
		}
		for len(packed) > 0 {
			p, err := add()
			if err != nil {
				return 0, err
			}
			size, err := d.value(packed, f.onWire(), f, p, depth)
			if err != nil {
				return 0, err
			}
			packed = packed[size:]
		}
		return n, nil
	}
	p, err := add()
	if err != nil {
		return 0, err
	}
	return d.value(b, typ, f, p, depth)
}

// entry reads an entry of a map.
func (d *decoder) entry(b []byte, typ protowire.Type, f *field, at unsafe.Pointer, depth int) (int, error) {
	if typ != protowire.BytesType {
		return 0, wireError(typ)
	}
	entry, total := protowire.ConsumeBytes(b)
	if total < 0 {
		return 0, protowire.ParseError(total)
	}
	const overhead = 64 // Of an entry in a map.
	if err := d.take(f.of.Size() + overhead); err != nil {
		return 0, err
	}
	key, value := "", reflect.New(f.of)
	for len(entry) > 0 {
		number, typ, n := consumeTag(entry)
		if n < 0 {
			return 0, protowire.ParseError(n)
		}
		entry = entry[n:]
		switch {
		case number == 1 && typ == protowire.BytesType:
			var k []byte
			if k, n = protowire.ConsumeBytes(entry); n >= 0 {
				if !utf8.Valid(k) {
					return 0, errText
				}
				key = string(k)
			}
		case number == 2:
			size, err := d.value(entry, typ, f, value.UnsafePointer(), depth)
			if err != nil {
				return 0, err
			}
			n = size
		default:
			n = protowire.ConsumeFieldValue(number, typ, entry)
		}
		if n < 0 {
			return 0, protowire.ParseError(n)
		}
		entry = entry[n:]
	}
	if f.goes == reflect.TypeFor[map[string]string]() {
		m := (*map[string]string)(at)
		if *m == nil {
			*m = map[string]string{}
		}
		(*m)[key] = *(*string)(value.UnsafePointer())
		return total, nil
	}
	m := reflect.NewAt(f.goes, at).Elem()
	if m.IsNil() {
		m.Set(reflect.MakeMap(f.goes))
	}
	m.SetMapIndex(reflect.ValueOf(key).Convert(f.goes.Key()), value.Elem())
	return total, nil
}

// consumeTag reads a key. Package protowire takes numbers for which package proto has no field.
func consumeTag(b []byte) (number protowire.Number, typ protowire.Type, n int) {
	number, typ, n = protowire.ConsumeTag(b)
	if n >= 0 && number > protowire.MaxValidNumber {
		return 0, 0, -2 // That of an invalid number, see protowire.ParseError.
	}
	return number, typ, n
}

func wireError(typ protowire.Type) error { return fmt.Errorf("it has wire type %d", typ) }

// value reads one value at p and returns its length.
func (d *decoder) value(b []byte, typ protowire.Type, f *field, p unsafe.Pointer, depth int) (int, error) {
	if typ != f.onWire() {
		return 0, wireError(typ)
	}
	switch typ {
	case protowire.BytesType:
		raw, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return 0, protowire.ParseError(n)
		}
		return n, d.bytes(raw, f, p, depth)
	case protowire.Fixed64Type:
		v, n := protowire.ConsumeFixed64(b)
		if n < 0 {
			return 0, protowire.ParseError(n)
		}
		if f.kind == objectPointers {
			return n, d.object(abi.Ref(v), f, p)
		}
		*(*uint64)(p) = v
		return n, nil
	case protowire.Fixed32Type:
		v, n := protowire.ConsumeFixed32(b)
		if n < 0 {
			return 0, protowire.ParseError(n)
		}
		*(*uint32)(p) = v
		return n, nil
	}
	v, n := protowire.ConsumeVarint(b)
	if n < 0 {
		return 0, protowire.ParseError(n)
	}
	if f.wire == zigzag {
		if f.kind == int32s {
			v &= 1<<32 - 1
		}
		v = uint64(protowire.DecodeZigZag(v))
	}
	switch f.kind {
	case flag:
		*(*bool)(p) = v != 0
	case int32s, uint32s:
		*(*uint32)(p) = uint32(v)
	default:
		*(*uint64)(p) = v
	}
	return n, nil
}

func (d *decoder) bytes(raw []byte, f *field, p unsafe.Pointer, depth int) error {
	switch f.kind {
	case text:
		if !utf8.Valid(raw) {
			return errText
		}
		*(*string)(p) = string(raw)
	case data:
		*(*[]byte)(p) = append([]byte{}, raw...)
	case messages:
		return d.message(raw, f.message, p, depth+1)
	case values:
		// The generated code allocates what it reads: an element of a list for two bytes.
		const perByte = 64
		if err := d.take(uintptr(len(raw)) * perByte); err != nil {
			return err
		}
		if f.of == reflect.TypeFor[resource.Quantity]() {
			if err := serviceschema.CheckQuantity(raw); err != nil {
				return err
			}
		}
		return reflect.NewAt(f.of, p).Interface().(value).Unmarshal(raw)
	case times:
		return parseTime(raw, (*metav1.Time)(p))
	case durations:
		return parseDuration(raw, (*metav1.Duration)(p))
	}
	return nil
}

func (d *decoder) object(ref abi.Ref, f *field, p unsafe.Pointer) error {
	if ref == 0 {
		*(*unsafe.Pointer)(p) = nil
		return nil
	}
	found, err := d.refs.Object(f.of.Elem(), ref)
	if err == nil {
		*(*unsafe.Pointer)(p) = found
	}
	return err
}
