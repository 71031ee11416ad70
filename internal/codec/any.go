package codec

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

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

// KindOf returns the first word of the paths to fields of objects of a type: its name in lower
// case.
func KindOf(t reflect.Type) string { return strings.ToLower(t.Name()) }

// FieldsOf returns the Encoder of the fields of objects of a type that paths name, as in
// [ParseFieldSet], beside the object's name, namespace and UID. The paths of other kinds do not
// count. If there is none, all fields travel, and the Encoder is nil for a type that is no type
// of [EncoderOf]. The error names every path that does not exist.
func FieldsOf(t reflect.Type, paths []string) (*Encoder[Any], error) {
	whole, byParts := EncoderOf(t)
	tr := &tree{}
	var errs []error
	named := false
	for _, path := range paths {
		if kind, _, _ := strings.Cut(path, "."); kind != KindOf(t) {
			continue
		}
		before, entry, err := cutEntry(path)
		_, rest, _ := strings.Cut(before, ".")
		var names []string
		if rest != "" {
			names = strings.Split(rest, ".")
		}
		named = true
		switch {
		case err != nil:
		case !byParts:
			err = fmt.Errorf("a %s is read as a whole", t.Name())
		default:
			err = tr.add(t, names, entry)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("field path %q: %w", path, err))
		}
	}
	if !named || len(errs) != 0 {
		return whole, errors.Join(errs...)
	}
	for _, path := range identity {
		_ = tr.add(t, path, "") // Every kind has them.
	}
	return newEncoder[Any](tr.ofObject(t).encoder(t)), nil
}
