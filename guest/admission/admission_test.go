package admission_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kubewasm/kubewasm/guest/admission"
	"github.com/kubewasm/kubewasm/guest/admission/field"
	"github.com/kubewasm/kubewasm/guest/api/meta"
)

const review = `{
  "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
  "request": {
    "uid": "uid-1",
    "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
    "resource": {"group": "apps", "version": "v1", "resource": "deployments"},
    "subResource": "scale",
    "requestKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
    "requestResource": {"group": "apps", "version": "v1beta1", "resource": "deployments"},
    "requestSubResource": "scale",
    "name": "web", "namespace": "shop", "operation": "UPDATE",
    "userInfo": {"username": "alice", "uid": "u1", "groups": ["dev", "staff"], "extra": {"scopes": ["a", "b"], "none": []}},
    "object": {"a": 1.50}, "oldObject": {}, "dryRun": true, "options": null
  }
}`

func TestRequestFromReview(t *testing.T) {
	r, err := admission.RequestFromReview([]byte(review))
	if err != nil {
		t.Fatal(err)
	}
	user := r.UserInfo()
	got := []any{
		r.UID(), r.Operation(), r.Name(), r.Namespace(), r.SubResource(), r.RequestSubResource(), r.DryRun(),
		r.Kind(), r.RequestKind(), r.Resource(), r.RequestResource(),
		string(r.Object()), string(r.OldObject()), r.Options(),
		user.Username(), user.UID(), user.Groups(), user.InGroup("staff"), user.InGroup("ops"),
		user.Extra("scopes"), user.Extra("none"), user.Extra("unknown"),
	}
	want := []any{
		"uid-1", admission.Update, "web", "shop", "scale", "scale", true,
		admission.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"},
		admission.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"},
		admission.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"},
		admission.GroupVersionResource{Group: "apps", Version: "v1beta1", Resource: "deployments"},
		`{"a": 1.50}`, `{}`, []byte(nil),
		"alice", "u1", []string{"dev", "staff"}, true, false,
		[]string{"a", "b"}, []string(nil), []string(nil),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}

func TestRequestFromReviewRefusesWhatIsNoReview(t *testing.T) {
	for review, want := range map[string]string{
		``:               "read admission review: not valid JSON",
		`{"request":{}`:  "read admission review: not valid JSON",
		`{}`:             "read admission review: request is nothing, want object",
		`[]`:             "read admission review: request is nothing, want object",
		`{"request":[]}`: "read admission review: request is array, want object",
	} {
		if r, err := admission.RequestFromReview([]byte(review)); r != nil || err == nil || err.Error() != want {
			t.Errorf("RequestFromReview(%q) = %v, %v; want %s", review, r, err, want)
		}
	}
}

func TestRequestThatNobodyFilledIsEmpty(t *testing.T) {
	var r admission.Request
	if r.Object() != nil || r.OldObject() != nil || r.Options() != nil || r.Name() != "" || r.UserInfo().Groups() != nil || r.DryRun() {
		t.Error("an empty request has something in it")
	}
}

// answer is what a Response says.
type answer struct {
	Allowed, Failed bool
	Code            int
	Reason          string
	Message         string
	FieldErrors     field.ErrorList
	Warnings        []string
	Annotations     map[string]string
}

func TestResponses(t *testing.T) {
	missing := field.Required(field.NewPath("spec"), "")
	tests := []struct {
		name string
		got  *admission.Response
		want answer
	}{
		{"nil allows", nil, answer{Allowed: true}},
		{"Allow allows", admission.Allow(), answer{Allowed: true}},
		{"Deny puts its message together", admission.Deny("no ", "label ", "x"), answer{Message: "no label x"}},
		{"a denial with everything", admission.Deny("no").WithCode(429).WithReason(meta.StatusReasonTooManyRequests).WithWarning("w", "1").WithWarning("w2").WithAuditAnnotation("k", "v").WithFieldErrors(missing),
			answer{Code: 429, Reason: "TooManyRequests", Message: "no", Warnings: []string{"w1", "w2"}, Annotations: map[string]string{"k": "v"}, FieldErrors: field.ErrorList{missing}}},
		{"a warning does not deny", admission.Allow().WithWarning("w"), answer{Allowed: true, Warnings: []string{"w"}}},
		{"field errors deny", admission.Invalid(missing), answer{FieldErrors: field.ErrorList{missing}}},
		{"no field errors allow", admission.Invalid(), answer{Allowed: true}},
		{"field errors that are nil are none", admission.Invalid(nil, nil), answer{Allowed: true}},
		{"an error fails", admission.Errored(errors.New("no data")), answer{Failed: true, Message: "no data"}},
		{"an error stays one with field errors", admission.Errored(errors.New("no data")).WithFieldErrors(missing), answer{Failed: true, Message: "no data", FieldErrors: field.ErrorList{missing}}},
		{"no error allows", admission.Errored(nil), answer{Allowed: true}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := test.got
			got := answer{r.Allowed(), r.Failed(), r.Code(), r.Reason(), r.Message(), r.FieldErrors(), r.Warnings(), r.AuditAnnotations()}
			if diff := cmp.Diff(test.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("response (-want +got):\n%s", diff)
			}
		})
	}
}
