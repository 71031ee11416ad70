package message

import (
	"encoding/binary"
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
	"github.com/kubewasm/kubewasm/internal/wire"
)

var (
	errText   = errors.New("text is not UTF-8")
	errMemory = errors.New("it takes much more memory than bytes: limits.resultBytes bounds that, too")
	errDeep   = fmt.Errorf("messages are nested more than %d deep", maxDepth)
)

const (
	// maxDepth is the maximum depth of nested messages.
	maxDepth = 100
	// minMemory and memoryPerByte bound the memory of a decoded message by the length that its
	// encoding may have: an empty element of a list takes two bytes in the encoding, and a whole
	// struct in memory.
	minMemory, memoryPerByte = 1 << 20, 32
)

// Parse reads a message into the struct at p, which is empty. Fields that it does not know are
// skipped. Nothing of b is kept. Bytes from a guest may be malformed: the error names the field.
// The message may take as much memory as one of limit bytes, or as one of its own length if that is
// more.
func (m *Type) Parse(b []byte, p unsafe.Pointer, refs Refs, limit int) error {
	d := decoder{refs: refs, memory: minMemory + memoryPerByte*max(len(b), limit)}
	return d.message(b, m, p, 0)
}

// decoder is the state of one Parse.
type decoder struct {
	refs Refs
	// memory is the number of bytes of memory that are left.
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
	c := wire.NewCursor(b)
	for c.Next() {
		i, ok := m.place(uint32(c.Number))
		if !ok {
			continue
		}
		f := &m.fields[i]
		if err := d.field(&c, m, f, unsafe.Add(p, f.offset), depth); err != nil {
			return fmt.Errorf("field %s: %w", f.name, err)
		}
	}
	return c.Err()
}

// field reads the value that c is at into the field f at at, of a message of type m.
func (d *decoder) field(c *wire.Cursor, m *Type, f *field, at unsafe.Pointer, depth int) error {
	for _, i := range f.oneof { // The last one counts.
		if other := &m.fields[i]; other != f {
			reflect.NewAt(other.goes, unsafe.Add(at, int(other.offset)-int(f.offset))).Elem().SetZero()
		}
	}
	switch f.holds {
	case maybe:
		if *(*unsafe.Pointer)(at) == nil {
			if err := d.take(f.size); err != nil {
				return err
			}
			*(*unsafe.Pointer)(at) = reflect.New(f.of).UnsafePointer()
		}
		at = *(*unsafe.Pointer)(at)
	case list:
		if c.Type() == protowire.BytesType && !f.wire.delimited() && f.wire != object {
			return d.packed(c.Bytes(), f, at)
		}
		if err := d.grow(f, at, 1); err != nil {
			return err
		}
		at = appended(f, at)
	case entries:
		if c.Type() != protowire.BytesType {
			return wireError(c.Type())
		}
		return d.entry(c.Bytes(), f, at, depth)
	}
	return d.value(c, f, at, depth)
}

// slice is the head of a slice, whatever its elements are.
type slice struct {
	data          unsafe.Pointer
	length, limit int
}

// grow makes room for n more elements of the list at at.
func (d *decoder) grow(f *field, at unsafe.Pointer, n int) error {
	s := (*slice)(at)
	if n <= s.limit-s.length {
		return nil
	}
	more := max(n, s.length, 4)
	if n > 1 {
		more = n // All that come in one field.
	}
	if err := d.take(uintptr(more) * f.size); err != nil {
		return err
	}
	reflect.NewAt(f.goes, at).Elem().Grow(more)
	return nil
}

// appended returns the address of another element of the list at at, which is empty and for
// which there is room.
func appended(f *field, at unsafe.Pointer) unsafe.Pointer {
	s := (*slice)(at)
	s.length++
	return unsafe.Add(s.data, uintptr(s.length-1)*f.size)
}

// packed reads numbers that come in one field.
func (d *decoder) packed(b []byte, f *field, at unsafe.Pointer) error {
	n := 0
	switch f.onWire {
	case protowire.Fixed64Type:
		n = len(b) / 8
	case protowire.Fixed32Type:
		n = len(b) / 4
	default:
		for _, c := range b {
			n += int(^c >> 7) // The last byte of each is below 0x80.
		}
	}
	if err := d.grow(f, at, n); err != nil {
		return err
	}
	if f.wire == fixed64 { // Scores, as a rule, and many of them.
		if len(b)%8 != 0 {
			_, n := protowire.ConsumeFixed64(b[len(b)/8*8:])
			return protowire.ParseError(n)
		}
		s := (*slice)(at)
		for i, to := 0, unsafe.Slice((*uint64)(unsafe.Add(s.data, s.length*8)), n); i < n; i++ {
			to[i] = binary.LittleEndian.Uint64(b[8*i:])
		}
		s.length += n
		return nil
	}
	for len(b) > 0 {
		var v uint64
		n := 0
		switch f.wire {
		case fixed32:
			var v32 uint32
			v32, n = protowire.ConsumeFixed32(b)
			v = uint64(v32)
		default:
			v, n = protowire.ConsumeVarint(b)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		f.set(appended(f, at), v)
		b = b[n:]
	}
	return nil
}

// entry reads an entry of a map.
func (d *decoder) entry(b []byte, f *field, at unsafe.Pointer, depth int) error {
	const overhead = 64 // Of an entry in a map.
	if err := d.take(f.size + overhead); err != nil {
		return err
	}
	key, value := "", reflect.New(f.of)
	c := wire.NewCursor(b)
	for c.Next() {
		switch {
		case c.Number == 1 && c.Type() == protowire.BytesType:
			if !utf8.Valid(c.Bytes()) {
				return errText
			}
			key = string(c.Bytes())
		case c.Number == 2:
			if err := d.value(&c, f, value.UnsafePointer(), depth); err != nil {
				return err
			}
		}
	}
	if err := c.Err(); err != nil {
		return err
	}
	if f.goes == reflect.TypeFor[map[string]string]() {
		m := (*map[string]string)(at)
		if *m == nil {
			*m = map[string]string{}
		}
		(*m)[key] = *(*string)(value.UnsafePointer())
		return nil
	}
	m := reflect.NewAt(f.goes, at).Elem()
	if m.IsNil() {
		m.Set(reflect.MakeMap(f.goes))
	}
	m.SetMapIndex(reflect.ValueOf(key).Convert(f.goes.Key()), value.Elem())
	return nil
}

func wireError(typ protowire.Type) error { return fmt.Errorf("it has wire type %d", typ) }

// value reads the value that c is at into p.
func (d *decoder) value(c *wire.Cursor, f *field, p unsafe.Pointer, depth int) error {
	switch typ := c.Type(); {
	case typ != f.onWire:
		return wireError(typ)
	case typ == protowire.BytesType:
		return d.bytes(c.Bytes(), f, p, depth)
	case f.kind == objectPointers:
		return d.object(abi.Ref(c.Value()), f, p)
	}
	f.set(p, c.Value())
	return nil
}

// set sets the number at p.
func (f *field) set(p unsafe.Pointer, v uint64) {
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
		// The generated code allocates during decoding: an element of a list for two bytes.
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
