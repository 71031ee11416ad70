package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"unsafe"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/codes"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/answers"
	"github.com/kubewasm/kubewasm/internal/objects"
	"github.com/kubewasm/kubewasm/internal/objects/lookup"
)

// Call calls the method with an index in [Definition.Methods] with the request at req, and reads
// the response into the empty struct at resp. It is for generated code, which is inlined into its
// callers, so that a response that they do not keep is on their stack. It has no type parameters,
// since the compiler could not track resp through them.
//
// It returns resp, or nil if there is no response. Beside [ErrIgnored] the response is empty.
//
// 0 allocs for a request that was seen before: TestCallAllocations.
func Call(ctx context.Context, p *Plugin, method int, req, resp unsafe.Pointer) (unsafe.Pointer, error) {
	err := p.call(ctx, method, req, onStack(resp))
	if p.monitored {
		if err = p.monitor(ctx, method, err); !errors.Is(err, ErrMonitored) {
			return nil, err
		}
		p.definition.Methods[method].response.Clear(onStack(resp))
		return resp, err
	}
	if err == nil {
		return resp, nil
	}
	if !p.ignores(ctx, method, err) {
		return nil, err
	}
	p.definition.Methods[method].response.Clear(onStack(resp)) // It may have been read in part.
	return resp, &ignoredError{err}
}

// ErrIgnored is the error of a method that a plugin has failed to answer, if its FailurePolicy is
// [host.Ignore]: the response is empty, and the program may go on without the plugin. errors.Is
// and errors.As find the plugin's error, too.
var ErrIgnored = errors.New("the failure is ignored by the failure policy")

// ErrMonitored is the error of a method of a plugin in the mode [host.Monitor], whether it has
// answered or failed: the response is empty, and the program goes on without the plugin, as with
// [ErrIgnored], which errors.Is finds, too.
var ErrMonitored error = monitoredError{}

type monitoredError struct{}

func (monitoredError) Error() string { return "the plugin is monitored: its answers have no effect" }

func (monitoredError) Is(target error) bool { return target == ErrIgnored }

// monitor logs the answer of a monitored plugin, and returns the error for the caller: err itself if
// it is none of the plugin.
func (p *Plugin) monitor(ctx context.Context, method int, err error) error {
	if err != nil && (ctx.Err() != nil || !plugins(err)) {
		return err
	}
	if p.callLogger != nil {
		attrs := []slog.Attr{slog.String("plugin", p.name), slog.String("function", p.method(method))}
		if err != nil {
			attrs = append(attrs, slog.Any("err", err))
		}
		p.callLogger.LogAttrs(ctx, slog.LevelInfo, "monitored: the answer of the plugin has no effect", attrs...)
	}
	return fmt.Errorf("plugin %q: call %s: %w", p.name, p.method(method), ErrMonitored)
}

// plugins reports whether an error is that of a plugin: one that it has returned, or its failure.
func plugins(err error) bool {
	if errors.Is(err, host.ErrHostFault) {
		return false
	}
	return errors.As(err, new(*host.StatusError)) || errors.As(err, new(*host.TrapError)) || errors.As(err, new(*responseError)) ||
		errors.Is(err, ErrUnimplemented) || errors.Is(err, host.ErrDisabled)
}

type ignoredError struct{ error }

func (e *ignoredError) Is(target error) bool { return target == ErrIgnored }

func (e *ignoredError) Unwrap() error { return e.error }

// errNoRequest is the error of a request that is nil.
var errNoRequest = errors.New("it is nil")

// responseError is the error of a response that a plugin encoded wrongly.
type responseError struct{ error }

func (e *responseError) Unwrap() error { return e.error }

// onStack hides a pointer from the compiler, which otherwise puts its target on the heap. Reading a
// response keeps no pointer to it, but reads by reflection, where the compiler cannot see that. A
// request is not hidden: the objects in it are kept.
func onStack(p unsafe.Pointer) unsafe.Pointer {
	x := uintptr(p)
	return *(*unsafe.Pointer)(unsafe.Pointer(&x))
}

// ignores reports whether an error is a failure of the plugin, and the policy is to ignore those.
func (p *Plugin) ignores(ctx context.Context, method int, err error) bool {
	if p.policy != host.Ignore || ctx.Err() != nil || !plugins(err) {
		return false
	}
	if status, returned := errors.AsType[*host.StatusError](err); returned && !status.Code.Failure() {
		return false
	}
	if p.callLogger != nil {
		p.callLogger.LogAttrs(ctx, slog.LevelWarn, "ignored the failure of a plugin",
			slog.String("plugin", p.name), slog.String("function", p.method(method)), slog.Any("err", err))
	}
	return true
}

func (p *Plugin) method(i int) string {
	return exportName(p.definition.Name, p.definition.Methods[i].name)
}

// call calls a method with the message at req, and reads the response into the one at resp.
func (p *Plugin) call(ctx context.Context, method int, req, resp unsafe.Pointer) error {
	m := &p.definition.Methods[method]
	if req == nil {
		return fmt.Errorf("plugin %q: call %s: request: %w", p.name, p.method(method), errNoRequest)
	}
	if p.native != nil {
		return p.callNative(ctx, method, req, resp)
	}
	inst, err := p.Acquire(ctx)
	if err != nil {
		return err
	}
	c := begin(inst)
	defer c.end(inst)
	if c.request, err = m.request.Append(c.request[:0], req, c); err != nil {
		return fmt.Errorf("plugin %q: call %s: request: %w", p.name, p.method(method), err)
	}
	if c.sample = p.sampled(method, c.request); c.sample == nil {
		err = p.run(ctx, inst, method)
	} else {
		err = p.run(answers.With(ctx, &c.sample.looked), inst, method)
		c.sample.offer(c, err)
	}
	if err != nil {
		return err
	}
	if err := m.response.Parse(c.response, resp, c, p.resultBytes); err != nil {
		return fmt.Errorf("plugin %q: call %s: response: %w", p.name, p.method(method), &responseError{err})
	}
	return nil
}

// run runs a method on the request of the call.
func (p *Plugin) run(ctx context.Context, inst *host.Instance, method int) error {
	if !inst.Exports(host.ExportIndex(method)) {
		return fmt.Errorf("plugin %q: call %s: %w", p.name, p.method(method), ErrUnimplemented)
	}
	result, err := inst.CallExport(ctx, host.ExportIndex(method))
	if err != nil {
		return err
	}
	if code := codes.Code(int32(uint32(result))); code != codes.OK {
		return &host.StatusError{Plugin: p.name, Function: p.method(method), Code: code, Reason: inst.Reason()}
	}
	return nil
}

// CallBytes calls a method, by its name without that of the service, with an encoded request and
// returns the encoded response. It is for programs that know messages only by their schema: objects
// in the request are those of [Plugin.Ref], and refs in the response name them. The failure policy
// does not count; the mode does.
func (p *Plugin) CallBytes(ctx context.Context, method string, request []byte) ([]byte, error) {
	i := slices.IndexFunc(p.definition.Methods, func(m Method) bool { return m.name == method })
	if i < 0 {
		return nil, fmt.Errorf("plugin %q: call %s: %s has no such method", p.name, method, p.definition.Name)
	}
	inst, err := p.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	c := begin(inst)
	defer c.end(inst)
	p.store.Advance() // The objects have been passed before, by Ref.
	c.request, c.byBytes = append(c.request[:0], request...), true
	err = p.run(ctx, inst, i)
	if p.monitored {
		return nil, p.monitor(ctx, i, err)
	}
	if err != nil {
		return nil, err
	}
	return slices.Clone(c.response), nil
}

// call is the state of a call on an instance. It is used again for the next call.
type call struct {
	plugin *Plugin
	inst   *host.Instance
	// request and response are the messages of the call, answer the last one of a host
	// function. part is a part of an object.
	request, response, answer, part []byte
	// running is set between calls of begin and end, and byBytes in a call by CallBytes.
	running, byBytes bool
	// looked holds the objects that the call has looked up.
	looked lookup.Looked
	// sample records a call that is repeated on a candidate. There repeats is the sample, and
	// unasked is the method of a host service that the candidate alone has asked.
	sample, repeats *sample
	unasked         string
	// objects are the objects of the request and of the answers of host services.
	objects []passed
	// places are the indexes in objects by ref, if there are many.
	places map[abi.Ref]int
	// typ and kind are those of the object that was passed last.
	typ  reflect.Type
	kind *objects.Kind
	// services are those that the guest implements.
	services []string
}

// passed is an object that was passed to a guest.
type passed struct {
	*objects.Object
	typ reflect.Type
	of  unsafe.Pointer
	// whole is the encoded object once it was asked for.
	whole []byte
}

// passedBytes is the size of an object's place in call.objects and in call.places.
const passedBytes = 2 * int(unsafe.Sizeof(passed{})+unsafe.Sizeof(abi.Ref(0)))

// fewObjects is the maximum number of objects that are searched linearly.
const fewObjects = 16

// maxBuffer is the memory that a buffer keeps between two calls, in bytes.
const maxBuffer = 256 << 10

// begin begins a call on an instance.
func begin(inst *host.Instance) *call {
	c := inst.State().(*call)
	c.inst, c.running = inst, true
	c.response, c.answer = c.response[:0], c.answer[:0]
	return c
}

// end forgets the content of the call, and releases the instance.
func (c *call) end(inst *host.Instance) {
	c.running, c.byBytes, c.looked = false, false, lookup.Looked{}
	c.sample, c.repeats, c.unasked = nil, nil, ""
	if len(c.objects) != 0 {
		clear(c.objects)
		c.objects, c.places = c.objects[:0], nil
	}
	if max(cap(c.request), cap(c.response), cap(c.answer), cap(c.part)) > maxBuffer {
		c.request, c.response, c.answer, c.part = nil, nil, nil, nil
	}
	inst.Release()
}

// Ref implements message.Refs.
func (c *call) Ref(t reflect.Type, of unsafe.Pointer) (abi.Ref, error) {
	if len(c.objects) == 0 { // Calls without objects leave those of others as they are.
		c.plugin.store.Advance()
	}
	if c.typ != t {
		c.typ, c.kind = t, c.plugin.kind(t)
	}
	o, err := c.kind.Object(of)
	if err != nil {
		return 0, err
	}
	if c.inst != nil && c.inst.Calling() != "" { // A host service has answered with it.
		c.inst.Keep(passedBytes)
	}
	c.objects = append(c.objects, passed{o, t, of, nil})
	if c.places != nil {
		c.places[o.Ref] = len(c.objects) - 1
	}
	return o.Ref, nil
}

var errRef = errors.New("the guest was not given the object")

// Object implements message.Refs.
func (c *call) Object(t reflect.Type, ref abi.Ref) (unsafe.Pointer, error) {
	if o := c.find(ref); o != nil && o.typ == t {
		return o.of, nil
	}
	return nil, fmt.Errorf("ref %#x: %w", uint64(ref), errRef)
}

// find returns an object that was passed to the guest in this call, nil if ref names none.
func (c *call) find(ref abi.Ref) *passed {
	if len(c.objects) <= fewObjects {
		i := slices.IndexFunc(c.objects, func(p passed) bool { return p.Ref == ref })
		if i < 0 {
			return nil
		}
		return &c.objects[i]
	}
	if c.places == nil {
		c.places = make(map[abi.Ref]int, len(c.objects))
		for i := range c.objects {
			c.places[c.objects[i].Ref] = i
		}
	}
	if i, ok := c.places[ref]; ok {
		return &c.objects[i]
	}
	return nil
}

// object returns the object with a ref, which was passed to the guest in this call. The objects of
// a call by bytes are those of [Plugin.Ref] that are current. ok is false if there is none.
func (c *call) object(ref abi.Ref) (_ objects.Reading, ok bool) {
	if o := c.find(ref); o != nil {
		return o.At(o.of), true
	}
	if !c.byBytes {
		return objects.Reading{}, false
	}
	o, ok := c.plugin.store.Lookup(ref)
	return objects.Reading{Object: o}, ok
}

// bytes returns the encoded object with a ref. A guest asks for it twice if its buffer is too small.
func (c *call) bytes(ref abi.Ref) []byte {
	o, _ := c.object(ref)
	p := c.find(ref)
	if p == nil {
		return o.Bytes()
	}
	if p.whole == nil {
		p.whole = o.Bytes()
	}
	return p.whole
}
