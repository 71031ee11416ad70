package serviceschema

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/nearest"
)

// Objects are the objects of messages in JSON.
type Objects interface {
	// Ref returns the ref of an object in JSON. of is the full name of its message, empty
	// for a custom resource.
	Ref(of protoreflect.FullName, object []byte) (abi.Ref, error)
	// Object returns the object that a ref names, as a value for package json.
	Object(ref abi.Ref) (any, error)
	// Value encodes another message of Kubernetes, in JSON, to protobuf, and DecodeValue
	// decodes one, as a value for package json.
	Value(of protoreflect.FullName, value []byte) ([]byte, error)
	DecodeValue(of protoreflect.FullName, b []byte) (any, error)
}

// Encode encodes a message in JSON. Fields have the names of the .proto file or those of JSON.
// The error names every mistake.
func Encode(d protoreflect.MessageDescriptor, text []byte, objects Objects) ([]byte, error) {
	e := &encoder{objects: objects}
	b := e.message(nil, d, text, "")
	return b, errors.Join(e.errs...)
}

type encoder struct {
	objects Objects
	errs    []error
}

func (e *encoder) fail(path, format string, args ...any) {
	if path == "" {
		path = "the message"
	}
	e.errs = append(e.errs, fmt.Errorf("%s: %w", strings.TrimPrefix(path, "."), fmt.Errorf(format, args...)))
}

func (e *encoder) message(b []byte, d protoreflect.MessageDescriptor, text []byte, path string) []byte {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		e.fail(path, "want a message, not %.40s", text)
		return b
	}
	values := map[protoreflect.FieldNumber]json.RawMessage{}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		f := d.Fields().ByJSONName(name)
		if f == nil {
			f = d.Fields().ByName(protoreflect.Name(name))
		}
		switch {
		case f == nil:
			e.fail(path, "there is no field %q in %s%s", name, d.FullName(), nearest.Hint(", ", name, fieldNames(d)))
		case values[f.Number()] != nil:
			e.fail(path, "field %q is there twice", name)
		case !isNull(fields[name]):
			values[f.Number()] = fields[name]
		}
	}
	for _, n := range slices.Sorted(maps.Keys(values)) {
		f := d.Fields().ByNumber(n)
		if o := f.ContainingOneof(); o != nil && !o.IsSynthetic() {
			for i := range o.Fields().Len() {
				if other := o.Fields().Get(i); other.Number() < n && values[other.Number()] != nil {
					e.fail(path+"."+f.JSONName(), "%s of the same oneof is also set", other.JSONName())
				}
			}
		}
		b = e.field(b, f, values[n], path+"."+f.JSONName())
	}
	return b
}

// fieldNames returns the names of the fields of a message in JSON.
func fieldNames(d protoreflect.MessageDescriptor) []string {
	names := make([]string, d.Fields().Len())
	for i := range names {
		names[i] = d.Fields().Get(i).JSONName()
	}
	return names
}

func isNull(text []byte) bool { return string(bytes.TrimSpace(text)) == "null" }

func (e *encoder) field(b []byte, f protoreflect.FieldDescriptor, text []byte, path string) []byte {
	switch {
	case f.IsMap():
		var entries map[string]json.RawMessage
		if err := json.Unmarshal(text, &entries); err != nil {
			e.fail(path, "want a map, not %.40s", text)
			return b
		}
		for _, key := range slices.Sorted(maps.Keys(entries)) {
			entry := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), key)
			entry = e.value(entry, f.MapValue(), 2, entries[key], path+"["+strconv.Quote(key)+"]")
			b = protowire.AppendBytes(protowire.AppendTag(b, f.Number(), protowire.BytesType), entry)
		}
		return b
	case f.IsList():
		var list []json.RawMessage
		if err := json.Unmarshal(text, &list); err != nil {
			e.fail(path, "want a list, not %.40s", text)
			return b
		}
		for i, element := range list {
			b = e.value(b, f, f.Number(), element, fmt.Sprintf("%s[%d]", path, i))
		}
		return b
	}
	return e.value(b, f, f.Number(), text, path)
}

// value appends one value under a number.
func (e *encoder) value(b []byte, f protoreflect.FieldDescriptor, number protowire.Number, text []byte, path string) []byte {
	if d := f.Message(); d != nil {
		return e.nested(b, d, number, text, path)
	}
	var s string
	quoted := json.Unmarshal(text, &s) == nil
	if !quoted {
		s = string(bytes.TrimSpace(text))
	}
	n, typ, err := scalar(f, s, quoted)
	switch {
	case err != nil:
		e.fail(path, "want %s, not %.40s", f.Kind(), text)
		return b
	case typ == protowire.BytesType:
		raw := []byte(s)
		if f.Kind() == protoreflect.BytesKind {
			if raw, err = base64.StdEncoding.DecodeString(s); err != nil {
				e.fail(path, "want base64: %w", err)
			}
		}
		return protowire.AppendBytes(protowire.AppendTag(b, number, typ), raw)
	}
	b = protowire.AppendTag(b, number, typ)
	switch typ {
	case protowire.Fixed32Type:
		return protowire.AppendFixed32(b, uint32(n))
	case protowire.Fixed64Type:
		return protowire.AppendFixed64(b, n)
	}
	return protowire.AppendVarint(b, n)
}

// scalar reads a value that is no message.
func scalar(f protoreflect.FieldDescriptor, s string, quoted bool) (n uint64, typ protowire.Type, err error) {
	bits := 64
	switch f.Kind() {
	case protoreflect.StringKind, protoreflect.BytesKind:
		if !quoted {
			err = errors.New("no text")
		}
		return 0, protowire.BytesType, err
	case protoreflect.BoolKind:
		var v bool
		if v, err = strconv.ParseBool(s); quoted {
			err = errors.New("text")
		}
		return protowire.EncodeBool(v), protowire.VarintType, err
	case protoreflect.EnumKind:
		if v := f.Enum().Values().ByName(protoreflect.Name(s)); v != nil {
			return uint64(v.Number()), protowire.VarintType, nil
		}
		v, err := strconv.ParseInt(s, 10, 32)
		return uint64(v), protowire.VarintType, err
	case protoreflect.FloatKind:
		v, err := strconv.ParseFloat(s, 32)
		return uint64(math.Float32bits(float32(v))), protowire.Fixed32Type, err
	case protoreflect.DoubleKind:
		v, err := strconv.ParseFloat(s, 64)
		return math.Float64bits(v), protowire.Fixed64Type, err
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind, protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		bits = 32
	}
	switch f.Kind() {
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind:
		n, err = strconv.ParseUint(s, 10, bits)
	default:
		var v int64
		v, err = strconv.ParseInt(s, 10, bits)
		n = uint64(v)
	}
	switch f.Kind() {
	case protoreflect.Sint32Kind, protoreflect.Sint64Kind:
		return protowire.EncodeZigZag(int64(n)), protowire.VarintType, err
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind:
		return n, protowire.Fixed32Type, err
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind:
		return n, protowire.Fixed64Type, err
	}
	return n, protowire.VarintType, err
}

// nested appends a message: one of the schema, an object, or another message of Kubernetes.
func (e *encoder) nested(b []byte, d protoreflect.MessageDescriptor, number protowire.Number, text []byte, path string) []byte {
	if !opaque(d) {
		inner := e.message(nil, d, text, path)
		return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), inner)
	}
	name := d.FullName()
	if name == Timestamp || name == Duration {
		value, err := encodeTime(name, text)
		if err != nil {
			e.fail(path, "%w", err)
		}
		return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), value)
	}
	if _, ok := ResourceOf(d); ok {
		name = ""
	}
	ref, err := e.objects.Ref(name, text)
	if errors.Is(err, ErrNoObject) {
		var value []byte
		if value, err = e.objects.Value(name, text); err == nil {
			return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), value)
		}
	}
	if err != nil {
		e.fail(path, "%w", err)
		return b
	}
	return protowire.AppendFixed64(protowire.AppendTag(b, number, protowire.Fixed64Type), uint64(ref))
}

// ErrNoObject is the error of [Objects.Ref] for a message of Kubernetes that is no object.
var ErrNoObject = errors.New("it is no object of Kubernetes")

// Decode returns an encoded message as a value for package json, with the names of JSON.
func Decode(d protoreflect.MessageDescriptor, b []byte, objects Objects) (map[string]any, error) {
	return decode(d, b, objects, 0)
}

// maxDepth is how deep messages may nest.
const maxDepth = 100

func decode(d protoreflect.MessageDescriptor, b []byte, objects Objects, depth int) (map[string]any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("messages nest more than %d deep", maxDepth)
	}
	out := map[string]any{}
	for len(b) > 0 {
		number, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		b = b[n:]
		size := protowire.ConsumeFieldValue(number, typ, b)
		if size < 0 {
			return nil, protowire.ParseError(size)
		}
		raw := b[:size]
		b = b[size:]
		f := d.Fields().ByNumber(number)
		if f == nil {
			continue
		}
		if err := decodeField(out, f, typ, raw, objects, depth); err != nil {
			return nil, fmt.Errorf("field %s: %w", f.Name(), err)
		}
	}
	return out, nil
}

func decodeField(out map[string]any, f protoreflect.FieldDescriptor, typ protowire.Type, raw []byte, objects Objects, depth int) error {
	name := f.JSONName()
	switch {
	case f.IsMap():
		entry, err := decodeEntry(f, raw, objects, depth)
		if err != nil {
			return err
		}
		m, _ := out[name].(map[string]any)
		if m == nil {
			m = map[string]any{}
			out[name] = m
		}
		key, _ := entry["key"].(string)
		m[key] = entry["value"]
		return nil
	case f.IsList() && typ == protowire.BytesType && numeric(f):
		packed, _ := protowire.ConsumeBytes(raw)
		list, _ := out[name].([]any)
		for len(packed) > 0 {
			n := protowire.ConsumeFieldValue(1, wireType(f), packed)
			if n < 0 {
				return protowire.ParseError(n)
			}
			v, err := decodeValue(f, wireType(f), packed[:n], objects, depth)
			if err != nil {
				return err
			}
			list, packed = append(list, v), packed[n:]
		}
		out[name] = list
		return nil
	}
	v, err := decodeValue(f, typ, raw, objects, depth)
	if err != nil {
		return err
	}
	if f.IsList() {
		list, _ := out[name].([]any)
		out[name] = append(list, v)
		return nil
	}
	out[name] = v
	return nil
}

func decodeEntry(f protoreflect.FieldDescriptor, raw []byte, objects Objects, depth int) (map[string]any, error) {
	entry, n := protowire.ConsumeBytes(raw)
	if n < 0 {
		return nil, protowire.ParseError(n)
	}
	return decode(f.Message(), entry, objects, depth+1)
}

// numeric reports whether lists of the field may be packed.
func numeric(f protoreflect.FieldDescriptor) bool {
	return f.Message() == nil && f.Kind() != protoreflect.StringKind && f.Kind() != protoreflect.BytesKind
}

// wireType returns the wire type of one value of a field that is a number.
func wireType(f protoreflect.FieldDescriptor) protowire.Type {
	switch f.Kind() {
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind:
		return protowire.Fixed32Type
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.DoubleKind:
		return protowire.Fixed64Type
	case protoreflect.StringKind, protoreflect.BytesKind, protoreflect.MessageKind, protoreflect.GroupKind:
		return protowire.BytesType
	}
	return protowire.VarintType
}

func decodeValue(f protoreflect.FieldDescriptor, typ protowire.Type, raw []byte, objects Objects, depth int) (any, error) {
	if d := f.Message(); d != nil && opaque(d) && typ == protowire.Fixed64Type {
		ref, _ := protowire.ConsumeFixed64(raw)
		return objects.Object(abi.Ref(ref))
	}
	if want := wireType(f); typ != want {
		return nil, fmt.Errorf("it has wire type %d, want %d", typ, want)
	}
	var n uint64
	switch typ {
	case protowire.BytesType:
		b, _ := protowire.ConsumeBytes(raw)
		switch {
		case f.Message() != nil && (f.Message().FullName() == Timestamp || f.Message().FullName() == Duration):
			return decodeTime(f.Message().FullName(), b)
		case f.Message() != nil && opaque(f.Message()):
			if f.Message().FullName() == quantity {
				if err := CheckQuantity(b); err != nil {
					return nil, err
				}
			}
			return objects.DecodeValue(f.Message().FullName(), b)
		case f.Message() != nil:
			return decode(f.Message(), b, objects, depth+1)
		case f.Kind() == protoreflect.BytesKind:
			return b, nil
		case !utf8.Valid(b):
			return nil, errors.New("text is not UTF-8")
		}
		return string(b), nil
	case protowire.Fixed32Type:
		v, _ := protowire.ConsumeFixed32(raw)
		n = uint64(v)
	case protowire.Fixed64Type:
		n, _ = protowire.ConsumeFixed64(raw)
	default:
		n, _ = protowire.ConsumeVarint(raw)
	}
	switch f.Kind() {
	case protoreflect.BoolKind:
		return n != 0, nil
	case protoreflect.EnumKind:
		if v := f.Enum().Values().ByNumber(protoreflect.EnumNumber(int32(n))); v != nil {
			return string(v.Name()), nil
		}
		return int32(n), nil
	case protoreflect.FloatKind:
		return number(float64(math.Float32frombits(uint32(n)))), nil
	case protoreflect.DoubleKind:
		return number(math.Float64frombits(n)), nil
	case protoreflect.Int32Kind, protoreflect.Sfixed32Kind:
		return int32(n), nil
	case protoreflect.Sint32Kind:
		return int32(protowire.DecodeZigZag(n & math.MaxUint32)), nil
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return uint32(n), nil
	case protoreflect.Int64Kind, protoreflect.Sfixed64Kind:
		return int64(n), nil
	case protoreflect.Sint64Kind:
		return protowire.DecodeZigZag(n), nil
	}
	return n, nil
}

// number returns a number for package json, which has no infinities.
func number(v float64) any {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return v
}
