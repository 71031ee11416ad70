package service

import (
	"context"
	"fmt"
	"reflect"
	"runtime/debug"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/codes"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/service/internal/message"
)

// Definition is an extension point: a service that guests implement. It is for generated
// code.
type Definition struct {
	// Name is the full name of the service.
	Name string
	// Schema is the google.protobuf.FileDescriptorSet with the service, encoded.
	Schema string
	// Methods are the methods of the service, 64 at most.
	Methods []Method
}

// Method is a method of an extension point.
type Method struct {
	name              string
	request, response *message.Type
}

// NewMethod returns a method by its name, without that of the service. Req and Resp are
// structs that kubewasm gen wrote; it panics for others.
func NewMethod[Req, Resp any](name string) Method {
	return Method{name, message.Of(reflect.TypeFor[Req]()), message.Of(reflect.TypeFor[Resp]())}
}

// HostService is a service that the component implements and guests call. It is for
// generated code.
type HostService struct {
	// Name is the full name of the service.
	Name    string
	Methods []HostMethod
}

// HostMethod is a method of a host service.
type HostMethod struct {
	name, grant       string
	request, response *message.Type
	// call calls the implementation with an encoded request and appends the response. err is an
	// answer to the plugin. fault ends its call: the request is malformed, or the implementation
	// panicked. limit bounds the memory of the request, as for message.Type.Parse.
	call func(ctx context.Context, request []byte, refs message.Refs, limit int, b []byte) (response []byte, fault, err error)
}

// NewHostMethod returns a method by its name, without that of the service, and the grant that
// guests need, empty if none.
func NewHostMethod[Req, Resp any](name, grant string, f func(context.Context, *Req) (*Resp, error)) HostMethod {
	m := HostMethod{name: name, grant: grant, request: message.Of(reflect.TypeFor[Req]()), response: message.Of(reflect.TypeFor[Resp]())}
	m.call = func(ctx context.Context, request []byte, refs message.Refs, limit int, b []byte) (_ []byte, fault, err error) {
		req := new(Req)
		if err := m.request.Parse(request, pointer(req), refs, limit); err != nil {
			return nil, err, nil
		}
		defer recovered(name, &fault)
		resp, err := f(ctx, req)
		if err != nil {
			return nil, nil, err
		}
		if resp == nil {
			resp = new(Resp)
		}
		b, err = m.response.Append(b, pointer(resp), refs)
		return b, nil, err
	}
	return m
}

// recovered turns a panic of a method into a fault.
func recovered(method string, fault *error) {
	if r := recover(); r != nil {
		*fault = &PanicError{Method: method, Value: r, Stack: debug.Stack()}
	}
}

// PanicError is the error of a call in which a method of a host service panicked: a fault of the
// component, and not of the plugin.
type PanicError struct {
	// Method is the name of the method, without that of the service.
	Method string
	// Value is the value of the panic, and Stack its stack in the form of [debug.Stack].
	Value any
	Stack []byte
}

// Error returns a line without the stack.
func (e *PanicError) Error() string {
	return fmt.Sprintf("%s of the host panicked: %v", e.Method, e.Value)
}

// ErrorCode returns codes.Uncoded, even if the value is an error with a code.
func (e *PanicError) ErrorCode() codes.Code { return codes.Uncoded }

// Unwrap returns [host.ErrHostFault], and the value if it is an error.
func (e *PanicError) Unwrap() []error {
	list := []error{host.ErrHostFault}
	if err, ok := e.Value.(error); ok {
		list = append(list, err)
	}
	return list
}

// exportName returns the name of the export of a method.
func exportName(service, method string) string { return service + "/" + method }

// i32 and i64 are the types of parameters.
const i32, i64 = abi.I32, abi.I64
