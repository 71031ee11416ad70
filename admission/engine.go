package admission

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/kubewasm/kubewasm/admission/internal/policy"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/serving"
)

// Validator decides whether a request is admitted.
type Validator interface {
	// Validate returns the answer to request, without changing it. If ctx ends first, the answer is
	// that of a failure of the Validator.
	Validate(ctx context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse
}

// Mutator changes the objects of requests.
type Mutator interface {
	// Mutate works like Validate of [Validator]. An answer that allows the request may have a
	// patch.
	Mutate(ctx context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse
}

// Engine asks policies about requests. It is safe for use by several goroutines. Limits.Instances
// of a plugin bounds the simultaneous calls of that plugin.
type Engine struct {
	current serving.Value[*policySet]
}

// policySet holds the policies of an engine at one time.
type policySet struct {
	// validators and mutators are in the order in which they are asked.
	validators, mutators, all []Policy
}

// NewEngine returns an Engine that asks the given policies, in the order of PolicyRules.Order and
// then of the arguments; without policies it allows everything.
func NewEngine(policies ...Policy) *Engine {
	e := new(Engine)
	e.current.Replace(newPolicySet(policies))
	return e
}

func newPolicySet(policies []Policy) *policySet {
	s := &policySet{all: slices.Clone(policies)}
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

// Replace replaces the policies of the engine. Requests that begin afterwards see the new policies,
// and each request sees either the old set or the new one. drained is closed when the last request
// with the old set has been answered. The caller may then close policies that are no longer in use;
// Replace does not.
func (e *Engine) Replace(policies ...Policy) (drained <-chan struct{}) {
	return e.current.Replace(newPolicySet(policies))
}

// Policies returns the policies of the engine, in their order.
func (e *Engine) Policies() []Policy { return slices.Clone(e.current.Load().all) }

// Hold returns the policies of the engine, in their order, for a caller that asks them one by one,
// see [Evaluate]. They count as in use until release is called: a set replaced by [Engine.Replace]
// is drained only after that.
func (e *Engine) Hold() (policies []Policy, release func()) {
	version := e.current.Acquire()
	return slices.Clone(version.Value.all), sync.OnceFunc(version.Release)
}

// Close closes the policies, waiting until ctx ends for the calls that run.
func (e *Engine) Close(ctx context.Context) error {
	var errs []error
	for _, p := range e.Policies() {
		errs = append(errs, p.Close(ctx))
	}
	return errors.Join(errs...)
}

// ForPolicy returns a value that asks one policy of e: the policy with the name at the time of the
// request. If there is none at that time, the request is denied. ok is false if there is none now.
func (e *Engine) ForPolicy(name string) (one interface {
	Validator
	Mutator
	Converter
}, ok bool) {
	return &onePolicy{e, name}, slices.ContainsFunc(e.current.Load().all, func(p Policy) bool { return p.Name() == name })
}

type onePolicy struct {
	engine *Engine
	name   string
}

// Validate implements [Validator].
func (o *onePolicy) Validate(ctx context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return o.ask(ctx, request, Policy.validates, validate)
}

// Mutate implements [Mutator].
func (o *onePolicy) Mutate(ctx context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return o.ask(ctx, request, Policy.mutates, mutate)
}

// ask asks the policies of the name for which can reports true. Beside a policy there may be one
// returned by newUncovered.
func (o *onePolicy) ask(ctx context.Context, request *admissionv1.AdmissionRequest, can func(Policy) bool,
	decide func(context.Context, *admissionv1.AdmissionRequest, []Policy, *serving.Version[*policySet]) *admissionv1.AdmissionResponse,
) *admissionv1.AdmissionResponse {
	version := o.engine.current.Acquire()
	s := version.Value
	known := false
	var asked []Policy
	for _, p := range s.all {
		if p.Name() == o.name {
			known = true
			if can(p) {
				asked = append(asked, p)
			}
		}
	}
	switch {
	case !known:
		version.Release()
		return internalError(request.UID, "there is no policy "+o.name)
	case len(asked) == 0:
		version.Release()
		return internalError(request.UID, "policy "+o.name+" cannot be asked for this")
	}
	return decide(ctx, request, asked, version)
}

// Validate asks all validating policies whose rules match, concurrently. One denial denies the
// request, and so does a failure of a policy whose failure policy is [Fail].
//
// The answer's status has the code and the reason of the first policy that denies, in the order of
// the engine, or 500 InternalError if none denies and one fails. It has the messages of all
// policies, each after the policy's name. Field errors are the causes of the status. They are also
// in the message, since kubectl prints only that. A code of 422 has no reason: with reason Invalid,
// kubectl would print the causes alone. Warnings and audit annotations of all policies are kept,
// also of those that allow, within the limits of an API server: each warning once, without control
// characters, cut at 256 runes and 4,096 in all; each annotation under "<policy>.<key>", with "_"
// for each character not allowed in a qualified name, cut at 63 characters.
//
// A request allowed without messages costs one allocation, the answer:
// TestAllowAllocatesTheAnswerOnly.
func (e *Engine) Validate(ctx context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	version := e.current.Acquire()
	return validate(ctx, request, version.Value.validators, version)
}

// validate asks policies of a version, and releases it.
func validate(ctx context.Context, request *admissionv1.AdmissionRequest, policies []Policy, version *serving.Version[*policySet]) *admissionv1.AdmissionResponse {
	req := policy.NewRequest(request, policy.IndexOf(ctx))
	defer req.Free()
	shared, monitored := share(policies, version)
	defer shared.Release()
	if len(policies) == 1 && !monitored {
		v, matches := askPolicy(ctx, policies[0], req, false, nil)
		if !matches || v.failure == nil && v.Allowed && v.Result == nil {
			return &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true}
		}
		return answer(request, []policyVerdict{{policies[0], v}})
	}
	verdicts := make([]policyVerdict, len(policies))
	askOne := func(i int) {
		if v, matches := askPolicy(ctx, policies[i], req, false, nil); matches {
			verdicts[i] = policyVerdict{policies[i], v}
		}
	}
	var monitoring []*monitoring
	var wg sync.WaitGroup
	last := -1
	for i, p := range policies {
		if p.rules().Mode == host.Monitor {
			monitoring = append(monitoring, askBeside(ctx, shared, p, req, false, i))
			continue
		}
		if before := last; before >= 0 {
			wg.Go(func() { askOne(before) })
		}
		last = i // The last one is asked on the current goroutine.
	}
	if last >= 0 {
		askOne(last)
	}
	wg.Wait()
	for _, m := range monitoring {
		if v, ok := m.wait(ctx); ok {
			verdicts[m.place] = v
		}
	}
	return answer(request, slices.DeleteFunc(verdicts, func(v policyVerdict) bool { return v.policy == nil }))
}
