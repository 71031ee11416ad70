package objects

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	walk "github.com/kubewasm/kubewasm/internal/json"
	"github.com/kubewasm/kubewasm/internal/nearest"
)

// Bounds of the paths of a configuration, which may be written by people other than the host's
// operators.
const (
	maxPaths     = 1000
	maxPathBytes = 1024
	maxPathNames = 64
)

// CheckPaths returns an error for more or longer paths than a configuration may have.
func CheckPaths(paths []string) error {
	if len(paths) > maxPaths {
		return fmt.Errorf("%d field paths are more than %d", len(paths), maxPaths)
	}
	for _, path := range paths {
		if len(path) > maxPathBytes {
			return fmt.Errorf("field path %.40q…: %d bytes are more than %d", path, len(path), maxPathBytes)
		}
		if n := strings.Count(path, ".") + 1; n > maxPathNames {
			return fmt.Errorf("field path %.40q…: %d names are more than %d", path, n, maxPathNames)
		}
	}
	return nil
}

// Cut is the set of fields that guests get of objects that are read whole in JSON: custom
// resources. Its objects have apiVersion, kind and the fields that identify them in any case.
type Cut struct{ members }

// members are the members of a JSON object that travel, or those of the elements of a list.
type members struct {
	// whole is set if all members travel, whatever names has.
	whole bool
	names map[string]*members
}

// CutOf returns the Cut of the fields of objects of a kind that paths name, as in [FieldsOf]; nil if
// no path names the kind. t is their type, [unstructured.Unstructured] for objects of any fields.
// The error names every path that leads to no field.
func CutOf(t reflect.Type, kind string, paths []string) (*Cut, error) {
	c := &Cut{}
	named := false
	var errs []error
	for _, path := range paths {
		if kindOf(path) != kind {
			continue
		}
		named = true
		before, entry, err := cutEntry(path)
		_, rest, below := strings.Cut(before, ".")
		var names []string
		if below {
			names = strings.Split(rest, ".")
		}
		switch {
		case err != nil:
		case slices.Contains(names, ""):
			err = errors.New("a name is empty")
		case len(names) == 2 && names[0] == "metadata" && names[1] == managedFields:
			err = errors.New("managedFields never travel")
		case t != reflect.TypeFor[unstructured.Unstructured]():
			err = checkNames(t, names, entry)
		case entry != "" && len(names) == 0:
			err = errors.New("an object has no entries")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("field path %q: %w", path, err))
			continue
		}
		if entry != "" {
			names = append(names, entry)
		}
		c.add(names)
	}
	if !named || len(errs) != 0 {
		return nil, errors.Join(errs...)
	}
	return c.identified(), nil
}

// Identity returns the Cut that leaves only the identity of an object.
func Identity() *Cut { return new(Cut).identified() }

func (c *Cut) identified() *Cut {
	c.add([]string{"apiVersion"})
	c.add([]string{"kind"})
	for _, path := range identifying {
		c.add(path)
	}
	return c
}

func (m *members) add(names []string) {
	for _, name := range names {
		if m.names == nil {
			m.names = map[string]*members{}
		}
		if m.names[name] == nil {
			m.names[name] = &members{}
		}
		m = m.names[name]
	}
	m.whole = true
}

// Append appends the part of an object that the Cut leaves. The object must be JSON.
func (c *Cut) Append(dst, object []byte) []byte { return c.append(dst, bytes.TrimSpace(object)) }

// append appends the rest of a value. Of a number, a text and null nothing is left, since no path
// goes on there: dst is returned as it is.
func (m *members) append(dst []byte, value walk.Value) []byte {
	if m.whole {
		return append(dst, value...)
	}
	begin, found := len(dst), false
	switch value.Kind() {
	case walk.KindObject:
		dst = append(dst, '{')
		for o := walk.Object(value); o.Next(); {
			below := m.names[o.Key()]
			if below == nil {
				continue
			}
			was := len(dst)
			if was > begin+1 {
				dst = append(dst, ',')
			}
			dst = append(walk.AppendString(dst, o.Key()), ':')
			if dst, found = below.appended(dst, o.Value()); !found {
				dst = dst[:was]
			}
		}
		return append(dst, '}')
	case walk.KindArray:
		dst = append(dst, '[')
		for a := walk.Array(value); a.Next(); {
			was := len(dst)
			if was > begin+1 {
				dst = append(dst, ',')
			}
			if dst, found = m.appended(dst, a.Value()); !found {
				dst = dst[:was]
			}
		}
		return append(dst, ']')
	}
	return dst
}

// appended is append, and reports whether anything is left.
func (m *members) appended(dst []byte, value walk.Value) (_ []byte, found bool) {
	n := len(dst)
	dst = m.append(dst, value)
	return dst, len(dst) > n
}

// checkNames returns an error if names, and the key of an entry unless it is "", lead to no field of a
// type by their names in JSON.
func checkNames(t reflect.Type, names []string, entry string) error {
	for i := 0; ; i++ {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 || t.Kind() == reflect.Array {
			t = t.Elem()
		}
		rest := names[i:]
		switch {
		case len(rest) == 0 && entry == "":
			return nil
		case len(rest) == 0 && t.Kind() != reflect.Map:
			return fmt.Errorf("%s has no entries, so %q must be left out", describe(t), "["+entry+"]")
		case len(rest) == 0:
			return nil
		case t.Kind() == reflect.Map:
			return fmt.Errorf("a map has no fields; its entries stand in brackets, as in %q", "["+strings.Join(rest, ".")+"]")
		case i > 0 && !nested(t):
			return fmt.Errorf("%s has no fields that can be told apart, so %q must be left out", describe(t), strings.Join(rest, "."))
		}
		fields := map[string]reflect.Type{}
		jsonFields(t, fields, 0)
		next, ok := fields[rest[0]]
		if !ok {
			var all []string
			for name := range fields {
				all = append(all, name)
			}
			slices.Sort(all)
			return fmt.Errorf("%s has no field %q%s", t.Name(), rest[0], nearest.Hint("; ", rest[0], all))
		}
		t = next
	}
}

// jsonFields collects the fields of a struct by their names in JSON, those of embedded structs
// included.
func jsonFields(t reflect.Type, fields map[string]reflect.Type, depth int) {
	const deepest = 8 // A type may embed a pointer to itself.
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		embedded := f.Type
		if embedded.Kind() == reflect.Pointer {
			embedded = embedded.Elem()
		}
		switch {
		case name == "-":
		case name == "" && f.Anonymous && embedded.Kind() == reflect.Struct:
			if depth < deepest && embedded != reflect.TypeFor[metav1.TypeMeta]() {
				jsonFields(embedded, fields, depth+1)
			}
		case !f.IsExported():
		case name == "":
			fields[f.Name] = f.Type
		default:
			fields[name] = f.Type
		}
	}
}
