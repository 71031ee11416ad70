package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/guest/admission"
)

func TestPolicy(t *testing.T) {
	p := &policy{Labels: []string{"app", "owner"}, Registries: []string{"registry.example.com/", "mirror.example.com/"}}
	tests := []struct {
		name, pod    string
		wantErrors   []string
		wantWarnings []string
	}{
		{
			name: "a Pod that keeps the rules is allowed",
			pod:  `{"metadata":{"labels":{"app":"web","owner":"shop"}},"spec":{"containers":[{"name":"web","image":"registry.example.com/web:1.2"}]}}`,
		},
		{
			name:       "a missing label is named",
			pod:        `{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"web","image":"mirror.example.com/web:1.2"}]}}`,
			wantErrors: []string{"metadata.labels[owner]: Required value: every Pod must have it"},
		},
		{
			name: "every mistake is named",
			pod:  `{"spec":{"containers":[{"image":"registry.example.com/web:1"},{"image":"nginx"}]}}`,
			wantErrors: []string{
				"metadata.labels[app]: Required value: every Pod must have it",
				"metadata.labels[owner]: Required value: every Pod must have it",
				`spec.containers[1].image: Invalid value: "nginx": must come from registry.example.com/ or mirror.example.com/`,
			},
		},
		{
			name:         "the tag latest is allowed with a warning",
			pod:          `{"metadata":{"labels":{"app":"web","owner":"shop"}},"spec":{"containers":[{"name":"web","image":"registry.example.com/web:latest"}]}}`,
			wantWarnings: []string{"container web: the tag latest may be another image tomorrow"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			req, err := admission.RequestFromReview([]byte(`{"request":{"uid":"1","operation":"CREATE","object":` + test.pod + `}}`))
			if err != nil {
				t.Fatal(err)
			}
			response := p.Validate(req)
			var got []string
			for _, err := range response.FieldErrors() {
				got = append(got, err.Error())
			}
			if diff := cmp.Diff(test.wantErrors, got); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.wantWarnings, response.Warnings()); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if allowed := response.Allowed(); allowed != (len(test.wantErrors) == 0) {
				t.Errorf("allowed is %v", allowed)
			}
		})
	}
}
