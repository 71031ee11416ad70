package service

import (
	"errors"
	"slices"
	"unsafe"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/codes"
	"github.com/kubewasm/kubewasm/guest/internal/plugin"
)

// Method is a method of an extension point whose plugins are of the interface P. It is for
// generated code.
type Method[P any] struct {
	// Name is the full name of the service, a slash, that of the method.
	Name string
	// Call calls the plugin with an encoded request, and appends its response to b.
	Call func(p P, request, b []byte) ([]byte, error)

	// response is the memory of the call before.
	response []byte
	// keeps is set if the plugin received a part of the bytes of an earlier request. Each request
	// has separate memory then.
	keeps bool
}

// run runs the method on an encoded request. The response is valid until the next run. kept
// reports whether the plugin may have kept a part of the request.
func (m *Method[P]) run(p P, request []byte) (response []byte, kept bool, err error) {
	if m.keeps {
		request = slices.Clone(request)
	}
	response, err = m.Call(p, request, m.response[:0])
	if given.bytes {
		given.bytes, kept = false, !m.keeps
		m.keeps = true // Plugins read the same fields of each request.
	}
	if err != nil {
		return nil, kept, err
	}
	m.response = response
	return response, kept, nil
}

// Register makes p the plugin of this module for the extension point with the full name. If p
// points to a struct, the host's configuration is decoded into it before the first request. If
// it has a method Configure() error, that is called then, and an error makes the plugin fail to
// load. It is for generated code.
func Register[T any](p T, name string, methods ...method) {
	for i := range services {
		if services[i].name == name {
			panic("kubewasm: two plugins implement " + name)
		}
	}
	plugin.Register(p, abi.MaskOf(abi.Services))
	services = append(services, registered{name, methods})
}

// registered is an extension point that has a plugin.
type registered struct {
	name    string
	methods []method
}

var services []registered

// method is a *[Method].
type method interface {
	// native calls the method of a plugin in a native test.
	native(p any, request []byte) ([]byte, error)
	fullName() string
}

func (m *Method[P]) fullName() string { return m.Name }

func (m *Method[P]) native(p any, request []byte) ([]byte, error) {
	of, ok := p.(P)
	if !ok {
		return nil, errors.New("the plugin does not implement " + m.Name)
	}
	response, _, err := m.run(of, request)
	return response, err
}

// Ask calls a method of a host service by its host function, with an encoded request, and
// returns the encoded response, which may be kept, or the error of the host with its code. It is for
// generated code.
func Ask(f func(ptr unsafe.Pointer, n uint32) uint64, request []byte) ([]byte, error) {
	n, code := abi.Unpack[codes.Code](f(unsafe.Pointer(unsafe.SliceData(request)), uint32(len(request))))
	answer := make([]byte, n)
	if got := hostAnswer(answer); got != n {
		panic("kubewasm: host answered with another length than before")
	}
	if code != codes.OK {
		return nil, errorOf(code, string(answer))
	}
	return answer, nil
}
