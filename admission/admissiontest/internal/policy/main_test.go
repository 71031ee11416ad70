package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/admission/admissiontest"
)

func TestPolicy(t *testing.T) {
	admissiontest.Each(t, &policy{}, func(t *testing.T, p *admissiontest.Plugin) {
		p = p.Configure(t, "label: team")
		for name, want := range map[string]admissiontest.Verdict{
			"allow":    {Allowed: true},
			"deny":     {Code: 403, Reason: "Forbidden", Message: "not on web"},
			"conflict": {Code: 409, Reason: "Conflict", Message: "busy"},
			"reason":   {Code: 429, Reason: "Slow", Message: "busy"},
			"nothing":  {Code: 403, Reason: "Forbidden"},
			"field":    {Code: 422, FieldErrors: []string{"metadata.labels[team]: Required value: every Pod has one"}},
			"fields":   {Code: 422, Message: "wrong", FieldErrors: []string{"metadata.labels[team]: Required value", `metadata.labels[case]: Invalid value: "fields": is odd`}},
			"warn":     {Allowed: true, Warnings: []string{"old"}, AuditAnnotations: map[string]string{"who": "kubernetes-admin"}},
			"fail":     {Failed: true, Message: "no data"},
		} {
			t.Run(name, func(t *testing.T) {
				got := p.Create(t, `{apiVersion: v1, kind: Pod, metadata: {name: web, labels: {case: `+name+`}}}`)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("verdict (-want +got):\n%s", diff)
				}
			})
		}
		got := p.Review(t, `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1", "operation": "CREATE", "object": {"metadata": {"labels": {"case": "conflict"}}}}}`)
		if got.Allowed || got.Code != 409 {
			t.Errorf("review: got %+v", got)
		}
	})
}

func TestMutate(t *testing.T) {
	admissiontest.Each(t, &policy{}, func(t *testing.T, p *admissiontest.Plugin) {
		p = p.Configure(t, "label: team")
		for name, test := range map[string]struct {
			labels string
			want   admissiontest.Verdict
		}{
			"a default":      {`{app: web}`, admissiontest.Verdict{Allowed: true, Object: `{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"app":"web","team":"none"},"name":"web"}}`}},
			"nothing to do":  {`{team: shop}`, admissiontest.Verdict{Allowed: true}},
			"a denial":       {`{case: deny}`, admissiontest.Verdict{Code: 403, Reason: "Forbidden", Message: "not on web"}},
			"a wrong change": {`{case: wrong}`, admissiontest.Verdict{Failed: true, Message: "patch: kind: is string, want object"}},
		} {
			t.Run(name, func(t *testing.T) {
				got := p.Mutate(t, `{apiVersion: v1, kind: Pod, metadata: {name: web, labels: `+test.labels+`}}`)
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("verdict (-want +got):\n%s", diff)
				}
			})
		}
	})
}
