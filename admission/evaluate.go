package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/admission/internal/policy"
	"github.com/kubewasm/kubewasm/host/confidential"
)

// Evaluation is the result of one policy on a request, for a server that builds the answer itself.
type Evaluation struct {
	Allowed bool
	// Unmatched reports whether the rules of the policy do not match the request, so that it
	// was not asked.
	Unmatched bool
	// Volatile reports whether the same request may get another verdict later. This is so if the
	// policy looked objects up, may use host capabilities, or has a clock or random numbers.
	// Otherwise the verdict is a function of the request, the module and the configuration.
	Volatile bool
	// Message is the reason of a denial, empty if there is none. Code is the HTTP code set by the
	// policy for the denial, 0 if there is none.
	Message string
	Code    int32
	// Causes are the field errors of a policy. For a group that denies, they are the members that
	// deny, with spec.policies.NAME as the field.
	Causes []metav1.StatusCause
	// Warnings respect the limits of [Engine.Validate]. AuditAnnotations have the keys of the
	// policy that are qualified names.
	Warnings         []string
	AuditAnnotations map[string]string
	// Patch is the JSON Patch for the object, nil if the policy changes nothing.
	Patch []byte
	// Err is the reason that there is no verdict. It is a failure and not a denial. If it is set,
	// the fields before it have no meaning.
	Err error
	// Sealed reports whether the policy has looked up something entirely confidential, such as a
	// Secret.
	Sealed bool
}

// Stain returns the confidential values that a policy has seen, by the rule of the plugin. Pass
// Message, Patch or Err through its Text before keeping them in a log, a report or a trace after
// the request. A raw request is the Object of request.
func (e *Evaluation) Stain(p Policy, request *admissionv1.AdmissionRequest) *confidential.Stain {
	return stainOf(p, policy.About(request), &verdict{sealed: e.Sealed})
}

// Evaluate asks one policy about a request, regardless of the mode and the failure policy of its
// rules. If mutate is set, a policy that validates and mutates is asked to mutate. A request that
// its rules do not match is allowed. Observers are not called.
func Evaluate(ctx context.Context, p Policy, request *admissionv1.AdmissionRequest, mutate bool) Evaluation {
	req := policy.NewRequest(request, nil)
	defer req.Free()
	return evaluate(ctx, p, req, mutate)
}

// EvaluateRaw is Evaluate for a request in any JSON instead of an AdmissionRequest, as accepted by
// policies of Kubewarden and of OPA. A patch applies to the request itself. Rules are ignored,
// since a raw request has nothing to match.
func EvaluateRaw(ctx context.Context, p Policy, uid types.UID, request json.RawMessage) Evaluation {
	if !json.Valid(request) {
		return Evaluation{Err: errors.New("decode raw request: it is not JSON")}
	}
	r := &admissionv1.AdmissionRequest{UID: uid}
	r.Object.Raw = request
	req := policy.NewRequest(r, nil)
	defer req.Free()
	req.Raw = request
	return evaluate(ctx, p, req, true)
}

func evaluate(ctx context.Context, p Policy, req *policy.Request, mutate bool) (e Evaluation) {
	defer func() {
		if r := recover(); r != nil {
			e = Evaluation{Err: panicked(p, r).failure, Sealed: true}
		}
	}()
	if req.Raw == nil {
		matches, err := p.matcher().matches(ctx, req.AdmissionRequest)
		switch {
		case err != nil:
			return Evaluation{Err: fmt.Errorf("policy %q: match: %w", p.Name(), err)}
		case !matches:
			return Evaluation{Allowed: true, Unmatched: true}
		}
	}
	v := p.decide(ctx, req, p.mutates() && (mutate || !p.validates()))
	if v.failure != nil {
		return Evaluation{Err: v.failure, Sealed: v.sealed}
	}
	e = Evaluation{Allowed: v.Allowed, Message: v.Message, Code: int32(v.Code), Volatile: v.volatile, Sealed: v.sealed}
	if !v.Allowed {
		e.Causes = fieldCauses(v.Result)
		for _, c := range v.causes {
			e.Causes = append(e.Causes, metav1.StatusCause{Message: c.message, Field: "spec.policies." + c.name})
		}
	}
	if v.Result != nil {
		var w warnings
		for _, text := range v.Result.Warnings {
			w.add(text)
		}
		e.Warnings = w.list()
		var a annotations
		a.add("", v.Result.AuditAnnotations)
		e.AuditAnnotations = a
	}
	if v.Allowed && v.Mutates() {
		if e.Patch, _, v.failure = changes(ctx, req.AdmissionRequest, &v.Verdict); v.failure != nil {
			return Evaluation{Err: fmt.Errorf("policy %q: %w", p.Name(), v.failure), Sealed: v.sealed}
		}
	}
	return e
}
