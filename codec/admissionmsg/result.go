package admissionmsg

import (
	"fmt"

	"github.com/kubewasm/kubewasm/internal/wire"
)

// Result holds all parts of a verdict except its number, its HTTP code and its message.
type Result struct {
	// Reason is a value of metav1.StatusReason, or empty.
	Reason      string
	FieldErrors []FieldError
	Warnings    []string
	// AuditAnnotations have the keys that the plugin gave them.
	AuditAnnotations map[string]string
}

// FieldError is a mistake in one field.
type FieldError struct {
	// Field is the path of the field, Type a value of field.ErrorType, Message the description of
	// the mistake.
	Field, Type, Message string
	// BadValue is the value of the field, meant to be JSON; nil if it is not to
	// be shown.
	BadValue *string
}

// ParseResult decodes a result that a guest wrote, unchecked. It copies the parts of b that it
// keeps. No bytes are an empty result.
//
// Unknown fields are skipped; of a field that occurs twice the last one counts, as protobuf has it.
// Unlike protobuf's own decoders it refuses a known field of a different wire type instead of
// skipping it: the guest set it on purpose. Every error wraps ErrMalformed of package codec and
// names the field.
func ParseResult(b []byte) (*Result, error) {
	r := new(Result)
	c := wire.NewCursor(b)
	for c.Next() {
		switch c.Number {
		case 1:
			r.Reason = c.String("reason")
		case 2:
			r.FieldErrors = append(r.FieldErrors, fieldError(&c, "fieldErrors"))
		case 3:
			r.Warnings = append(r.Warnings, c.String("warnings"))
		case 4:
			c.Entry("auditAnnotations", &r.AuditAnnotations)
		}
	}
	if err := c.Err(); err != nil {
		return nil, fmt.Errorf("parse admission result: %w", err)
	}
	return r, nil
}

// fieldError reads the FieldError in the field name.
func fieldError(c *wire.Cursor, name string) FieldError {
	var e FieldError
	m := c.Message(name)
	for m.Next() {
		switch m.Number {
		case 1:
			e.Field = m.String("field")
		case 2:
			e.Type = m.String("type")
		case 3:
			e.Message = m.String("message")
		case 4:
			e.BadValue = m.OptionalString("badValue")
		}
	}
	c.Done(&m, name)
	return e
}
