package objects

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Any stands for a type of objects that is known only when the program runs. There is no value of
// it: a pointer to an object of the type that [EncoderOf] was given is converted to an *Any by
// package unsafe.
type Any struct{ _ byte }

// EncoderOf returns the Encoder of all fields of objects of a type, without managedFields. ok is
// false if the type is no struct of k8s.io/api that consists of metadata, spec and status: then
// guests cannot read it by parts, see [Encode].
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
	// A few types have fields of kinds that no object in the scheduler has, such as bytes in a map.
	// They are encoded whole.
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
// count. If there is none, all fields travel, and the Encoder is nil for a type that [EncoderOf]
// does not support: see [PickOf] and [CutOf]. The error names every path that does not exist.
func FieldsOf(t reflect.Type, paths []string) (*Encoder[Any], error) {
	whole, byParts := EncoderOf(t)
	tr, err := treeOf(t, paths)
	if tr == nil || !byParts {
		return whole, err
	}
	return newEncoder[Any](tr.ofObject(t).encoder(t)), nil
}

// treeOf returns the fields that paths name, and those that identify an object; nil if no path names
// the type.
func treeOf(t reflect.Type, paths []string) (*tree, error) {
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
		if err == nil {
			err = tr.add(t, names, entry)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("field path %q: %w", path, err))
		}
	}
	if !named || len(errs) != 0 {
		return nil, errors.Join(errs...)
	}
	for _, path := range identifying {
		_ = tr.add(t, path, "") // Every kind has them.
	}
	return tr, nil
}

// Pick is the set of fields that guests get of objects of k8s.io/api that are read whole, such as
// ConfigMaps and Secrets.
type Pick struct {
	typ  reflect.Type
	tree *tree
}

// PickOf returns the Pick of the fields that paths name, as in [FieldsOf]; nil if no path names the
// type.
func PickOf(t reflect.Type, paths []string) (*Pick, error) {
	tr, err := treeOf(t, paths)
	if tr == nil {
		return nil, err
	}
	return &Pick{t, tr}, nil
}

// Encode is [Encode] of an object with these fields alone. object is a pointer to the type of the
// Pick, and not changed.
func (p *Pick) Encode(object metav1.Object) ([]byte, error) {
	picked := reflect.New(p.typ)
	p.tree.pick(picked.Elem(), reflect.ValueOf(object).Elem())
	return Encode(picked.Interface().(metav1.Object))
}

// pick sets the fields of to, which is zero, that are in the tree. Values are shared.
func (tr *tree) pick(to, from reflect.Value) {
	if tr.whole {
		to.Set(from)
		return
	}
	switch from.Kind() {
	case reflect.Pointer:
		if !from.IsNil() {
			to.Set(reflect.New(from.Type().Elem()))
			tr.pick(to.Elem(), from.Elem())
		}
	case reflect.Slice:
		to.Set(reflect.MakeSlice(from.Type(), from.Len(), from.Len()))
		for i := range from.Len() {
			tr.pick(to.Index(i), from.Index(i))
		}
	case reflect.Map:
		to.Set(reflect.MakeMap(from.Type()))
		for _, entry := range tr.entries {
			key := reflect.ValueOf(entry).Convert(from.Type().Key())
			if v := from.MapIndex(key); v.IsValid() {
				to.SetMapIndex(key, v)
			}
		}
	case reflect.Struct:
		for _, f := range tr.fields {
			f.tree.pick(to.FieldByIndex(f.index), from.FieldByIndex(f.index))
		}
	}
}

// IsMessage reports whether objects of a type are encoded in protobuf: those of k8s.io/api.
func IsMessage(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[message]())
}
