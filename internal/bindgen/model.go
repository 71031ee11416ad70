package bindgen

// Package is the views of one package.
type Package struct {
	// Name is the name of the Go package, Path its import path.
	Name, Path string
	// Source is the name of the source in the headers of the files.
	Source   string
	Messages []*Message
	Enums    []*Enum
	// Constants are the strings that fields may have as their values.
	Constants []ConstantGroup
}

// Message is a message, an object of Kubernetes among others.
type Message struct {
	// Name is the name of the view.
	Name, Doc string
	Fields    []*Field
	// Root is set if the message is read from bytes of its own, and not only as a part of
	// others. Kind is set if it is an object with metadata as well.
	Root, Kind bool
	// JSON is set if the message has no protobuf.
	JSON bool
}

// Field is a field of a message.
type Field struct {
	// Name is that of the accessor, JSONName that of the field.
	Name, JSONName, Doc string
	Number              uint32
	Type                Type
	Repeated, Map       bool
	// Presence is set if the field may be absent, which differs from its zero value.
	Presence bool
	// Inlined is set if in JSON the fields of the message are among those of its parent.
	Inlined bool
}

// Type is the type of a field, an element or a value of a map.
type Type struct {
	Kind Kind
	// Package is the import path of the package that has the type, empty for
	// that of the field; Name is the name in it. They are for messages,
	// enumerations and values.
	Package, Name string
	// GoType and Read are those of a value: the type that the accessor returns and the
	// function that reads it, with their packages.
	GoType, Read Symbol
}

// Symbol is something that a package exports.
type Symbol struct{ Package, Name string }

// Kind is how a field is read.
type Kind uint8

// The kinds of fields.
const (
	String Kind = iota
	Bytes
	Bool
	Int32
	Int64
	Uint32
	Uint64
	Sint32
	Sint64
	Fixed32
	Fixed64
	Sfixed32
	Sfixed64
	Float
	Double
	EnumKind
	MessageKind
	// ValueKind is a message that is read into a value of its own: a time, a
	// quantity.
	ValueKind
)

// Enum is an enumeration of protobuf.
type Enum struct {
	Name, Doc string
	Values    []EnumValue
}

// EnumValue is a value of an enumeration.
type EnumValue struct {
	// Name is the name of the constant, JSONName the one in JSON.
	Name, JSONName, Doc string
	Number              int32
}

// ConstantGroup is the constants of a string type.
type ConstantGroup struct {
	// Name is the name of the type that Kubernetes gives them, empty if none.
	Name      string
	Constants []Constant
}

// Constant is a string with a name.
type Constant struct{ Name, Value, Doc string }
