package admission

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/kubewasm/kubewasm/admission/internal/dialect"
	"github.com/kubewasm/kubewasm/internal/json"
	"github.com/kubewasm/kubewasm/internal/json/jsonpatch"
)

// Mutate asks the policies that mutate and whose rules match, one after the other
// in the order of the engine. Each sees the object as those before it left it, and
// the rules are matched with that object. The first denial ends the round, and so
// does a failure of a policy whose failure policy is [Fail].
//
// The answer has one patch, which makes of the object that came in the one that
// the last policy left; it has none if nothing changed. A patch that does not
// apply is a failure of its policy. The rest is as for [Engine.Validate].
func (e *Engine) Mutate(ctx context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	s := e.acquire()
	defer s.release()
	return mutate(ctx, request, s.mutators)
}

func mutate(ctx context.Context, request *admissionv1.AdmissionRequest, policies []Policy) *admissionv1.AdmissionResponse {
	var patches [][]byte
	verdicts := make([]said, 0, len(policies))
	req := newRequest(ctx, request)
	defer func() { req.free() }()
	for _, p := range policies {
		v, asked := askIfMatching(ctx, p, &req.Request, true)
		if !asked {
			continue
		}
		if v.failure == nil && v.Allowed && v.Mutates() {
			patch, object, err := changes(req.AdmissionRequest, &v.Verdict)
			switch {
			case err != nil:
				v = verdict{failure: fmt.Errorf("plugin %q: %w", p.Name(), err)}
			case patch != nil:
				patches = append(patches, patch)
				changed := *req.AdmissionRequest
				changed.Object.Raw = object
				req.free()
				req = newRequest(ctx, &changed)
			}
		}
		verdicts = append(verdicts, said{p, v})
		if v.failure != nil && p.rules().FailurePolicy == Fail || v.failure == nil && !v.Allowed {
			break
		}
	}
	response := answer(request, len(policies) > 1, verdicts)
	if response.Allowed && len(patches) != 0 {
		response.Patch = joinPatches(patches)
		patchType := admissionv1.PatchTypeJSONPatch
		response.PatchType = &patchType
	}
	return response
}

// changes returns what a verdict changes about the object of r: as a patch, and as
// the object that comes of it. It returns none if nothing is another afterwards.
func changes(r *admissionv1.AdmissionRequest, v *dialect.Verdict) (patch, object []byte, err error) {
	if r.Object.Raw == nil {
		return nil, nil, errors.New("changes the object of a request that has none")
	}
	if v.Object != nil {
		if !json.Valid(v.Object) || json.Value(v.Object).Kind() != json.KindObject {
			return nil, nil, errors.New("the mutated object is no JSON object")
		}
		return jsonpatch.Diff(r.Object.Raw, v.Object), v.Object, nil
	}
	object, err = jsonpatch.Apply(r.Object.Raw, v.Patch)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("patch: %w", err)
	case json.Value(object).Kind() != json.KindObject:
		return nil, nil, errors.New("patch: leaves no object")
	case jsonpatch.Equal(r.Object.Raw, object):
		return nil, nil, nil
	}
	return v.Patch, object, nil
}

// joinPatches returns a patch that does what the patches do, one after the other.
func joinPatches(patches [][]byte) []byte {
	if len(patches) == 1 {
		return patches[0]
	}
	joined := []byte{'['}
	for _, patch := range patches {
		for e := json.Array(patch); e.Next(); {
			if len(joined) > 1 {
				joined = append(joined, ',')
			}
			joined = append(joined, e.Value()...)
		}
	}
	return append(joined, ']')
}
