package service

import (
	"fmt"
	"reflect"
	"sync"

	"github.com/kubewasm/kubewasm/host/service/internal/message"
	"github.com/kubewasm/kubewasm/internal/serviceschema"
)

// Messages reads the messages of a schema in JSON, as kubewasm run does. It is for generated code.
type Messages struct {
	schema func() (*serviceschema.Schema, error)
}

// MessagesOf returns the messages of a schema.
func MessagesOf(schema string) *Messages {
	return &Messages{sync.OnceValues(func() (*serviceschema.Schema, error) { return serviceschema.Parse([]byte(schema)) })}
}

// Read reads the message with a full name into to, a pointer to its struct. Fields have the names
// of JSON or those of the .proto file; an unknown one is an error. Numbers of 64 bits may be texts,
// as may NaN and Infinity. The old value that to points to is dropped; null leaves it alone.
func (m *Messages) Read(name string, text []byte, to any) error {
	if string(text) == "null" {
		return nil
	}
	schema, err := m.schema()
	if err != nil {
		return err
	}
	d := schema.Message(name)
	if d == nil {
		return fmt.Errorf("the schema has no message %s", name)
	}
	v := reflect.ValueOf(to)
	return message.Of(v.Type().Elem()).Read(d, text, v.UnsafePointer())
}
