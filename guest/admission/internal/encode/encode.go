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
	return appendValue(dst, t, p)
}

func appendRaw(dst, raw []byte) []byte {
	if json.Valid(raw) {
		return append(dst, raw...)
	}
	return json.AppendString(dst, raw)
}

// appendValue writes the value of type t at p.
func appendValue(b []byte, t reflect.Type, p unsafe.Pointer) []byte {
	switch kind := t.Kind(); kind {
	case reflect.String:
		return json.AppendString(b, *(*string)(p))
	case reflect.Bool:
		return strconv.AppendBool(b, *(*bool)(p))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return strconv.AppendInt(b, signed(t.Size(), p), 10)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return strconv.AppendUint(b, unsigned(t.Size(), p), 10)
	case reflect.Float32:
		return appendFloat(b, float64(*(*float32)(p)), 32)
	case reflect.Float64:
		return appendFloat(b, *(*float64)(p), 64)
	case reflect.Interface:
		return Append(b, memory.Held(t, p))
	case reflect.Pointer:
		if to := *(*unsafe.Pointer)(p); to != nil {
			return appendPointer(b, t.Elem(), to)
		}
	case reflect.Slice:
		list := (*memory.Slice)(p)
		return appendList(b, t.Elem(), list.Data, list.Len)
	case reflect.Array:
		return appendList(b, t.Elem(), p, t.Len())
	case reflect.Map:
		if t.Key().Kind() == reflect.String {
			return appendMap(b, t, *(*unsafe.Pointer)(p))
		}
	}
	return append(b, "null"...)
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

func appendFloat(b []byte, f float64, bits int) []byte {
	if f-f != 0 { // JSON has neither infinity nor NaN.
		return append(b, "null"...)
	}
	return strconv.AppendFloat(b, f, 'g', -1, bits)
}

// appendPointer writes the value of type t at p, to which a pointer points.
func appendPointer(b []byte, t reflect.Type, p unsafe.Pointer) []byte {
	switch pointer := memory.Pointer(t, p).(type) {
	case *json.Value:
		return appendRaw(b, *pointer)
	case interface{ String() string }:
		return json.AppendString(b, pointer.String())
	}
	if t == reflect.TypeFor[[]byte]() {
		return appendRaw(b, *(*[]byte)(p))
	}
	return appendValue(b, t, p)
}

func appendList(b []byte, t reflect.Type, p unsafe.Pointer, n int) []byte {
	b = append(b, '[')
	for i := range n {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendValue(b, t, unsafe.Add(p, uintptr(i)*t.Size()))
	}
	return append(b, ']')
}

// appendMap writes the entries of m in the order of their keys, so that equal maps
// are equal bytes.
func appendMap(b []byte, t reflect.Type, m unsafe.Pointer) []byte {
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
		b = appendValue(b, t.Elem(), memory.Entry(t, m, key))
	}
	return append(b, '}')
}
