// Package encode writes the values that plugins give to fields as JSON.
package encode

import (
	"reflect"
	"slices"
	"strconv"
	"unsafe"

	"github.com/kubewasm/kubewasm/guest/internal/memory"
	"github.com/kubewasm/kubewasm/internal/json"
)

// Append appends a value in JSON to dst. It knows the types of fields: strings,
// numbers, bools, lists and maps of these, types with a method String, and raw
// JSON as []byte or json.Value. A value of another type is null.
func Append(dst []byte, v any) []byte {
	var e encoder
	return e.append(dst, v)
}

// Value returns a value in JSON, and the part of it that has no form there: the kind of a type that
// Append does not know, such as chan, "NaN" or "infinity". That is empty if all of it has a form.
func Value(v any) (raw []byte, formless string) {
	var e encoder
	raw = e.append(nil, v)
	return raw, e.formless
}

// encoder writes one value.
type encoder struct{ formless string }

// refuse writes null for a value without a form in JSON.
func (e *encoder) refuse(b []byte, what string) []byte {
	e.formless = what
	return append(b, "null"...)
}

func (e *encoder) append(dst []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...)
	case []byte:
		return appendRaw(dst, v)
	case json.Value:
		return appendRaw(dst, v)
	case string:
		return json.AppendString(dst, v)
	case interface{ String() string }:
		return json.AppendString(dst, v.String())
	}
	t, p := memory.Of(v)
	return e.value(dst, t, p)
}

func appendRaw(dst, raw []byte) []byte {
	if json.Valid(raw) {
		return append(dst, raw...)
	}
	return json.AppendString(dst, raw)
}

// value writes the value of type t at p.
func (e *encoder) value(b []byte, t reflect.Type, p unsafe.Pointer) []byte {
	switch t.Kind() {
	case reflect.String:
		return json.AppendString(b, *(*string)(p))
	case reflect.Bool:
		return strconv.AppendBool(b, *(*bool)(p))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return strconv.AppendInt(b, signed(t.Size(), p), 10)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return strconv.AppendUint(b, unsigned(t.Size(), p), 10)
	case reflect.Float32:
		return e.float(b, float64(*(*float32)(p)), 32)
	case reflect.Float64:
		return e.float(b, *(*float64)(p), 64)
	case reflect.Interface:
		return e.append(b, memory.Held(t, p))
	case reflect.Pointer:
		if to := *(*unsafe.Pointer)(p); to != nil {
			return e.pointer(b, t.Elem(), to)
		}
		return append(b, "null"...)
	case reflect.Slice:
		list := (*memory.Slice)(p)
		return e.list(b, t.Elem(), list.Data, list.Len)
	case reflect.Array:
		return e.list(b, t.Elem(), p, t.Len())
	case reflect.Map:
		if t.Key().Kind() == reflect.String {
			return e.mapping(b, t, *(*unsafe.Pointer)(p))
		}
	}
	return e.refuse(b, t.Kind().String())
}

func signed(size uintptr, p unsafe.Pointer) int64 {
	switch size {
	case 1:
		return int64(*(*int8)(p))
	case 2:
		return int64(*(*int16)(p))
	case 4:
		return int64(*(*int32)(p))
	}
	return *(*int64)(p)
}

func unsigned(size uintptr, p unsafe.Pointer) uint64 {
	switch size {
	case 1:
		return uint64(*(*uint8)(p))
	case 2:
		return uint64(*(*uint16)(p))
	case 4:
		return uint64(*(*uint32)(p))
	}
	return *(*uint64)(p)
}

func (e *encoder) float(b []byte, f float64, bits int) []byte {
	if f != f {
		return e.refuse(b, "NaN")
	}
	if f-f != 0 {
		return e.refuse(b, "infinity")
	}
	return strconv.AppendFloat(b, f, 'g', -1, bits)
}

// pointer writes the value of type t at p, to which a pointer points.
func (e *encoder) pointer(b []byte, t reflect.Type, p unsafe.Pointer) []byte {
	switch pointer := memory.Pointer(t, p).(type) {
	case *json.Value:
		return appendRaw(b, *pointer)
	case interface{ String() string }:
		return json.AppendString(b, pointer.String())
	}
	if t == reflect.TypeFor[[]byte]() {
		return appendRaw(b, *(*[]byte)(p))
	}
	return e.value(b, t, p)
}

func (e *encoder) list(b []byte, t reflect.Type, p unsafe.Pointer, n int) []byte {
	b = append(b, '[')
	for i := range n {
		if i > 0 {
			b = append(b, ',')
		}
		b = e.value(b, t, unsafe.Add(p, uintptr(i)*t.Size()))
	}
	return append(b, ']')
}

// mapping writes the entries of m in the order of their keys, so that equal maps
// are equal bytes.
func (e *encoder) mapping(b []byte, t reflect.Type, m unsafe.Pointer) []byte {
	var keys []string
	for _, key := range memory.Keys(t, m) {
		at, _ := slices.BinarySearch(keys, key) // slices.Sort would add 14 KB.
		keys = slices.Insert(keys, at, key)
	}
	b = append(b, '{')
	for i, key := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(json.AppendString(b, key), ':')
		b = e.value(b, t.Elem(), memory.Entry(t, m, key))
	}
	return append(b, '}')
}
