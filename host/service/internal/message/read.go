package message

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"unsafe"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/serviceschema"
)

// Read reads a message in JSON into the struct at p, by the descriptor of the message. The old
// content of the struct is dropped. The errors are those of [serviceschema.Encode].
func (m *Type) Read(d protoreflect.MessageDescriptor, text []byte, p unsafe.Pointer) error {
	r := &documents{types: map[protoreflect.FullName]reflect.Type{}}
	m.foreign(d, r.types, map[*Type]bool{})
	b, err := serviceschema.Encode(d, text, r)
	if err != nil {
		return err
	}
	m.Clear(p)
	decoder := decoder{refs: objectsOf{r}, memory: math.MaxInt} // The text is the component's own.
	return decoder.message(b, m, p, 0)
}

// foreign adds the types that messages of Kubernetes have in the structs, by their full names.
func (m *Type) foreign(d protoreflect.MessageDescriptor, types map[protoreflect.FullName]reflect.Type, seen map[*Type]bool) {
	if seen[m] {
		return
	}
	seen[m] = true
	for i := range m.fields {
		f := &m.fields[i]
		descriptor := d.Fields().ByNumber(protoreflect.FieldNumber(f.number))
		if descriptor == nil {
			continue
		}
		if descriptor.IsMap() {
			descriptor = descriptor.MapValue()
		}
		switch f.kind {
		case messages:
			f.message.foreign(descriptor.Message(), types, seen)
		case values:
			types[descriptor.Message().FullName()] = f.of
		}
	}
}

// documents are the messages of Kubernetes in a text.
type documents struct {
	// types are those of messages that are no objects.
	types map[protoreflect.FullName]reflect.Type
	// objects are in JSON. The ref of each is its place, plus one.
	objects []json.RawMessage
}

var _ serviceschema.Objects = &documents{}

// Ref implements serviceschema.Objects. The object is decoded when its type is known.
func (r *documents) Ref(of protoreflect.FullName, object []byte) (abi.Ref, error) {
	if r.types[of] != nil {
		return 0, serviceschema.ErrNoObject
	}
	r.objects = append(r.objects, object)
	return abi.Ref(len(r.objects)), nil
}

// Value implements serviceschema.Objects.
func (r *documents) Value(of protoreflect.FullName, text []byte) ([]byte, error) {
	v := reflect.New(r.types[of])
	if err := serviceschema.ReadObject(text, v.Interface()); err != nil {
		return nil, err
	}
	return v.Interface().(value).Marshal()
}

var errWrites = errors.New("text is only read, never written")

// Object implements serviceschema.Objects, for Decode.
func (r *documents) Object(abi.Ref) (any, error) { return nil, errWrites }

// DecodeValue implements serviceschema.Objects, for Decode.
func (r *documents) DecodeValue(protoreflect.FullName, []byte) (any, error) { return nil, errWrites }

// objectsOf are the objects of a text.
type objectsOf struct{ *documents }

var _ Refs = objectsOf{}

// Ref implements Refs, for Append.
func (objectsOf) Ref(reflect.Type, unsafe.Pointer) (abi.Ref, error) { return 0, errWrites }

// Object implements Refs.
func (o objectsOf) Object(t reflect.Type, ref abi.Ref) (unsafe.Pointer, error) {
	v := reflect.New(t)
	if err := serviceschema.ReadObject(o.objects[ref-1], v.Interface()); err != nil {
		return nil, err
	}
	return v.UnsafePointer(), nil
}
