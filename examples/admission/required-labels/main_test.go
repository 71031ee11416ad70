package main

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/guest/admission"
	"github.com/kubewasm/kubewasm/guest/guesttest/admissiontest"
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
			name: "init containers are containers",
			pod:  `{"metadata":{"labels":{"app":"web","owner":"shop"}},"spec":{"initContainers":[{"name":"init","image":"nginx"}],"containers":[{"image":"registry.example.com/web:1"}]}}`,
			wantErrors: []string{
				`spec.initContainers[0].image: Invalid value: "nginx": must come from registry.example.com/ or mirror.example.com/`,
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
			req, err := admission.RequestFromReview([]byte(`{"request":{"uid":"1","operation":"CREATE","kind":{"version":"v1","kind":"Pod"},"object":` + test.pod + `}}`))
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

// TestReviews runs the policy on reviews as an API server sends them, natively and in
// the host.
func TestReviews(t *testing.T) {
	const (
		labels     = "metadata.labels[team]: Required value: every Pod must have it"
		badImage   = `.image: Invalid value: "busybox": must come from registry.example.com/`
		podOf      = `{"metadata":{"labels":{"team":"shop"}},"spec":{"containers":[{"name":"web","image":"registry.example.com/web:1"}]}}`
		unlabelled = `{"spec":{"containers":[{"name":"web","image":"busybox"}]}}`
	)
	debug, err := os.ReadFile("testdata/kubectl-debug.json")
	if err != nil {
		t.Fatal(err)
	}
	workload := func(kind, operation, template, old string) string {
		object := func(template string) string {
			return `{"apiVersion":"apps/v1","kind":"` + kind + `","metadata":{"name":"web"},"spec":{"template":` + template + `}}`
		}
		review := `{"request":{"uid":"1","operation":"` + operation + `","kind":{"group":"apps","version":"v1","kind":"` + kind + `"},"object":` + object(template)
		if old != "" {
			review += `,"oldObject":` + object(old)
		}
		return review + `}}`
	}
	admissiontest.Each(t, &policy{}, func(t *testing.T, p *admissiontest.Plugin) {
		p = p.Configure(t, `{labels: [team], registries: [registry.example.com/]}`)
		for name, test := range map[string]struct {
			review string
			want   []string
		}{
			"kubectl debug adds a container":         {string(debug), []string{"spec.ephemeralContainers[0]" + badImage}},
			"a Deployment that keeps the rules":      {workload("Deployment", "CREATE", podOf, ""), nil},
			"a Deployment's template":                {workload("Deployment", "CREATE", unlabelled, ""), []string{"spec.template." + labels, "spec.template.spec.containers[0]" + badImage}},
			"an old ReplicaSet is scaled":            {workload("ReplicaSet", "UPDATE", unlabelled, unlabelled), nil},
			"an update takes what there was away":    {workload("Deployment", "UPDATE", unlabelled, podOf), []string{"spec.template." + labels, "spec.template.spec.containers[0]" + badImage}},
			"an update makes what was wrong right":   {workload("Deployment", "UPDATE", podOf, unlabelled), nil},
			"an update leaves a wrong image as is":   {workload("Deployment", "UPDATE", `{"metadata":{"labels":{"team":"shop"}},"spec":{"containers":[{"image":"busybox"}]}}`, unlabelled), nil},
			"a wrong image moves to another list":    {workload("Deployment", "UPDATE", `{"spec":{"initContainers":[{"image":"busybox"}]}}`, unlabelled), nil},
			"a label is taken from a wrong template": {workload("Deployment", "UPDATE", unlabelled, `{"metadata":{"labels":{"team":"shop"}},"spec":{"containers":[{"image":"busybox"}]}}`), []string{"spec.template." + labels}},
		} {
			t.Run(name, func(t *testing.T) {
				got := p.Review(t, test.review)
				if diff := cmp.Diff(test.want, got.FieldErrors); diff != "" || got.Allowed != (test.want == nil) {
					t.Errorf("%+v, errors (-want +got):\n%s", got, diff)
				}
			})
		}
		got := p.Create(t, `{apiVersion: v1, kind: Service, metadata: {name: web}}`)
		if !got.Failed || got.Message != "a Service is no Pod and has no template of one" {
			t.Errorf("a Service: %+v", got)
		}
	})
}
