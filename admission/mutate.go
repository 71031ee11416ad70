package admission

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/admission/internal/policy"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/json"
	"github.com/kubewasm/kubewasm/internal/json/jsonpatch"
	"github.com/kubewasm/kubewasm/internal/serving"
)

// Mutate asks the policies that mutate and whose rules match, one after the other in the order of
// the engine. Each sees the object as changed by those before it, and its rules are matched with
// that object. The first denial ends the mutation, and so does a failure of a policy whose failure
// policy is [Fail].
//
// The answer has one patch from the received object to the final one, and none if nothing changed.
// A patch that does not apply is a failure of its policy. Otherwise the answer is as for
// [Engine.Validate].
func (e *Engine) Mutate(ctx context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	version := e.current.Acquire()
	return mutate(ctx, request, version.Value.mutators, version)
}

// mutate asks policies of a version, and releases it.
func mutate(ctx context.Context, request *admissionv1.AdmissionRequest, policies []Policy, version *serving.Version[*policySet]) *admissionv1.AdmissionResponse {
	shared, _ := share(policies, version)
	defer shared.Release()
	ctx = withHalf(ctx, policies)
	var monitoring []*monitoring
	var patches patches
	verdicts := make([]policyVerdict, 0, len(policies))
	req := policy.NewRequest(request, policy.IndexOf(ctx))
	defer func() { req.Free() }()
	for _, p := range policies {
		if p.rules().Mode == host.Monitor {
			monitoring = append(monitoring, askBeside(ctx, shared, p, req, true, 0))
			continue
		}
		v, matches := askPolicy(ctx, p, req, true, nil)
		if !matches {
			continue
		}
		if v.failure == nil && v.Allowed && v.Mutates() {
			patch, object, err := changes(ctx, req.AdmissionRequest, &v.Verdict)
			switch {
			case err != nil:
				v = verdict{failure: fmt.Errorf("plugin %q: %w", p.Name(), err), sealed: v.sealed}
				logVerdict(ctx, p, req, &v)
			case patch != nil:
				patches.add(patch, object)
				changed := *req.AdmissionRequest
				changed.Object.Raw = object
				index := req.Index
				req.Free()
				req = policy.NewRequest(&changed, index)
			}
		}
		verdicts = append(verdicts, policyVerdict{p, v})
		if v.failure != nil && p.rules().FailurePolicy != host.Ignore || v.failure == nil && !v.Allowed {
			break
		}
	}
	for _, m := range monitoring {
		if v, ok := m.wait(ctx); ok {
			verdicts = append(verdicts, v)
		}
	}
	response := answer(request, verdicts)
	if response.Allowed && patches.object != nil {
		patch, err := patches.join(ctx, request.Object.Raw)
		if err != nil {
			return internalError(request.UID, "join the patches of the policies: "+err.Error())
		}
		if response.Patch = patch; patch != nil {
			patchType := admissionv1.PatchTypeJSONPatch
			response.PatchType = &patchType
		}
	}
	return response
}

// until returns the check that ends an operation on documents at the deadline of the request.
func until(ctx context.Context) jsonpatch.Pay {
	return func(int) error { return ctx.Err() }
}

// changes returns the changes of a verdict to the object of r, as a patch and as the resulting
// object. It returns none if the object is unchanged.
func changes(ctx context.Context, r *admissionv1.AdmissionRequest, v *dialect.Verdict) (patch, object []byte, err error) {
	if r.Object.Raw == nil {
		return nil, nil, errors.New("changes the object of a request without an object")
	}
	if v.Object != nil {
		if !json.Valid(v.Object) || json.Value(v.Object).Kind() != json.KindObject {
			return nil, nil, errors.New("the mutated object is not a JSON object")
		}
		if patch, err = until(ctx).Diff(r.Object.Raw, v.Object); err != nil {
			return nil, nil, fmt.Errorf("compare the mutated object: %w", err)
		}
		return patch, v.Object, nil
	}
	object, err = until(ctx).Apply(r.Object.Raw, v.Patch)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("patch: %w", err)
	case json.Value(object).Kind() != json.KindObject:
		return nil, nil, errors.New("patch: leaves no object")
	}
	equal, err := until(ctx).Equal(r.Object.Raw, object)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("compare the patched object: %w", err)
	case equal:
		return nil, nil, nil
	}
	return v.Patch, object, nil
}

// patches collects the patches of several policies, which change an object one after the other.
type patches struct {
	// object is the result of the patches, nil if there are none.
	object []byte
	// joined is the concatenation of the patches, without the closing bracket. It is nil once it is
	// longer than a difference would be.
	joined     []byte
	operations int
	// count is the number of joined patches.
	count int
}

// add adds a patch and its result.
func (p *patches) add(patch, object []byte) {
	if first := p.object == nil; !first && p.joined == nil {
		p.object = object // The joined patch is already too long.
		return
	}
	p.object = object
	p.count++
	if len(p.joined)+len(patch) > len(object)+jsonpatch.MaxExcess {
		p.joined = nil
		return
	}
	for e := json.Array(patch); e.Next(); p.operations++ {
		p.joined = append(p.joined, "[,"[min(len(p.joined), 1)])
		p.joined = append(p.joined, e.Value()...)
	}
}

// join returns one patch from object to the result of all patches, nil if they are equal. A guest
// may patch the same place repeatedly, so a joined patch longer than the difference is replaced by
// the difference. So is a patch that does not apply as a whole: an API server distinguishes a null
// written by a patch from one that was read.
func (p *patches) join(ctx context.Context, object []byte) ([]byte, error) {
	if p.joined == nil || len(p.joined) >= len(p.object)+jsonpatch.MaxExcess || p.operations > jsonpatch.MaxOperations {
		return until(ctx).Diff(object, p.object)
	}
	joined := append(p.joined, ']')
	if p.count == 1 {
		return joined, nil
	}
	switch whole, err := until(ctx).Apply(object, joined); {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err == nil:
		if equal, err := until(ctx).Equal(whole, p.object); err != nil || equal {
			return joined, err
		}
	}
	return until(ctx).Diff(object, p.object)
}
