package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/admission/internal/dialect"
	"github.com/kubewasm/kubewasm/codec/admissionmsg"
	"github.com/kubewasm/kubewasm/host"
)

// Validator decides whether a request is admitted.
type Validator interface {
	// Validate returns the answer to request, which it does not change. When ctx
	// ends before it is known, the answer is what failing means for the
	// Validator.
	Validate(ctx context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse
}

// Mutator decides what the object of a request becomes.
type Mutator interface {
	// Mutate is as Validate of [Validator]; an answer that allows the request may
	// have a patch.
	Mutate(ctx context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse
}

// Engine asks policies. It is safe for use by several goroutines; how many ask
// one plugin at a time is that plugin's Limits.Instances.
type Engine struct {
	current atomic.Pointer[policySet]
}

// policySet are the policies of an engine at a time.
type policySet struct {
	// validators and mutators are in their order.
	validators, mutators, all []Policy
	// users are the requests that are being decided on.
	users   atomic.Int64
	retired atomic.Bool
	once    sync.Once
	// drained is closed when the set is retired and has no users.
	drained chan struct{}
}

// NewEngine returns an Engine that asks the given policies, in the order of
// PolicyRules.Order and then of the arguments; without any everything is allowed.
func NewEngine(policies ...Policy) *Engine {
	e := new(Engine)
	e.current.Store(newPolicySet(policies))
	return e
}

func newPolicySet(policies []Policy) *policySet {
	s := &policySet{all: slices.Clone(policies), drained: make(chan struct{})}
	slices.SortStableFunc(s.all, func(a, b Policy) int { return cmp.Compare(a.rules().Order, b.rules().Order) })
	for _, p := range s.all {
		if _, ok := p.(*disabled); ok {
			continue
		}
		if p.validates() {
			s.validators = append(s.validators, p)
		}
		if p.mutates() {
			s.mutators = append(s.mutators, p)
		}
	}
	return s
}

// acquire takes the set that is in use. Whoever has it is waited for by Replace.
func (e *Engine) acquire() *policySet {
	for {
		s := e.current.Load()
		s.users.Add(1)
		if e.current.Load() == s {
			return s
		}
		s.release()
	}
}

func (s *policySet) release() {
	if s.users.Add(-1) == 0 && s.retired.Load() {
		s.once.Do(func() { close(s.drained) })
	}
}

// Swap makes policies those of the engine. Requests that begin after it see the
// new ones, and each request sees the one set or the other. The channel is closed
// when the last request that sees the old set has been answered: then policies
// that are not in use any more may be closed, which Swap leaves to the caller.
func (e *Engine) Swap(policies ...Policy) (drained <-chan struct{}) {
	old := e.current.Swap(newPolicySet(policies))
	old.retired.Store(true)
	if old.users.Load() == 0 {
		old.once.Do(func() { close(old.drained) })
	}
	return old.drained
}

// Replace is Swap that waits until the old policies are not in use any more, or
// returns ctx's error when ctx ends first.
func (e *Engine) Replace(ctx context.Context, policies ...Policy) error {
	select {
	case <-e.Swap(policies...):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Policies returns the policies of the engine, in their order.
func (e *Engine) Policies() []Policy { return slices.Clone(e.current.Load().all) }

// Close closes the policies, waiting until ctx ends for the calls that run.
func (e *Engine) Close(ctx context.Context) error {
	var errs []error
	for _, p := range e.Policies() {
		errs = append(errs, p.Close(ctx))
	}
	return errors.Join(errs...)
}

// Only returns an engine of one policy of e, which name names at the time of each
// request. ok is false if there is none now.
func (e *Engine) Only(name string) (only *OnePolicy, ok bool) {
	return &OnePolicy{e, name}, slices.ContainsFunc(e.current.Load().all, func(p Policy) bool { return p.Name() == name })
}

// OnePolicy is a [Validator] and a [Mutator] that asks one policy of an engine. A
// policy that is gone has failed, and the request is denied.
type OnePolicy struct {
	engine *Engine
	name   string
}

// Validate implements [Validator].
func (o *OnePolicy) Validate(ctx context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return o.ask(ctx, request, false)
}

// Mutate implements [Mutator].
func (o *OnePolicy) Mutate(ctx context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return o.ask(ctx, request, true)
}

func (o *OnePolicy) ask(ctx context.Context, request *admissionv1.AdmissionRequest, mutating bool) *admissionv1.AdmissionResponse {
	s := o.engine.acquire()
	defer s.release()
	i := slices.IndexFunc(s.all, func(p Policy) bool { return p.Name() == o.name })
	if i < 0 {
		return internalError(request.UID, "there is no policy "+o.name)
	}
	one := s.all[i : i+1]
	if slices.ContainsFunc(s.all[i+1:], func(p Policy) bool { return p.Name() == o.name }) {
		// See Uncovered.
		one = slices.DeleteFunc(slices.Clone(s.all), func(p Policy) bool {
			return p.Name() != o.name || mutating && !p.mutates() || !mutating && !p.validates()
		})
	}
	switch {
	case len(one) == 0:
	case mutating && one[0].mutates():
		return mutate(ctx, request, one)
	case !mutating && one[0].validates():
		return validate(ctx, request, one)
	}
	return internalError(request.UID, "policy "+o.name+" cannot be asked for this")
}

// requests are what guests are asked about, *dialect.Request with the buffer of
// its envelope.
var requests = sync.Pool{New: func() any { return new(pooledRequest) }}

type pooledRequest struct {
	dialect.Request
	proto protoCache
}

// protoCache makes the objects protobuf once, for all plugins.
type protoCache struct {
	once           sync.Once
	request        *admissionv1.AdmissionRequest
	object, oldObj []byte
	err            error
}

func (c *protoCache) get() (object, oldObject []byte, err error) {
	c.once.Do(func() { c.object, c.oldObj, c.err = protoObjects(c.request) })
	return c.object, c.oldObj, c.err
}

// keepEnvelope is the size of the largest buffer that is used again. Nearly all
// requests have less than 1 KiB; a user with very many groups has more.
const keepEnvelope = 64 << 10

// newRequest returns the request for guests. Its envelope lies in a buffer that
// free gives back.
func newRequest(request *admissionv1.AdmissionRequest) *pooledRequest {
	r := requests.Get().(*pooledRequest)
	r.AdmissionRequest = request
	r.Envelope = admissionmsg.AppendRequest(r.Envelope[:0], request)
	r.proto = protoCache{request: request}
	if r.Proto == nil {
		r.Proto = r.proto.get
	}
	return r
}

func (r *pooledRequest) free() {
	if cap(r.Envelope) > keepEnvelope {
		return
	}
	r.AdmissionRequest = nil
	r.proto = protoCache{}
	r.Forget()
	requests.Put(r)
}

// Validate asks every policy that validates and whose rules match, all at the same
// time. One denial denies the request, and so does a failure of a policy whose
// failure policy is [Fail].
//
// The answer's status has the code and the reason of the first policy that
// denies, in the order of the engine, or 500 InternalError if none denies and
// one fails; it has the messages of all, with the policy's name before each. Field
// errors are the causes of the status; they are in the message, too, which is what
// kubectl prints. A code of 422 has no reason: with reason Invalid, kubectl would print
// the causes alone. Warnings and audit annotations of all policies are kept, also of those
// that allow, within what an API server takes: each warning once, without
// control characters, cut at 256 runes and 4,096 in all; each annotation under
// "<policy>.<key>", with "_" for what a qualified name may not have, cut at 63
// characters.
//
// A request that is allowed without a word costs one allocation, the answer:
// TestAllowAllocatesTheAnswerOnly.
func (e *Engine) Validate(ctx context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	s := e.acquire()
	defer s.release()
	return validate(ctx, request, s.validators)
}

func validate(ctx context.Context, request *admissionv1.AdmissionRequest, policies []Policy) *admissionv1.AdmissionResponse {
	req := newRequest(request)
	defer req.free()
	if len(policies) == 1 {
		v, asked := askIfMatching(ctx, policies[0], &req.Request, false)
		if !asked || v.failure == nil && v.Allowed && v.Result == nil {
			return &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true}
		}
		return answer(request, []said{{policies[0], v}})
	}
	return answer(request, askAll(ctx, policies, &req.Request))
}

// said is the verdict of a policy.
type said struct {
	policy Policy
	verdict
}

// askIfMatching asks a policy about a validation or a mutation, unless its rules
// do not match. A policy about which that is not known has failed, and so has one at
// which we, or an Observer or a NamespaceLabels, panic: it is asked on a goroutine of
// its own, on which nobody else would recover.
func askIfMatching(ctx context.Context, p Policy, req *dialect.Request, mutating bool) (v verdict, asked bool) {
	defer func() {
		if r := recover(); r != nil {
			v, asked = panicked(p, r), true
		}
	}()
	matches, err := p.matcher().matches(ctx, req.AdmissionRequest)
	switch {
	case err != nil:
		err = fmt.Errorf("policy %q: match: %w", p.Name(), err)
		return within(ctx, p, req, mutating, func() verdict { return failed(err) }), true
	case !matches:
		return v, false
	}
	return ask(ctx, p, req, mutating), true
}

// askAll asks the policies at the same time and returns their verdicts in order.
func askAll(ctx context.Context, policies []Policy, req *dialect.Request) []said {
	verdicts := make([]said, len(policies))
	askOne := func(i int) {
		if v, asked := askIfMatching(ctx, policies[i], req, false); asked {
			verdicts[i] = said{policies[i], v}
		}
	}
	var wg sync.WaitGroup
	for i := range policies {
		if i == len(policies)-1 {
			askOne(i)
			break
		}
		wg.Go(func() { askOne(i) })
	}
	wg.Wait()
	return slices.DeleteFunc(verdicts, func(s said) bool { return s.policy == nil })
}

// answer makes one answer of the policies' verdicts.
func answer(request *admissionv1.AdmissionRequest, verdicts []said) *admissionv1.AdmissionResponse {
	var (
		messages []string
		status   *metav1.Status // Of the first denial.
		broken   bool
		warnings warnings
		audit    annotations
		causes   []metav1.StatusCause
	)
	for i := range verdicts {
		v, name := &verdicts[i].verdict, verdicts[i].policy.Name()
		switch {
		case v.failure != nil && verdicts[i].policy.rules().FailurePolicy == host.Ignore:
			warnings.add(v.failure.Error() + " (ignored)")
		case v.failure != nil:
			// The failure names the plugin already.
			broken = true
			messages = append(messages, v.failure.Error())
		case !v.Allowed:
			if status == nil {
				status = denial(v)
			}
			causes = append(causes, causesOf(name, v)...)
			// A cluster's user does not know how many policies a webhook has.
			messages = append(messages, name+": "+messageOf(v))
		}
		if v.Result != nil {
			for _, w := range v.Result.Warnings {
				warnings.add(w)
			}
			audit.add(name, v.Result.AuditAnnotations)
		}
	}
	response := &admissionv1.AdmissionResponse{
		UID:              request.UID,
		Allowed:          status == nil && !broken,
		Warnings:         warnings.list(),
		AuditAnnotations: audit,
	}
	if response.Allowed {
		return response
	}
	if status == nil {
		status = &metav1.Status{Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError}
	}
	status.Status = metav1.StatusFailure
	status.Message = strings.Join(messages, "; ")
	if len(causes) != 0 {
		status.Details = &metav1.StatusDetails{
			Name:   request.Name,
			Group:  request.Kind.Group,
			Kind:   request.Kind.Kind,
			Causes: causes,
		}
	}
	response.Result = status
	return response
}
