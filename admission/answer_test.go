package admission_test

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/admission"
)

// A user of the cluster does not know which policies a webhook has, or how many. So
// each denial names its own, also in the causes, which are all that kubectl edit shows;
// nothing is said twice.
func TestDenialsNameTheirPolicy(t *testing.T) {
	script := load(t, config(t, "scripted", scripted))
	labels := config(t, "labels", requiredLabels)
	labels.GuestConfig = []byte(`{"labels":["owner"]}`)
	owners := load(t, labels)
	stellar := load(t, config(t, "stellar", buildC(t, "testdata/stellar/validator.c")))
	group := func(name, message string, members map[string]*admission.Plugin, expression string) admission.Policy {
		g, err := admission.NewGroup(admission.GroupConfig{Name: name, Members: members, Expression: expression, Message: message})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	member := load(t, config(t, "member", scripted))
	const owner = "metadata.labels[owner]: Required value: every Pod must have it"
	for _, test := range []struct {
		name    string
		e       *admission.Engine
		r       *admissionv1.AdmissionRequest
		code    int32
		reason  metav1.StatusReason
		message string
		causes  []string
	}{
		{"the only policy", admission.NewEngine(script), request(t, "deny", "no"), 403, "Forbidden", "scripted: no", nil},
		{"one of several", admission.NewEngine(script, owners), request(t, "label", "owner=me"), 422, "", "labels: " + owner, []string{owner + " (policy labels)"}},
		{"several", admission.NewEngine(script, owners), request(t, "deny", "no"), 403, "Forbidden", "scripted: no; labels: " + owner, []string{owner + " (policy labels)"}},
		// With the reason Invalid, kubectl prints the causes and nothing else.
		{"one that calls the object invalid itself", admission.NewEngine(script), request(t, "deny", "no", "reason", "Invalid"), 422, "", "scripted: no", nil},
		{"one with a code that has that reason", admission.NewEngine(script), request(t, "deny", "no", "code", "422"), 422, "", "scripted: no", nil},
		{"one that says the same in a field error", admission.NewEngine(stellar), mode("mode-same"), 422, "", "stellar: spec.replicas: Invalid value: must be odd", []string{"spec.replicas: Invalid value: must be odd (policy stellar)"}},
		{"one that repeats its field errors", admission.NewEngine(stellar), mode("mode-repeat"), 422, "", "stellar: 1 error: spec.replicas: must be odd",
			[]string{"spec.replicas: Invalid value: must be odd (policy stellar)"}},
		{"a group, with what its members say", admission.NewEngine(group("release", "not fit for release", map[string]*admission.Plugin{"signed": member}, "signed()")), request(t, "deny", "no signature"), 403, "Forbidden",
			"release: not fit for release (signed: no signature)", []string{"spec.policies.signed: no signature (policy release)"}},
		{"a group whose member says the same", admission.NewEngine(group("release", "no signature", map[string]*admission.Plugin{"signed": member}, "signed()")), request(t, "deny", "no signature"), 403, "Forbidden",
			"release: no signature (signed)", []string{"spec.policies.signed: no signature (policy release)"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := test.e.Validate(t.Context(), test.r).Result
			if r == nil {
				t.Fatal("the request is allowed")
			}
			var causes []string
			if r.Details != nil {
				for _, c := range r.Details.Causes {
					causes = append(causes, c.Field+": "+c.Message)
				}
			}
			if r.Code != test.code || r.Reason != test.reason || r.Message != test.message || strings.Join(causes, "|") != strings.Join(test.causes, "|") {
				t.Errorf("answer is %d %s %q\ncauses %q\nwant %d %s %q\ncauses %q", r.Code, r.Reason, r.Message, causes, test.code, test.reason, test.message, test.causes)
			}
		})
	}
}
