package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"unsafe"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/codes"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/nativehost"
	"github.com/kubewasm/kubewasm/internal/objects/lookup"
)

// native is a plugin that runs in this process, in a test.
type native struct {
	source nativehost.Service
	hosts  []HostService
}

// errNative is the error of an operation that a plugin without a module cannot do.
var errNative = errors.New("the plugin runs natively in this test process and has no module")

// nativeModule describes the module of a plugin that has none: it is empty.
var nativeModule = sync.OnceValue(func() *host.Module {
	m, err := host.Inspect([]byte("\x00asm\x01\x00\x00\x00"))
	if err != nil {
		panic(err) // It is an empty module.
	}
	return m
})

// The methods of [host.Plugin] for a plugin without a module: each method of package host must be
// here, see TestMethodsOfNativePlugins.

// Acquire is that of [host.Plugin].
func (p *Plugin) Acquire(ctx context.Context) (*host.Instance, error) {
	if p.native != nil {
		return nil, fmt.Errorf("plugin %q: %w", p.name, errNative)
	}
	return p.Plugin.Acquire(ctx)
}

// Fresh is that of [host.Plugin].
func (p *Plugin) Fresh(ctx context.Context) (*host.Instance, error) {
	if p.native != nil {
		return nil, fmt.Errorf("plugin %q: %w", p.name, errNative)
	}
	return p.Plugin.Fresh(ctx)
}

// Pin is that of [host.Plugin], and nil for a plugin that runs in this process, in a test.
func (p *Plugin) Pin() *host.Pin {
	if p.native != nil {
		return nil
	}
	return p.Plugin.Pin()
}

// Source is that of [host.Plugin].
func (p *Plugin) Source() host.Source {
	if p.native != nil {
		return p.native.source
	}
	return p.Plugin.Source()
}

// State is that of [host.Plugin].
func (p *Plugin) State() (state host.State, err error) {
	if p.native != nil {
		return host.Serving, nil
	}
	return p.Plugin.State()
}

// Versions is that of [host.Plugin], none of a plugin that runs in this process, in a test.
func (p *Plugin) Versions() []host.Version {
	if p.native != nil {
		return nil
	}
	return p.Plugin.Versions()
}

// Rollback is that of [host.Plugin].
func (p *Plugin) Rollback(ctx context.Context, sha256 string) (host.Version, error) {
	if p.native != nil {
		return host.Version{}, fmt.Errorf("plugin %q: %w", p.name, errNative)
	}
	return p.Plugin.Rollback(ctx, sha256)
}

// Swap is that of [host.Plugin].
func (p *Plugin) Swap(ctx context.Context, source host.Source, sha256 string) error {
	if p.native != nil {
		return fmt.Errorf("plugin %q: %w", p.name, errNative)
	}
	return p.Plugin.Swap(ctx, source, sha256)
}

// SwapIf is that of [host.Plugin].
func (p *Plugin) SwapIf(ctx context.Context, source host.Source, sha256 string, final func() error) error {
	if p.native != nil {
		return fmt.Errorf("plugin %q: %w", p.name, errNative)
	}
	return p.Plugin.SwapIf(ctx, source, sha256, final)
}

// Follow is that of [host.Plugin]. Of a plugin that runs in this process, in a test, it waits for
// ctx to end.
func (p *Plugin) Follow(ctx context.Context, opts host.FollowOptions) error {
	if p.native != nil {
		<-ctx.Done()
		return ctx.Err()
	}
	return p.Plugin.Follow(ctx, opts)
}

// CallLogger is that of [host.Plugin].
func (p *Plugin) CallLogger() *slog.Logger { return p.callLogger }

// Dialect is that of [host.Plugin].
func (p *Plugin) Dialect() string {
	if p.native != nil {
		return ""
	}
	return p.Plugin.Dialect()
}

// Digest is that of [host.Plugin].
func (p *Plugin) Digest() string { return p.Module().Digest() }

// Exports is that of [host.Plugin].
func (p *Plugin) Exports(export host.ExportIndex) bool {
	if p.native != nil {
		return int(export) < len(p.definition.Methods) && p.native.source.Has(p.method(int(export)))
	}
	return p.Plugin.Exports(export)
}

// Functions is that of [host.Plugin].
func (p *Plugin) Functions() abi.Mask {
	if p.native != nil {
		return 0
	}
	return p.Plugin.Functions()
}

// Limits is that of [host.Plugin].
func (p *Plugin) Limits() host.Limits {
	if p.native != nil {
		return host.DefaultLimits()
	}
	return p.Plugin.Limits()
}

// Module is that of [host.Plugin]. That of a plugin that runs in this process, in a test, is empty.
func (p *Plugin) Module() *host.Module {
	if p.native != nil {
		return nativeModule()
	}
	return p.Plugin.Module()
}

// Stats is that of [host.Plugin].
func (p *Plugin) Stats() host.Stats {
	if p.native != nil {
		return host.Stats{}
	}
	return p.Plugin.Stats()
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
	looks := func(resource, namespace string) []*host.Object {
		list, err := p.kept.List(ctx, &c.looked, resource, namespace)
		if err != nil {
			panic(err)
		}
		return list
	}
	response, code := p.native.source.Call(name, request, nativeHost{looks, ctx, p.native, c})
	if code != codes.OK {
		return &host.StatusError{Plugin: p.name, Function: name, Code: code, Reason: string(response)}
	}
	if err := m.response.Parse(response, resp, c, p.resultBytes); err != nil {
		return fmt.Errorf("plugin %q: call %s: response: %w", p.name, name, &responseError{err})
	}
	return nil
}

// nativeHost answers a plugin in this process.
type nativeHost struct {
	lookup.Native
	ctx  context.Context
	of   *native
	call *call
}

var _ nativehost.Objects = nativeHost{}

func (h nativeHost) Object(ref abi.Ref) []byte { return h.call.bytes(ref) }

func (h nativeHost) Part(ref abi.Ref, part uint32, fields uint64) []byte {
	o, _ := h.call.object(ref)
	return o.AppendPart(nil, part, fields)
}

func (h nativeHost) Entry(ref abi.Ref, field uint32, key string) (string, bool) {
	o, _ := h.call.object(ref)
	return o.Entry(field, key)
}

func (h nativeHost) Call(service, method string, request []byte) ([]byte, codes.Code) {
	err := fmt.Errorf("the host has no %s", exportName(service, method))
	for _, s := range h.of.hosts {
		if s.Name != service {
			continue
		}
		if i := slices.IndexFunc(s.Methods, func(m HostMethod) bool { return m.name == method }); i >= 0 {
			response, fault, failed := s.Methods[i].call(h.ctx, request, h.call, h.call.plugin.resultBytes, nil)
			if err = cmp.Or(fault, failed); err == nil {
				return response, codes.OK
			}
		}
	}
	return []byte(err.Error()), codeOf(err)
}
