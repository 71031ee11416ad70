package service

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewasm/kubewasm/abi/codes"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/confidential"
	"github.com/kubewasm/kubewasm/host/shadow"
	"github.com/kubewasm/kubewasm/internal/answers"
	"github.com/kubewasm/kubewasm/internal/wire"
)

// candidate is a plugin whose responses nobody gets.
type candidate struct{ *Plugin }

// Guest implements [shadow.Candidate].
func (c candidate) Guest() *host.Plugin { return c.Plugin.Plugin }

// BeginShadow begins to call a candidate with a sample of the plugin's requests, in place of an
// earlier candidate; see package shadow of host. The candidate gets copies of the objects, and the
// answers that host services have given to the plugin: it calls none itself. Calls of
// [Plugin.CallBytes] are not repeated.
func (p *Plugin) BeginShadow(ctx context.Context, cfg shadow.Config) error {
	if p.native != nil {
		return fmt.Errorf("plugin %q: shadow: %w", p.name, errNative)
	}
	s, err := shadow.Begin(cfg, shadow.Options{
		Plugin: p.name, Serving: p.Plugin, Runtime: p.runtime, Logger: p.cfg.Logger, Observer: p.cfg.Observer,
		Load: func(ctx context.Context, rt *host.Runtime, change func(*host.Config)) (shadow.Candidate, error) {
			cfg := p.cfg
			change(&cfg.Config)
			cfg.Shadow, cfg.Mode, cfg.FailurePolicy = nil, host.Enforce, host.Fail
			c, err := load(ctx, rt, cfg, p.definition, p, p.hosts)
			return candidate{c}, err
		},
	})
	if err != nil {
		return err
	}
	return p.shadow.Put(ctx, s)
}

// Shadow returns the shadow of the plugin, nil if there was none.
func (p *Plugin) Shadow() *shadow.Shadow { return p.shadow.Shadow() }

// sample is a call that is repeated on a candidate.
type sample struct {
	shadow *shadow.Shadow
	method int
	// request and response are the messages, objects those that they and answers of host services
	// name, and err is the error of the call.
	request, response []byte
	objects           []passed
	err               error
	// answers are those of host services, in order, and looked those of look-ups.
	answers []hostAnswer
	looked  answers.Answers
	bytes   int64
	stain   confidential.Stain
}

// hostAnswer is the answer of a host service to a request.
type hostAnswer struct {
	method          string
	request, answer []byte
	code            codes.Code
}

// sampled returns a sample of a call with an encoded request that is about to be made, nil if it is
// not repeated.
func (p *Plugin) sampled(method int, request []byte) *sample {
	s := p.shadow.Shadow()
	if !s.Sampled() || !s.Room(int64(len(request))) {
		return nil
	}
	return &sample{shadow: s, method: method, request: bytes.Clone(request), bytes: int64(len(request))}
}

// sampleBytes is approximately the size of an answer, and of an object beside its encoded form.
const sampleBytes = 256

// answered adds an answer of a host service.
func (s *sample) answered(method string, request, answer []byte, code codes.Code) {
	if s.bytes += int64(len(request)+len(answer)) + sampleBytes; s.bytes <= s.shadow.Config().QueueBytes {
		s.answers = append(s.answers, hostAnswer{method, request, bytes.Clone(answer), code})
	}
}

// offer hands the call over, which has ended with err, with copies of its objects: the caller may
// read others into the same variables.
func (s *sample) offer(c *call, err error) {
	s.err, s.response = err, bytes.Clone(c.response)
	s.bytes += int64(len(s.response))
	rule := &c.plugin.cfg.Confidential
	if rule.Extended() || slices.ContainsFunc(c.plugin.cfg.Objects, func(g host.ObjectGrant) bool { return rule.SealsResource(g.Resource) }) {
		s.stain.Seal() // Fields of messages may have the names, and what was looked up is not known.
	}
	for i := range c.objects {
		o := &c.objects[i]
		encoded := o.At(o.of).Bytes()
		if s.bytes += 2*int64(len(encoded)) + sampleBytes; s.bytes > s.shadow.Config().QueueBytes {
			break
		}
		rule.MaskMessage(rule.ShapeOf(wire.AnyGroup, o.Kind()), 0, false, bytes.Clone(encoded), &s.stain)
		copied := reflect.NewAt(o.typ, o.of).Interface().(runtime.Object).DeepCopyObject()
		s.objects = append(s.objects, passed{o.Object, o.typ, reflect.ValueOf(copied).UnsafePointer(), nil})
	}
	if s.bytes += int64(s.looked.Bytes()); s.looked.TooMany || s.bytes > s.shadow.Config().QueueBytes {
		s.shadow.Drop()
		return
	}
	s.shadow.Offer(s.repeat, s.bytes, nil)
}

// answer returns the answer that the plugin got to a request. A candidate may ask in another order.
func (s *sample) answer(method string, request []byte) (a *hostAnswer) {
	for i := range s.answers {
		if a := &s.answers[i]; a.method == method && bytes.Equal(a.request, request) {
			return a
		}
	}
	return nil
}

var errUnasked = errors.New("the plugin has not asked the host service that")

// repeat makes the call on a candidate.
func (s *sample) repeat(ctx context.Context, of shadow.Candidate) shadow.Outcome {
	p := of.(candidate).Plugin
	inst, err := p.Plugin.Acquire(ctx)
	if err != nil {
		return shadow.Outcome{Err: err}
	}
	c := begin(inst)
	defer c.end(inst)
	c.request = append(c.request[:0], s.request...)
	c.objects = append(c.objects[:0], s.objects...)
	c.repeats = s
	told := s.looked.Repeat()
	err = p.run(answers.With(ctx, told), inst, s.method)
	o := shadow.Outcome{Subject: p.definition.Methods[s.method].name, Stain: &s.stain}
	was, is := kindOf(s.err), kindOf(err)
	switch {
	case c.unasked != "" || told.Unknown != "":
		return shadow.Outcome{Asked: cmp.Or(c.unasked, told.Unknown)}
	case is == failure && was != failure:
		o.Serving, o.Err = was, err
	case is == failure || was == failure:
		return shadow.Outcome{Uncompared: true} // Two versions may fail with different words.
	case is != was, err != nil && reasonOf(err) != reasonOf(s.err):
		o.Serving, o.Candidate, o.Detail = was, is, textOf(s.err)+" -> "+textOf(err)
	case err == nil && !p.same(s.method, s.response, c.response):
		o.Serving, o.Candidate, o.Detail = was, is, p.text(s.method, s.response)+" -> "+p.text(s.method, c.response)
	default:
		return shadow.Outcome{}
	}
	return o
}

// The kinds of answers beside errors with a code.
const (
	response = "response"
	failure  = "failure"
)

// kindOf returns the kind of the answer of a call: a response, the code of an error, or a failure.
func kindOf(err error) string {
	status, returned := errors.AsType[*host.StatusError](err)
	switch {
	case err == nil:
		return response
	case returned:
		return "error " + status.Code.String()
	}
	return failure
}

func reasonOf(err error) string {
	if status, ok := errors.AsType[*host.StatusError](err); ok {
		return status.Reason
	}
	return ""
}

func textOf(err error) string {
	if err == nil {
		return response
	}
	return err.Error()
}

// message returns the response of a method, which may be encoded in other ways; nil if it is none.
func (p *Plugin) message(method int, encoded []byte) proto.Message {
	found := p.schema.Find(p.definition.Name)
	rpc := found.Methods().ByName(protoreflect.Name(p.definition.Methods[method].name))
	if rpc == nil {
		return nil
	}
	m := dynamicpb.NewMessage(rpc.Output())
	if proto.Unmarshal(encoded, m) != nil {
		return nil
	}
	return m
}

// same reports whether two responses of a method have the same content.
func (p *Plugin) same(method int, a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, y := p.message(method, a), p.message(method, b)
	return x != nil && y != nil && proto.Equal(x, y)
}

// text returns a response of a method in JSON, for display.
func (p *Plugin) text(method int, encoded []byte) string {
	m := p.message(method, encoded)
	if m == nil {
		return fmt.Sprintf("%d bytes", len(encoded))
	}
	b, err := protojson.Marshal(m)
	if err != nil {
		return fmt.Sprintf("%d bytes", len(encoded))
	}
	return string(b)
}

// replayed answers a host function from the sample that the call repeats.
func (c *call) replayed(inst *host.Instance, method string, request []byte) *hostAnswer {
	a := c.repeats.answer(method, request)
	if a == nil {
		c.unasked = method
		inst.Abort(errUnasked)
	}
	return a
}
