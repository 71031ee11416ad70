package service

import (
	"context"
	"fmt"
	"slices"
	"unsafe"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/nativeservice"
)

// native is a plugin that runs in this process, in a test.
type native struct {
	source nativeservice.Source
	hosts  []HostService
}

// callNative is call for a plugin in this process. Messages are encoded and decoded as for a
// guest.
func (p *Plugin) callNative(ctx context.Context, method int, req, resp unsafe.Pointer) error {
	m, name := &p.definition.Methods[method], p.method(method)
	if !p.native.source.Has(name) {
		return fmt.Errorf("plugin %q: call %s: %w", p.name, name, ErrUnimplemented)
	}
	c := &call{plugin: p}
	request, err := m.request.Append(nil, req, c)
	if err != nil {
		return fmt.Errorf("plugin %q: call %s: request: %w", p.name, name, err)
	}
	response, err := p.native.source.Call(name, request, nativeHost{ctx, p.native, c})
	if err != nil {
		return &host.StatusError{Plugin: p.name, Function: name, Code: abi.Error, Reason: err.Error()}
	}
	if err := m.response.Parse(response, resp, c); err != nil {
		return fmt.Errorf("plugin %q: call %s: response: %w", p.name, name, &responseError{err})
	}
	return nil
}

// nativeHost answers a plugin in this process.
type nativeHost struct {
	ctx  context.Context
	of   *native
	call *call
}

var _ nativeservice.Host = nativeHost{}

func (h nativeHost) Object(ref abi.Ref) []byte { return h.call.bytes(ref) }

func (h nativeHost) Part(ref abi.Ref, part uint32, fields uint64) []byte {
	o, _ := h.call.object(ref)
	return o.AppendPart(nil, part, fields)
}

func (h nativeHost) Entry(ref abi.Ref, field uint32, key string) (string, bool) {
	o, _ := h.call.object(ref)
	return o.Entry(field, key)
}

func (h nativeHost) Call(service, method string, request []byte) ([]byte, error) {
	for _, s := range h.of.hosts {
		if s.Name != service {
			continue
		}
		if i := slices.IndexFunc(s.Methods, func(m HostMethod) bool { return m.name == method }); i >= 0 {
			response, fault, err := s.Methods[i].call(h.ctx, request, h.call, nil)
			if fault != nil {
				return nil, fault
			}
			return response, err
		}
	}
	return nil, fmt.Errorf("the host has no %s", exportName(service, method))
}
