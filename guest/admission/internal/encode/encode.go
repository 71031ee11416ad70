// Package encode writes the values that plugins give to fields as JSON.
package encode

import (
	"reflect"
	"slices"
	"strconv"

	"github.com/kubewasm/kubewasm/internal/json"
)

// Append writes a value as JSON behind dst. It knows what fields of objects are:
// strings, numbers, bools, lists and maps of these, and the raw JSON of anything
// else as []byte or json.Value. What it does not know is null.
func Append(dst []byte, v any) []byte {
	switch v := v.(type) {
	case []byte:
		return appendRaw(dst, v)
	case json.Value:
		return appendRaw(dst, v)
	case string:
		return json.AppendString(dst, v)
	case interface{ String() string }:
		return json.AppendString(dst, v.String())
	}
	return appendValue(dst, reflect.ValueOf(v))
}

func appendRaw(dst, raw []byte) []byte {
	if json.Valid(raw) {
		return append(dst, raw...)
	}
	return json.AppendString(dst, raw)
}

func appendValue(b []byte, v reflect.Value) []byte {
	switch v.Kind() {
	case reflect.String:
		return json.AppendString(b, v.String())
	case reflect.Bool:
		return strconv.AppendBool(b, v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return strconv.AppendInt(b, v.Int(), 10)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return strconv.AppendUint(b, v.Uint(), 10)
	case reflect.Float32, reflect.Float64:
		if f := v.Float(); f-f == 0 { // JSON has neither infinity nor NaN.
			return strconv.AppendFloat(b, f, 'g', -1, v.Type().Bits())
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return Append(b, v.Elem().Interface())
		}
	case reflect.Slice, reflect.Array:
		b = append(b, '[')
		for i := range v.Len() {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendValue(b, v.Index(i))
		}
		return append(b, ']')
	case reflect.Map:
		if v.Type().Key().Kind() == reflect.String {
			return appendMap(b, v)
		}
	}
	return append(b, "null"...)
}

// appendMap writes the entries in the order of their keys, so that equal maps
// are equal bytes.
func appendMap(b []byte, v reflect.Value) []byte {
	keys := make([]string, 0, v.Len())
	values := make(map[string]reflect.Value, v.Len())
	for i := v.MapRange(); i.Next(); {
		key := i.Key().String()
		keys = append(keys, key)
		values[key] = i.Value()
	}
	slices.Sort(keys)
	b = append(b, '{')
	for i, key := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(json.AppendString(b, key), ':')
		b = appendValue(b, values[key])
	}
	return append(b, '}')
}
