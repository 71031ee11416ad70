package bindgen

import "github.com/kubewasm/kubewasm/internal/serviceschema"

// Package is what is known of a source: messages, and services if it has any. It is the model
// that lies between the readers of sources and the writers of code, one for each language and
// side: [Write] for the views of Go guests, [WriteGuest] for services of Go guests and
// [WriteHost] for those of hosts.
type Package struct {
	// Name is the name of the package that is written, Path its import path.
	Name, Path string
	// Source is the name of the source in the headers of the files.
	Source   string
	Messages []*Message
	Enums    []*Enum
	// Constants are the strings that fields may have as their values.
	Constants []ConstantGroup
	// Services are those of a .proto file. Schema is the encoded FileDescriptorSet with
	// them.
	Services []*Service
	Schema   []byte
	// Places are where messages, fields, enumerations, services and methods lie in the sources, by
	// their full names.
	Places map[string]string

	// top are the names of a language at the top level, and derived those of what writers
	// make of declarations, see [naming].
	top     scope
	derived map[string]string
}

// Service is an extension point or, if Host is set, a service that the host implements.
type Service struct {
	// Name is the name in code, FullName the one with that of the package.
	Name, FullName, Doc string
	Host                bool
	Methods             []*Method
}

// Method is a method of a service.
type Method struct {
	// Name is the name in code, Wire the one in the schema.
	Name, Wire, Doc string
	// Grant is the grant that guests of a host service need, empty if none.
	Grant string
	// Request and Response are the names of messages of the package.
	Request, Response string
}

// Message is a message, an object of Kubernetes among others.
type Message struct {
	// Name is the name of the view, and Builder that of what guests write.
	Name, Builder, Doc string
	// FullName is that of a message of a .proto file.
	FullName string
	Fields   []*Field
	// Root is set if the message is read from bytes of its own, and not only as a part of
	// others. Kind is set if it is an object with metadata as well.
	Root, Kind bool
	// JSON is set if the message has no protobuf.
	JSON bool
	// Read and Written tell what guests do with a message of a service: both for a part
	// of a request and of a response.
	Read, Written bool
	// Resource is set if the message stands for a custom resource.
	Resource *serviceschema.Resource
	// At is the place in the source, for errors.
	At string
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
	// Oneof is the name of the oneof that the field belongs to, empty if there is none.
	Oneof string
	// At is the place in the source, for errors.
	At string
}

// Type is the type of a field, an element or a value of a map.
type Type struct {
	Kind Kind
	// Package is the import path of the package that has the type, empty for
	// that of the field; Name is the name in it. They are for messages,
	// enumerations and values.
	Package, Name string
	// GoType, Read and Append are those of a value: the type that the accessor returns and
	// the functions that read and write it, with their packages. Append may be empty.
	GoType, Read, Append Symbol
	// Wire is the wire type in the tags of hosts, empty for that of the kind.
	Wire string
	// Host is the type that hosts in Go have for a message of Kubernetes.
	Host Symbol
	// Object is how guests read an object, see [view.ObjectKind].
	Object string
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
	// ObjectKind is an object of Kubernetes in a message of a service, which travels as
	// a ref.
	ObjectKind
)

// Enum is an enumeration of protobuf. At is its place in the source.
type Enum struct {
	Name, Doc, At string
	Values        []EnumValue
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
