package service

import (
	"context"
	"fmt"

	"github.com/kubewasm/kubewasm/host/service/internal/message"
	"github.com/kubewasm/kubewasm/internal/serviceschema"
)

// Describe returns the extension point with a full name by the schema that a module carries,
// for programs without generated code. Its methods are called by [Plugin.CallBytes].
func Describe(schema []byte, name string) (*Definition, error) {
	s, err := serviceschema.Parse(schema)
	if err != nil {
		return nil, err
	}
	found := s.Find(name)
	if found == nil || found.Host {
		return nil, fmt.Errorf("the schema has no extension point %s", name)
	}
	d := &Definition{Name: name, Schema: string(schema)}
	for i := range found.Methods().Len() {
		d.Methods = append(d.Methods, Method{name: string(found.Methods().Get(i).Name())})
	}
	return d, nil
}

// NewRawMethod returns a method of a host service for programs that know messages only by their
// schema: f gets the encoded request, which is lent, and returns the encoded response.
func NewRawMethod(name, grant string, f func(ctx context.Context, request []byte) ([]byte, error)) HostMethod {
	return HostMethod{name: name, grant: grant, call: func(ctx context.Context, request []byte, _ message.Refs, _ int, b []byte) (_ []byte, fault, err error) {
		defer recovered(name, &fault)
		response, err := f(ctx, request)
		return append(b, response...), nil, err
	}}
}
