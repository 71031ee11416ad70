package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/audit"
	"github.com/kubewasm/kubewasm/internal/json/jsonpatch"
	"github.com/kubewasm/kubewasm/internal/manifest"
)

// admit reviews each object.
func (t *trial) admit(ctx context.Context) error {
	reviews, others := conversions(t.objects.All)
	if len(reviews) != 0 {
		if err := t.convert(ctx, reviews); err != nil || len(others) == 0 {
			return err
		}
		t.try.converts = nil
	}
	if onlyConverts(t.mask) {
		return errors.New("the module only converts: it is asked by a ConversionReview of apiextensions.k8s.io/v1")
	}
	p, err := t.try.policy(ctx, t.rt, t.cfg, t.objects, t.cluster)
	if err != nil {
		return err
	}
	engine := admission.NewEngine(p)
	defer engine.Close(context.WithoutCancel(ctx))
	t.loaded()
	for _, r := range t.requests.documents {
		t.evaluated(r.file, admission.EvaluateRaw(ctx, p, "", r.json))
	}
	for i := range others {
		request, err := t.requests.of(&others[i])
		if err != nil {
			return err
		}
		if !covered(t.matches, request) {
			t.verdicts.add(verdict{heads: admissionHeads, Object: about(request), Verdict: "not asked", Message: "the module is for other requests"})
			continue
		}
		if p.Mutates() {
			response := engine.Mutate(ctx, request)
			word := "mutated"
			if p.Dialect() != "" && len(response.Patch) == 0 {
				word = "allowed" // The policy may be one that never mutates.
			}
			if !t.admitted(request, response, word) {
				continue
			}
			if len(response.Patch) != 0 {
				changed, err := jsonpatch.Apply(request.Object.Raw, response.Patch)
				if err != nil {
					return fmt.Errorf("patch %s: %w", about(request), err)
				}
				if err := audit.Decodable(request.Kind, changed); err != nil {
					t.undecodable(about(request), err)
					continue
				}
				request.Object.Raw = changed
			}
		}
		if p.Validates() {
			t.admitted(request, engine.Validate(ctx, request), "allowed")
		}
	}
	return nil
}

// admitted prints the response to a request, and reports whether it is allowed. word is the
// verdict that is printed in that case.
func (t *trial) admitted(request *admissionv1.AdmissionRequest, response *admissionv1.AdmissionResponse, word string) bool {
	text := message(response)
	switch {
	case !response.Allowed && response.Result.Reason == metav1.StatusReasonInternalError:
		word = "failed"
		err := t.fuel.failed()
		if err == nil {
			err = errors.New(text)
		}
		t.failed(err, "%s of %s", request.Operation, about(request))
	case !response.Allowed:
		word = fmt.Sprintf("denied %d", response.Result.Code)
		t.refusals++
	case len(response.Patch) != 0:
		text = string(response.Patch)
	case word == "mutated":
		text = "nothing changes"
	}
	t.verdicts.add(verdict{heads: admissionHeads, Object: about(request), Verdict: word, Cost: t.cost(), Message: text, Warnings: response.Warnings, bad: !response.Allowed})
	return response.Allowed
}

// evaluated prints the answer to a raw request.
func (t *trial) evaluated(file string, e admission.Evaluation) {
	v := verdict{heads: admissionHeads, Object: file, Verdict: "allowed", Cost: t.cost(), Message: string(e.Patch), Warnings: e.Warnings, bad: e.Err != nil || !e.Allowed}
	switch {
	case e.Err != nil:
		v.Verdict, v.Message = "failed", e.Err.Error()
		t.failed(e.Err, "%s", file)
	case !e.Allowed:
		v.Verdict, v.Message = fmt.Sprintf("denied %d", cmp.Or(e.Code, http.StatusBadRequest)), e.Message
		t.refusals++
	case len(e.Patch) != 0:
		v.Verdict = "mutated"
	}
	t.verdicts.add(v)
}

// undecodable turns the last verdict into that on a patch that makes an object which an API
// server cannot decode.
func (t *trial) undecodable(about string, err error) {
	last := &t.verdicts.Verdicts[len(t.verdicts.Verdicts)-1]
	err = fmt.Errorf("the patch makes an object that the API server cannot decode: %w", err)
	last.Verdict, last.Message, last.bad = "failed", err.Error()+": "+last.Message, true
	t.failed(err, "%s", about)
}

// covered reports whether the rules, which a module declares, cover a request. No rules cover
// every request.
func covered(rules []metadata.Rule, r *admissionv1.AdmissionRequest) bool {
	has := func(list []string, value string) bool {
		return slices.Contains(list, value) || slices.Contains(list, "*")
	}
	resource := r.Resource.Resource
	if r.SubResource != "" {
		resource += "/" + r.SubResource
	}
	return len(rules) == 0 || slices.ContainsFunc(rules, func(rule metadata.Rule) bool {
		return has(rule.Operations, string(r.Operation)) && has(rule.APIGroups, r.Resource.Group) && has(rule.APIVersions, r.Resource.Version) &&
			(slices.Contains(rule.Resources, resource) || slices.Contains(rule.Resources, "*/*") ||
				r.SubResource == "" && slices.Contains(rule.Resources, "*") ||
				r.SubResource != "" && (slices.Contains(rule.Resources, "*/"+r.SubResource) || slices.Contains(rule.Resources, r.Resource.Resource+"/*")))
	})
}

func describe(o *manifest.Object) string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

func message(response *admissionv1.AdmissionResponse) string {
	if response.Result == nil {
		return ""
	}
	return response.Result.Message
}
