package policies_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
)

func TestEvaluate(t *testing.T) {
	monitors := admission.PolicyRules{Mode: host.Monitor, FailurePolicy: host.Ignore}
	says := func(verdict string) admission.Policy {
		return load(t, pluginConfig{Config: host.Config{Name: "p", Module: host.ModuleConfig{Bytes: saying(t, "wapc", verdict)}}, AllowedToMutate: true, PolicyRules: monitors})
	}
	tests := []struct {
		name, verdict string
		want          admission.Evaluation
		err           string // A part of the failure.
	}{
		{"it allows", `{"accepted":true}`, admission.Evaluation{Allowed: true}, ""},
		{"it denies, although it only monitors", `{"accepted":false,"message":"no","code":409}`, admission.Evaluation{Message: "no", Code: 409}, ""},
		{"it warns", `{"accepted":true,"warnings":["a\nb"],"audit_annotations":{"k/x":"v"}}`, admission.Evaluation{Allowed: true, Warnings: []string{"a b"}, AuditAnnotations: map[string]string{"k_x": "v"}}, ""},
		{"it changes the object", `{"accepted":true,"mutated_object":{"metadata":{"name":"web","labels":{"a":"b"}}}}`, admission.Evaluation{Allowed: true, Patch: []byte(`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`)}, ""},
		{"it changes nothing", `{"accepted":true,"mutated_object":{"metadata":{"name":"web"}}}`, admission.Evaluation{Allowed: true}, ""},
		{"it fails, although failures are ignored", `{`, admission.Evaluation{}, "read its answer"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p, object := says(test.verdict), `{"metadata":{"name":"web"}}`
			for what, got := range map[string]admission.Evaluation{
				"request": admission.Evaluate(t.Context(), p, requestOf(object), false),
				"raw":     admission.EvaluateRaw(t.Context(), p, "1", []byte(object)),
			} {
				if (got.Err != nil) != (test.err != "") || got.Err != nil && !strings.Contains(got.Err.Error(), test.err) {
					t.Errorf("%s: failure is %v", what, got.Err)
				}
				if diff := cmp.Diff(test.want, got, cmpopts.IgnoreFields(admission.Evaluation{}, "Err")); diff != "" {
					t.Errorf("%s (-want +got):\n%s", what, diff)
				}
			}
		})
	}
	t.Run("what is no JSON", func(t *testing.T) {
		if got := admission.EvaluateRaw(t.Context(), says(`{"accepted":true}`), "1", []byte(`{"a"`)); got.Err == nil || got.Allowed {
			t.Errorf("evaluation is %+v", got)
		}
	})
}
