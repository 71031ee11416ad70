// Package wire reads protobuf messages that a guest wrote, which have not been
// checked, and writes those for guests.
package wire

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// ErrMalformed is wrapped by errors about bytes that are not the expected message: cut
// off, with a known field of the wrong wire type, or a string that is not
// UTF-8.
var ErrMalformed = errors.New("malformed message")

// Cursor walks over the fields of one message and stops at the first error:
//
//	c := wire.NewCursor(b)
//	for c.Next() {
//		switch c.Number {
//		case 1:
//			name = c.String("name")
//		}
//	}
//	if err := c.Err(); err != nil { … }
//
// Fields whose value is not asked for are skipped. A field whose value is must have
// the wire type of what it is asked for: protobuf's own decoders skip it
// otherwise, but a guest that wrote it meant something by it.
type Cursor struct {
	// Number is that of the field that Next found.
	Number protowire.Number

	err   error
	typ   protowire.Type
	value uint64 // Of a number.
	bytes []byte // Of a string or a message.
	rest  []byte
}

// NewCursor returns a Cursor over the message in b.
func NewCursor(b []byte) Cursor { return Cursor{rest: b} }

// Next goes to the next field and reports whether there is one.
func (c *Cursor) Next() bool {
	if c.err != nil || len(c.rest) == 0 {
		return false
	}
	var n int
	if tag := c.rest[0]; 1<<3 <= tag && tag < 0x80 {
		// One byte, which is what nearly all fields have: it calls nothing.
		c.Number, c.typ, n = protowire.Number(tag>>3), protowire.Type(tag&7), 1
	} else if c.Number, c.typ, n = protowire.ConsumeTag(c.rest); n < 0 {
		c.err = fmt.Errorf("read a tag: %w", protowire.ParseError(n))
		return false
	}
	if c.Number > protowire.MaxValidNumber {
		c.err = fmt.Errorf("read a tag: field number is %d, more than %d", c.Number, protowire.MaxValidNumber)
		return false
	}
	c.rest = c.rest[n:]
	switch c.typ {
	case protowire.VarintType:
		c.value, n = protowire.ConsumeVarint(c.rest)
	case protowire.BytesType:
		c.bytes, n = protowire.ConsumeBytes(c.rest)
	case protowire.Fixed64Type:
		c.value, n = protowire.ConsumeFixed64(c.rest)
	case protowire.Fixed32Type:
		var v uint32
		v, n = protowire.ConsumeFixed32(c.rest)
		c.value = uint64(v)
	default:
		n = protowire.ConsumeFieldValue(c.Number, c.typ, c.rest)
	}
	if n < 0 {
		c.err = fmt.Errorf("read field %d: %w", c.Number, protowire.ParseError(n))
		return false
	}
	c.rest = c.rest[n:]
	return true
}

// Type returns the wire type of the field.
func (c *Cursor) Type() protowire.Type { return c.typ }

// Value returns the number of a field that has one, of any wire type.
func (c *Cursor) Value() uint64 { return c.value }

// Bytes returns the bytes of a field that has any. They are not copied.
func (c *Cursor) Bytes() []byte { return c.bytes }

// Err returns what ended the walk, nil if it was the end of the message. It
// wraps [ErrMalformed].
func (c *Cursor) Err() error {
	if c.err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrMalformed, c.err)
}

// is checks the wire type of a field. name is the field's, for the error.
func (c *Cursor) is(want protowire.Type, name string) bool {
	if c.err == nil && c.typ != want {
		c.err = fmt.Errorf("field %s has wire type %d, want %d", name, c.typ, want)
	}
	return c.err == nil
}

// Varint returns the number of the field, and whether it is one.
func (c *Cursor) Varint(name string) (uint64, bool) {
	if !c.is(protowire.VarintType, name) {
		return 0, false
	}
	return c.value, true
}

// Enum returns the number of a field of an enum type.
func (c *Cursor) Enum(name string) int32 {
	v, _ := c.Varint(name)
	return int32(v)
}

// String returns a copy of the text of the field.
func (c *Cursor) String(name string) string {
	if !c.is(protowire.BytesType, name) {
		return ""
	}
	if !utf8.Valid(c.bytes) {
		c.err = fmt.Errorf("field %s is not UTF-8: %.40q", name, c.bytes)
		return ""
	}
	return string(c.bytes)
}

// OptionalString returns a copy of the text of a field with presence.
func (c *Cursor) OptionalString(name string) *string {
	s := c.String(name)
	return &s
}

// Message returns a Cursor over the message that the field holds. Hand it to
// Done in the end.
func (c *Cursor) Message(name string) Cursor {
	if !c.is(protowire.BytesType, name) {
		return Cursor{}
	}
	return Cursor{rest: c.bytes}
}

// Done takes over the error of the Cursor of a message in the field name.
func (c *Cursor) Done(m *Cursor, name string) {
	if m.err != nil {
		c.err = fmt.Errorf("%s: %w", name, m.err)
	}
}

// KeyValue returns the entry of a map<string, string> that the field holds.
func (c *Cursor) KeyValue(name string) (key, value string) {
	e := c.Message(name)
	for e.Next() {
		switch e.Number {
		case 1:
			key = e.String("key")
		case 2:
			value = e.String("value")
		}
	}
	c.Done(&e, name)
	return key, value
}

// Entry adds the entry of a map<string, string> that the field holds to m.
func (c *Cursor) Entry(name string, m *map[string]string) {
	key, value := c.KeyValue(name)
	if c.err != nil {
		return
	}
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[key] = value
}
