package field

import (
	"strconv"
	"strings"

	"github.com/kubewasm/kubewasm/guest/admission/internal/encode"
	"github.com/kubewasm/kubewasm/internal/json"
)

// Path is the way from an object's root to one of its fields. A nil *Path is
// the root.
type Path struct {
	parent *Path
	name   string // The name of a member, or
	index  string // an index or a key in brackets.
	list   bool   // It is an index.
}

// NewPath returns the path of the field name of the root, or of a field further
// down.
func NewPath(name string, more ...string) *Path { return (*Path)(nil).Child(name, more...) }

// Child returns the path of the field name below p, or of a field further down.
func (p *Path) Child(name string, more ...string) *Path {
	p = &Path{parent: p, name: name}
	for _, name := range more {
		p = &Path{parent: p, name: name}
	}
	return p
}

// Index returns the path of an element of the list p.
func (p *Path) Index(i int) *Path { return &Path{parent: p, index: strconv.Itoa(i), list: true} }

// Key returns the path of an entry of the map p.
func (p *Path) Key(key string) *Path { return &Path{parent: p, index: key} }

// Parent returns the path of the object or list that contains p, nil for the
// root.
func (p *Path) Parent() *Path {
	if p == nil {
		return nil
	}
	return p.parent
}

// Token returns the last step of the path, in the form of a JSON Pointer but not escaped, and
// whether it is the index of a list.
func (p *Path) Token() (token string, index bool) {
	switch {
	case p == nil:
		return "", false
	case p.name != "":
		return p.name, false
	}
	return p.index, p.list
}

// String returns the path as messages show it: "spec.containers[0].image".
func (p *Path) String() string {
	var b strings.Builder
	p.write(&b)
	return b.String()
}

func (p *Path) write(b *strings.Builder) {
	if p == nil {
		return
	}
	p.parent.write(b)
	if p.name == "" {
		b.WriteString("[" + p.index + "]")
		return
	}
	if b.Len() != 0 {
		b.WriteByte('.')
	}
	b.WriteString(p.name)
}

// The types of mistakes, values of metav1.CauseType. Each has a function that makes an
// [Error] of it.
const (
	typeNotFound     = "FieldValueNotFound"
	typeRequired     = "FieldValueRequired"
	typeDuplicate    = "FieldValueDuplicate"
	typeInvalid      = "FieldValueInvalid"
	typeNotSupported = "FieldValueNotSupported"
	typeForbidden    = "FieldValueForbidden"
	typeTooLong      = "FieldValueTooLong"
	typeTooMany      = "FieldValueTooMany"
	typeTypeInvalid  = "FieldValueTypeInvalid"
	typeInternal     = "InternalError"
)

// Error is a mistake in one field.
type Error struct {
	// Type is the kind of the mistake: a value of metav1.CauseType, such as
	// "FieldValueRequired". The functions below set it.
	Type string
	// Field is the path of the field.
	Field string
	// BadValue is the value of the field, as JSON; empty if it is not shown.
	// The functions below set it.
	BadValue string
	// Detail describes the mistake. It may be empty.
	Detail string
}

// ErrorList is the mistakes in an object.
type ErrorList []*Error

// Error returns one line, such as
//
//	spec.containers[0].image: Invalid value: "nginx": must come from registry.example.com
func (e *Error) Error() string { return e.Field + ": " + e.ErrorBody() }

// ErrorBody is Error without the path.
func (e *Error) ErrorBody() string {
	s := title(e.Type)
	if e.BadValue != "" {
		s += ": " + e.BadValue
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// title returns the beginning of messages for mistakes of a type.
func title(errorType string) string {
	switch errorType {
	case typeNotFound:
		return "Not found"
	case typeRequired:
		return "Required value"
	case typeDuplicate:
		return "Duplicate value"
	case typeInvalid, typeTypeInvalid:
		return "Invalid value"
	case typeNotSupported:
		return "Unsupported value"
	case typeForbidden:
		return "Forbidden"
	case typeTooLong:
		return "Too long"
	case typeTooMany:
		return "Too many"
	case typeInternal:
		return "Internal error"
	}
	return errorType
}

// Invalid reports that a value is malformed or out of bounds.
func Invalid(field *Path, value any, detail string) *Error {
	return &Error{typeInvalid, field.String(), string(encode.Append(nil, value)), detail}
}

// TypeInvalid reports that a value is of the wrong type.
func TypeInvalid(field *Path, value any, detail string) *Error {
	return &Error{typeTypeInvalid, field.String(), string(encode.Append(nil, value)), detail}
}

// Required reports that a value is missing or empty.
func Required(field *Path, detail string) *Error {
	return &Error{typeRequired, field.String(), "", detail}
}

// Forbidden reports that a value would be right under other circumstances, such as
// for another user.
func Forbidden(field *Path, detail string) *Error {
	return &Error{typeForbidden, field.String(), "", detail}
}

// NotFound reports that a value names a thing that does not exist.
func NotFound(field *Path, value any) *Error {
	return &Error{typeNotFound, field.String(), string(encode.Append(nil, value)), ""}
}

// Duplicate reports that a value must be unique and is not.
func Duplicate(field *Path, value any) *Error {
	return &Error{typeDuplicate, field.String(), string(encode.Append(nil, value)), ""}
}

// NotSupported reports that a value is none of validValues.
func NotSupported[T ~string](field *Path, value any, validValues []T) *Error {
	detail := ""
	for i, valid := range validValues {
		if i == 0 {
			detail = "supported values: "
		} else {
			detail += ", "
		}
		detail += string(json.AppendString(nil, string(valid)))
	}
	return &Error{typeNotSupported, field.String(), string(encode.Append(nil, value)), detail}
}

// TooLong reports that a value has more than maxLength bytes. The value itself is
// not shown.
func TooLong(field *Path, _ any, maxLength int) *Error {
	detail := "value is too long"
	if maxLength >= 0 {
		detail = "may not be more than " + strconv.Itoa(maxLength) + " bytes"
	}
	return &Error{typeTooLong, field.String(), "", detail}
}

// TooMany reports that a list has actual items, more than max.
func TooMany(field *Path, actual, max int) *Error {
	detail := "has too many items"
	if max >= 0 {
		detail = "must have at most " + strconv.Itoa(max) + " items"
	}
	return &Error{typeTooMany, field.String(), string(encode.Append(nil, actual)), detail}
}

// InternalError reports that a field could not be checked.
func InternalError(field *Path, err error) *Error {
	return &Error{typeInternal, field.String(), "", err.Error()}
}
