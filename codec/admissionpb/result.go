package admissionpb

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Result is everything about a verdict that is neither its number nor its HTTP
// code nor its message.
type Result struct {
	// Reason is a value of metav1.StatusReason, or empty.
	Reason      string
	FieldErrors []FieldError
	Warnings    []string
	// AuditAnnotations have the keys that the plugin gave them.
	AuditAnnotations map[string]string
}

// FieldError is what is wrong with one field.
type FieldError struct {
	// Field is the path of the field, Type a value of field.ErrorType, Message
	// what is wrong with it.
	Field, Type, Message string
	// BadValue is the value of the field, meant to be JSON; nil if it is not to
	// be shown.
	BadValue *string
}

// ErrMalformed says that bytes are not the message that they should be: cut
// off, with a known field of the wrong wire type, or a string that is not
// UTF-8.
var ErrMalformed = errors.New("malformed message")

// ParseResult decodes a result, which a guest wrote and nobody has checked. It
// copies what it keeps of b. No bytes are an empty result.
//
// Unknown fields are skipped; of a field that occurs twice the last one counts,
// as protobuf has it. Unlike protobuf's own decoders it refuses a known field of
// another wire type instead of skipping it: whoever wrote it meant something by
// it. Every error wraps [ErrMalformed] and names the field.
func ParseResult(b []byte) (*Result, error) {
	r := new(Result)
	err := fields(b, func(f *message) {
		switch f.number {
		case 1:
			r.Reason = f.text("reason")
		case 2:
			r.FieldErrors = append(r.FieldErrors, f.fieldError("fieldErrors"))
		case 3:
			r.Warnings = append(r.Warnings, f.text("warnings"))
		case 4:
			key, value := f.entry("auditAnnotations")
			if r.AuditAnnotations == nil {
				r.AuditAnnotations = map[string]string{}
			}
			r.AuditAnnotations[key] = value
		}
	})
	if err != nil {
		return nil, fmt.Errorf("parse admission result: %w: %w", ErrMalformed, err)
	}
	return r, nil
}

// message is a field that a walk has come to.
type message struct {
	number protowire.Number
	typ    protowire.Type
	value  []byte // Of a field of type bytes.
	err    error
}

// fields calls visit for each field of the message in b, until an error.
func fields(b []byte, visit func(*message)) error {
	var m message
	for len(b) != 0 {
		number, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("read a tag: %w", protowire.ParseError(n))
		}
		if number > protowire.MaxValidNumber {
			return fmt.Errorf("read a tag: field number is %d, more than %d", number, protowire.MaxValidNumber)
		}
		b = b[n:]
		m.number, m.typ, m.value = number, typ, nil
		if typ == protowire.BytesType {
			m.value, n = protowire.ConsumeBytes(b)
		} else {
			n = protowire.ConsumeFieldValue(number, typ, b)
		}
		if n < 0 {
			return fmt.Errorf("read field %d: %w", number, protowire.ParseError(n))
		}
		b = b[n:]
		if visit(&m); m.err != nil {
			return m.err
		}
	}
	return nil
}

// bytes returns the field's bytes. name is that of the field, for errors.
func (m *message) bytes(name string) []byte {
	if m.typ != protowire.BytesType {
		m.err = fmt.Errorf("field %s has wire type %d, want %d", name, m.typ, protowire.BytesType)
	}
	return m.value
}

func (m *message) text(name string) string {
	b := m.bytes(name)
	if m.err == nil && !utf8.Valid(b) {
		m.err = fmt.Errorf("field %s is not UTF-8: %.40q", name, b)
	}
	return string(b)
}

// nested visits the fields of the message that the field is.
func (m *message) nested(name string, visit func(*message)) {
	b := m.bytes(name)
	if m.err != nil {
		return
	}
	if err := fields(b, visit); err != nil {
		m.err = fmt.Errorf("%s: %w", name, err)
	}
}

func (m *message) fieldError(name string) FieldError {
	var e FieldError
	m.nested(name, func(f *message) {
		switch f.number {
		case 1:
			e.Field = f.text("field")
		case 2:
			e.Type = f.text("type")
		case 3:
			e.Message = f.text("message")
		case 4:
			value := f.text("badValue")
			e.BadValue = &value
		}
	})
	return e
}

// entry reads an entry of a map<string, string>.
func (m *message) entry(name string) (key, value string) {
	m.nested(name, func(f *message) {
		switch f.number {
		case 1:
			key = f.text("key")
		case 2:
			value = f.text("value")
		}
	})
	return key, value
}
