// Package strict decodes configuration. An unknown field is an error, which names the field
// that was probably meant.
package strict

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"

	goyaml "go.yaml.in/yaml/v2"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/internal/nearest"
)

// Unmarshal decodes JSON into to, as [kjson.UnmarshalStrict] does: the case of names counts.
// mistakes are the fields that are unknown or occur twice; all others are decoded. err is
// any other error.
func Unmarshal(data []byte, to any) (mistakes []error, err error) {
	mistakes, err = kjson.UnmarshalStrict(data, to)
	for i, mistake := range mistakes {
		mistakes[i] = explain(mistake, reflect.TypeOf(to))
	}
	return mistakes, Readable(err)
}

// Decode is Unmarshal with all mistakes joined.
func Decode(data []byte, to any) error {
	mistakes, err := Unmarshal(data, to)
	return errors.Join(append(mistakes, err)...)
}

// Names returns the mistakes in the names of a value that was decoded from JSON or YAML, for
// the type that to points to. Values are not checked: YAML may take a string for a number
// or a boolean.
func Names(value, to any) []error {
	data, err := json.Marshal(namesOf(value))
	if err != nil {
		return []error{err}
	}
	mistakes, _ := Unmarshal(data, reflect.New(reflect.TypeOf(to).Elem()).Interface())
	return mistakes
}

// YAML decodes a document in YAML or JSON into to, as [yaml.UnmarshalStrict] does, with the
// mistakes of Names.
func YAML(data []byte, to any) error {
	var value any
	if err := yaml.Unmarshal(data, &value); err != nil {
		return cmp.Or(errors.Join(Infinite(data)...), err)
	}
	if mistakes := Names(value, to); len(mistakes) != 0 {
		return errors.Join(mistakes...)
	}
	return Readable(yaml.UnmarshalStrict(data, to))
}

// Infinite returns an error for each number of a document in YAML that JSON has no form for. The
// error of sigs.k8s.io/yaml does not say which it is.
func Infinite(data []byte) []error {
	var members goyaml.MapSlice // In the order of the document.
	if goyaml.Unmarshal(data, &members) != nil {
		return nil
	}
	return infinite(nil, "", members)
}

func infinite(errs []error, path string, value any) []error {
	switch value := value.(type) {
	case float64:
		if math.IsInf(value, 0) || math.IsNaN(value) {
			errs = append(errs, fmt.Errorf("%s is %v, which JSON has no form for", cmp.Or(path, "the document"), value))
		}
	case []any:
		for i, item := range value {
			errs = infinite(errs, fmt.Sprintf("%s[%d]", path, i), item)
		}
	case goyaml.MapSlice:
		for _, item := range value {
			errs = infinite(errs, strings.TrimPrefix(fmt.Sprintf("%s.%v", path, item.Key), "."), item.Value)
		}
	}
	return errs
}

// namesOf returns a value without its numbers and booleans, which may be meant as strings.
func namesOf(value any) any {
	switch value := value.(type) {
	case string:
		return value
	case []any:
		list := make([]any, len(value))
		for i := range value {
			list[i] = namesOf(value[i])
		}
		return list
	case map[string]any:
		fields := make(map[string]any, len(value))
		for key := range value {
			fields[key] = namesOf(value[key])
		}
		return fields
	}
	return nil
}

// unknownRE matches the error of package json for an unknown field. It has the path of the
// field, such as spec.containers[0].image.
var unknownRE = regexp.MustCompile(`^unknown field "((?:.*\.)?([^.\[\]]+))"$`)

// explain adds the nearest known field to a mistake in a value of type t.
func explain(mistake error, t reflect.Type) error {
	match := unknownRE.FindStringSubmatch(mistake.Error())
	if match == nil {
		return mistake
	}
	for step := range strings.SplitSeq(strings.TrimSuffix(match[1], match[2]), ".") {
		name, _, _ := strings.Cut(step, "[")
		if t = element(t); name == "" {
			continue
		}
		switch t.Kind() {
		case reflect.Map:
			t = t.Elem()
		case reflect.Struct:
			if t = fields(t)[name]; t == nil {
				return mistake
			}
		}
	}
	known := fields(element(t))
	names := make([]string, 0, len(known))
	for name := range known {
		names = append(names, name)
	}
	slices.Sort(names)
	if hint := nearest.Hint(", ", match[2], names); hint != "" {
		return fmt.Errorf("%w%s", mistake, hint)
	}
	return mistake
}

// element returns the type of the elements of pointers, lists and maps.
func element(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Array {
		t = t.Elem()
	}
	return t
}

// fields returns the types of the fields of a struct by their names in JSON, those of
// embedded structs included; nil if t is no struct.
func fields(t reflect.Type) map[string]reflect.Type {
	if t.Kind() != reflect.Struct {
		return nil
	}
	all := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		tag := f.Tag.Get("json")
		name, _, _ := strings.Cut(tag, ",")
		switch {
		case !f.IsExported() || tag == "-" || f.Anonymous && name == "":
			continue
		case name == "":
			name = f.Name
		}
		all[name] = f.Type
	}
	return all
}
