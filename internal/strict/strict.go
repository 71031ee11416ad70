// Package strict decodes configuration. An unknown field is an error, which names the field
// that was probably meant.
package strict

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"

	"github.com/kubewasm/kubewasm/internal/jsonfields"
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
	for _, f := range jsonfields.Of(t) {
		all[f.Name] = f.Type
	}
	return all
}
