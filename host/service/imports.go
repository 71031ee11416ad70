package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"unsafe"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/codes"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/objects"
	"github.com/kubewasm/kubewasm/internal/objects/lookup"
)

// adapter describes the extension point to package host.
func (p *Plugin) adapter(hosts []HostService) host.Adapter {
	a := host.Adapter{
		Kind: abi.KindService, Imports: p.imports(hosts), Check: p.check, Probe: p.probe,
		Defaults: host.Limits{ResultBytes: defaultResultBytes},
		NewState: func() any { return &call{plugin: p} },
	}
	for _, m := range p.definition.Methods {
		a.Exports = append(a.Exports, host.Export{Name: exportName(p.definition.Name, m.name), Results: []abi.ValueType{i32}, Optional: true})
	}
	return a
}

// maxServices is the maximum length of the names that a guest passes to serve.
const maxServices = 16 << 10

// imports are the host functions of a guest.
func (p *Plugin) imports(hosts []HostService) []host.Import {
	state := func(inst *host.Instance) *call { return inst.State().(*call) }
	list := []host.Import{
		host.ToGuest(abi.KindService.Module(), "request", func(inst *host.Instance) []byte { return state(inst).request }),
		host.ToGuest(abi.KindService.Module(), "answer", func(inst *host.Instance) []byte { return state(inst).answer }),
		host.FromGuest(abi.KindService.Module(), "response", func(inst *host.Instance, data []byte) {
			c := state(inst)
			inst.Keep(len(data) - len(c.response))
			c.response = append(c.response[:0], data...)
		}),
		host.FromGuest(abi.KindService.Module(), "serve", func(inst *host.Instance, data []byte) {
			if inst.Calling() != abi.Services.String() {
				inst.Abort(fmt.Errorf("it belongs to %s, but the guest runs %s", abi.Services, inst.Calling()))
			}
			if len(data) > maxServices {
				inst.Abort(fmt.Errorf("%d bytes are more than %d", len(data), maxServices))
			}
			state(inst).services = strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
		}),
		{
			Module: abi.ModuleObjects, Name: "object",
			Params: []abi.ValueType{i64, i32, i32}, Results: []abi.ValueType{i32}, Memory: 0b110,
			Func: func(inst *host.Instance, stack []uint64) {
				stack[0] = uint64(inst.Write(uint32(stack[1]), uint32(stack[2]), objectBytes(inst, stack[0])))
			},
		},
		{
			Module: abi.ModuleObjects, Name: "object_part",
			Params: []abi.ValueType{i64, i32, i64, i32, i32}, Results: []abi.ValueType{i32}, Memory: 0b11000,
			Func: func(inst *host.Instance, stack []uint64) {
				c := state(inst)
				c.part = object(inst, stack[0], uint32(stack[1])).AppendPart(c.part[:0], uint32(stack[1]), stack[2])
				stack[0] = uint64(inst.Write(uint32(stack[3]), uint32(stack[4]), c.part))
			},
		},
		{
			Module: abi.ModuleObjects, Name: "object_entry",
			Params: []abi.ValueType{i64, i32, i32, i32, i32, i32}, Results: []abi.ValueType{i32}, Memory: 0b111100,
			Func: func(inst *host.Instance, stack []uint64) {
				o := found(inst, stack[0])
				key := inst.Read(uint32(stack[2]), uint32(stack[3]))
				inst.ConfidentialText(o)
				value, ok := o.Entry(uint32(stack[1]), unsafe.String(unsafe.SliceData(key), len(key))) // Lent.
				// The buffer is checked in any case.
				n := inst.Write(uint32(stack[4]), uint32(stack[5]), unsafe.Slice(unsafe.StringData(value), len(value)))
				if stack[0] = uint64(n); !ok {
					stack[0] = abi.NoEntry
				}
			},
		},
	}
	for _, h := range hosts {
		for i := range h.Methods {
			list = append(list, h.Methods[i].function(h.Name))
		}
	}
	return append(list, lookup.Imports(abi.ModuleObjects, lookup.Snapshots{Kept: &p.kept, Looked: looked})...)
}

// looked returns what the running call has looked up.
func looked(inst *host.Instance) (*lookup.Looked, error) {
	if c := inst.State().(*call); c.running {
		return &c.looked, nil
	}
	return new(lookup.Looked), errors.New("objects are looked up in methods")
}

// objectBytes returns an object that the guest may ask for, encoded as a whole.
func objectBytes(inst *host.Instance, ref uint64) []byte {
	object(inst, ref, 0)
	return inst.State().(*call).bytes(abi.Ref(ref))
}

// object returns an object that the guest may ask for, as a whole or in part.
func object(inst *host.Instance, ref uint64, part uint32) objects.Reading {
	o := found(inst, ref)
	inst.ConfidentialObject(o, part)
	return o
}

// found returns an object that the guest may ask for.
func found(inst *host.Instance, ref uint64) objects.Reading {
	o, ok := inst.State().(*call).object(abi.Ref(ref))
	if !ok {
		inst.Abort(fmt.Errorf("ref %#x names no object of the call", ref))
	}
	return o
}

// tell logs the stack of a host service that panicked.
func (p *Plugin) tell(inst *host.Instance, fault error) {
	var panicked *PanicError
	if p.callLogger == nil || !errors.As(fault, &panicked) {
		return
	}
	p.callLogger.LogAttrs(inst.Context(), slog.LevelError, "a host service panicked",
		slog.String("plugin", p.name), slog.String("function", inst.HostCall()), slog.Any("err", fault), slog.String("stack", string(panicked.Stack)))
}

// function returns the host function of a method.
func (m *HostMethod) function(service string) host.Import {
	return host.Import{
		Module: service, Name: m.name, Grant: m.grant,
		Params: []abi.ValueType{i32, i32}, Results: []abi.ValueType{i64}, Memory: 0b11,
		Func: func(inst *host.Instance, stack []uint64) {
			c := inst.State().(*call)
			request := inst.Read(uint32(stack[0]), uint32(stack[1])) // Lent, and parsed at once.
			had := len(c.answer)
			name := service + "/" + m.name
			if c.repeats != nil {
				a := c.replayed(inst, name, request)
				c.answer = append(c.answer[:0], a.answer...)
				inst.Keep(len(c.answer) - had)
				stack[0] = abi.Pack(uint32(len(c.answer)), a.code)
				return
			}
			var asked []byte
			if c.sample != nil {
				asked = bytes.Clone(request)
			}
			// It may wait, above all for another instance of this plugin, but no longer than the
			// guest may run.
			ctx, cancel := context.WithDeadline(inst.Context(), inst.Deadline())
			answer, fault, err := m.call(ctx, request, c, c.plugin.resultBytes, c.answer[:0])
			cancel()
			if fault != nil {
				c.plugin.tell(inst, fault)
				inst.Abort(fault)
			}
			code := codes.OK
			if c.answer = answer; err != nil {
				c.answer, code = append(c.answer[:0], err.Error()...), codeOf(err)
			}
			if c.sample != nil {
				c.sample.answered(name, asked, c.answer, code)
			}
			inst.Keep(len(c.answer) - had)
			stack[0] = abi.Pack(uint32(len(c.answer)), code)
		},
	}
}
