package codec

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Any stands for the type of objects that is known only when the program runs. There is no
// value of it: a pointer to an object of the type that [EncoderOf] was given is converted
// to an *Any by package unsafe.
type Any struct{ _ byte }

// EncoderOf returns the Encoder of all fields of objects of a type, without managedFields.
// ok is false if the type is no struct of k8s.io/api that consists of metadata, spec and
// status: then there is nothing for guests to read by parts, see [Encode].
func EncoderOf(t reflect.Type) (e *Encoder[Any], ok bool) {
	if t.Kind() != reflect.Struct || !reflect.PointerTo(t).Implements(reflect.TypeFor[message]()) {
		return nil, false
	}
	hasMetadata := false
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Tag.Get("protobuf") == "" {
			continue
		}
		number := fieldNumber(f)
		if number > 3 || f.Type.Kind() != reflect.Struct {
			return nil, false
		}
		hasMetadata = hasMetadata || number == MetadataPart && f.Type == reflect.TypeFor[metav1.ObjectMeta]()
	}
	if !hasMetadata {
		return nil, false
	}
	// A few types have fields that no part of an object in the scheduler has, such as bytes
	// in a map. They are encoded whole.
	defer func() {
		if recover() != nil {
			e, ok = nil, false
		}
	}()
	return newEncoder[Any]((*tree)(nil).ofObject(t).encoder(t)), true
}
