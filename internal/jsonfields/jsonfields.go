// Package jsonfields lists the fields of a struct by their names in JSON.
package jsonfields

import (
	"reflect"
	"strings"
)

// Field is a field of a struct as a document names it.
type Field struct {
	reflect.StructField
	// Name is the name in a document.
	Name string
	// Omit is the condition under which configfile.Marshal leaves out the field: "", "omitempty" or
	// "omitzero".
	Omit string
}

// Of returns the fields of a struct in their order, those of embedded structs included, by
// their tags for package json.
func Of(t reflect.Type) (fields []Field) {
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case !f.IsExported() || name == "-" || f.Anonymous && name == "":
			continue
		case name == "":
			name = f.Name
		}
		omit := ""
		for option := range strings.SplitSeq(options, ",") {
			if option == "omitempty" || option == "omitzero" {
				omit = option
			}
		}
		fields = append(fields, Field{f, name, omit})
	}
	return fields
}
