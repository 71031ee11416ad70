package audit_test

import (
	"errors"
	"iter"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/audit"
)

func given(objects ...string) iter.Seq2[audit.Object, error] {
	return func(yield func(audit.Object, error) bool) {
		for _, o := range objects {
			if !yield(audit.Object{Resource: pods, Kind: "Pod", Namespaced: true, JSON: []byte(o)}, nil) {
				return
			}
		}
	}
}

// TestReview holds that objects of a file are audited each, also those without a name.
func TestReview(t *testing.T) {
	a := auditor(t, nil, nil, scripted(t, "p", func(c *admission.PluginConfig) { c.Match.Rules = nil }))
	result, err := a.Review(t.Context(), given(
		`{"metadata":{"namespace":"shop","generateName":"web-","annotations":{"deny":"first"}}}`,
		`{"metadata":{"namespace":"shop","generateName":"web-","annotations":{"deny":"second"}}}`,
		`{"metadata":{"namespace":"shop","name":"good"},"status":{"phase":"Running"}}`,
		`{"metadata":{"namespace":"shop","name":"shown","annotations":{"echo":"object"}},"status":{"phase":"Running"}}`,
	))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"fail shop/ p: first", "fail shop/ #2 p: second",
		`fail shop/shown p: {"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"shop","name":"shown","annotations":{"echo":"object"}},"status":{"phase":"Running"}}`,
	}
	if diff := cmp.Diff(want, lines(result)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	if p := result.Policies[0]; p.Passed != 1 || p.Denied != 3 {
		t.Errorf("policy is %+v", p)
	}
	if _, err := a.Run(t.Context()); err == nil || err.Error() != "audit: there is no cluster" {
		t.Errorf("a run without a cluster: %v", err)
	}
	broken := errors.New("broken")
	if _, err := a.Review(t.Context(), func(yield func(audit.Object, error) bool) { yield(audit.Object{}, broken) }); !errors.Is(err, broken) {
		t.Errorf("error is %v", err)
	}
	if _, err := a.Review(t.Context(), given("{")); err == nil {
		t.Error("an object that is no JSON was reviewed")
	}
}

func TestWriteTable(t *testing.T) {
	a := auditor(t, nil, nil, scripted(t, "p", nil), admission.Disabled(scripted(t, "off", nil)))
	result, err := a.Review(t.Context(), given(`{"metadata":{"namespace":"shop","name":"web","annotations":{"deny":"no\nteam\u001b[2J"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := result.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	want := `NAMESPACE  KIND  NAME  POLICY  RESULT  MESSAGE
shop       Pod   web   p       fail    no\nteam\u001b[2J

POLICY  MODE     PASS  FAIL  WARN  ERROR  NOTE
p       Protect  0     1     0     0      
off     Protect  0     0     0     0      it is disabled
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}
