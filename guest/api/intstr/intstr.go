package intstr

import (
	"strconv"

	"github.com/kubewasm/kubewasm/guest/internal/wire"
	"github.com/kubewasm/kubewasm/guest/view"
	"github.com/kubewasm/kubewasm/internal/json"
)

// Type is the type of an IntOrString.
type Type int32

// The types.
const (
	Int Type = iota
	String
)

// IntOrString is a number or a string, such as the port of a container by its
// number or its name.
type IntOrString struct {
	Type   Type
	IntVal int32
	StrVal string
}

// String returns the string, or the number as one.
func (i IntOrString) String() string {
	if i.Type == String {
		return i.StrVal
	}
	return strconv.Itoa(int(i.IntVal))
}

// IntValue returns the number, or the number in the string: 0 if the string is none.
func (i IntOrString) IntValue() int {
	if i.Type == String {
		n, _ := strconv.Atoi(i.StrVal)
		return n
	}
	return int(i.IntVal)
}

// Read reads an IntOrString. It is for generated code.
func Read(v view.Value) IntOrString {
	if v.JSON {
		if s, ok := json.Value(v.Raw).Text(); ok {
			return IntOrString{Type: String, StrVal: v.Text([]byte(s))}
		}
		n, _ := json.Value(v.Raw).Int64()
		return IntOrString{IntVal: int32(n)}
	}
	kind, _ := v.Field(1)
	number, _ := v.Field(2)
	_, text := v.Field(3)
	return IntOrString{Type: Type(kind), IntVal: int32(number), StrVal: v.Text(text)}
}

// Append appends a field of type IntOrString. It is for generated code.
func Append(b []byte, field uint32, i IntOrString) []byte {
	b = wire.AppendBytes(b, field, "")
	start := len(b)
	b = wire.AppendVarint(b, 1, uint64(i.Type))
	b = wire.AppendVarint(b, 2, uint64(int64(i.IntVal)))
	return wire.EndMessage(wire.AppendBytes(b, 3, i.StrVal), start)
}
