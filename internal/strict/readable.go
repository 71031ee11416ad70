package strict

import (
	"encoding/json"
	"errors"
	"reflect"
	"regexp"
	"strings"
	"unicode"
)

// typeRE matches the error of package json for a value of another type than that of its field,
// with what package yaml of Kubernetes puts before it.
var typeRE = regexp.MustCompile(`(?:error unmarshaling JSON: )?(?:while decoding JSON: )?json: cannot unmarshal (\S+)(?: (\S+))? into Go (?:struct field (\S+)|value) of type (.+)`)

// Readable returns an error of package json in words of YAML: "limits.memoryBytes is a text, want
// a whole number". Others stay as they are. It wraps err.
func Readable(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	m := typeRE.FindStringSubmatch(text)
	if m == nil {
		return err
	}
	path := fieldOf(m[3])
	got, want := valueOf(m[1], m[2]), wantOf(m[4], m[1], err)
	switch {
	case want == wholeNumber && m[1] == "string" && strings.HasSuffix(path, "Bytes"):
		want += " of bytes, such as 67108864 for 64Mi"
	case want == aText && m[1] == "bool":
		want += "; YAML reads y, n, yes, no, on and off without quotes as true or false"
	}
	if path == "" {
		path = "it"
	}
	return &readable{strings.Replace(text, m[0], path+" is "+got+", want "+want, 1), err}
}

type readable struct {
	text string
	err  error
}

func (r *readable) Error() string { return r.text }
func (r *readable) Unwrap() error { return r.err }

// fieldOf returns the path of a field without the types that package json has in it: that of the
// outermost struct, and those of embedded ones, which are exported or end in Fields.
func fieldOf(path string) string {
	_, path, _ = strings.Cut(path, ".")
	var steps []string
	for step := range strings.SplitSeq(path, ".") {
		if step != "" && !unicode.IsUpper(rune(step[0])) && !strings.HasSuffix(step, "Fields") {
			steps = append(steps, step)
		}
	}
	return strings.Join(steps, ".")
}

func valueOf(kind, value string) string {
	switch kind {
	case "string":
		return "a text"
	case "bool":
		return "true or false"
	case "array":
		return "a list"
	case "object":
		return "a mapping"
	case "number":
		if value != "" {
			return "the number " + value
		}
		return "a number"
	}
	return kind
}

const wholeNumber, aText = "a whole number", "a text"

// wantOf returns what the values of a type are. A named type is known by its name alone where
// the error has lost it.
func wantOf(name, got string, err error) string {
	name = strings.TrimLeft(name, "*")
	switch {
	case strings.HasSuffix(strings.ToLower(name), "duration"):
		return "a duration such as 100ms"
	case name == "[]uint8":
		return "base64"
	case name == "[]string":
		return "a list of texts"
	case strings.HasPrefix(name, "[]"):
		return "a list"
	case strings.HasPrefix(name, "map["), strings.HasPrefix(name, "struct"):
		return "a mapping"
	}
	kind := reflect.Invalid
	if typed := (*json.UnmarshalTypeError)(nil); errors.As(err, &typed) {
		kind = typed.Type.Kind()
	}
	switch {
	case name == "bool" || kind == reflect.Bool:
		return "true or false"
	case name == "string" || kind == reflect.String:
		return aText
	case strings.HasPrefix(name, "float") || kind == reflect.Float32 || kind == reflect.Float64:
		return "a number"
	case strings.HasPrefix(name, "int"), strings.HasPrefix(name, "uint"), kind >= reflect.Int && kind <= reflect.Uint64:
		return wholeNumber
	case kind == reflect.Slice:
		return "a list"
	case kind == reflect.Struct, kind == reflect.Map, got == "string":
		return "a mapping"
	}
	return "a text or a mapping"
}
