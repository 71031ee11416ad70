package main

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/clusterplugins"
)

// TestConfine holds what keeps a policy of a namespace from harm to others: the error, and whether the
// policy is refused as a whole.
func TestConfine(t *testing.T) {
	rules := func(groups, resource string) string {
		return fmt.Sprintf(`"match":{"rules":[{"operations":["*"],"apiGroups":[%s],"apiVersions":["*"],"resources":[%q]}]}`, groups, resource)
	}
	pods := rules(`""`, "pods")
	for _, c := range []struct {
		name, spec, want string
		unknown          bool
	}{
		{"a policy", `{"module":{"oci":"a:1"},` + pods + `}`, "", false},
		{"a shadow", `{"module":{"oci":"a:1"},"shadow":{"module":{"oci":"a:2"},"memoryBytes":"1Ti"},` + pods + `}`, "shadow is not for an AdmissionPolicy", false},
		{"policies of the namespace", `{"module":{"oci":"a:1"},` + rules(`"kubewasm.dev"`, "admissionpolicies") + `}`, "keep itself from being changed and deleted", true},
		{"their status", `{"module":{"oci":"a:1"},` + rules(`"apps","kubewasm.dev"`, "admissionpolicies/status") + `}`, "keep itself from being changed and deleted", true},
		{"policies of all groups", `{"module":{"oci":"a:1"},` + rules(`"*"`, "admissionpolicies/*") + `}`, "keep itself from being changed and deleted", true},
		{"those of another group", `{"module":{"oci":"a:1"},` + rules(`"example.com"`, "admissionpolicies") + `}`, "", false},
		{"no room for the spec", "", "the spec is left out", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			object := &clusterplugins.Object{Kind: "AdmissionPolicy", Namespace: "shop", Name: "a"}
			if c.spec != "" {
				object.Spec = []byte(c.spec)
			}
			p := policyOf(object, nil)
			text := ""
			if p.Err != nil {
				text = p.Err.Error()
			}
			if p.Unknown != c.unknown || (c.want == "") != (p.Err == nil) || !strings.Contains(text, c.want) {
				t.Errorf("the error is %q, and unknown %v; want %q and %v", text, p.Unknown, c.want, c.unknown)
			}
		})
	}
}

// TestReportsHaveRoom holds that thousands of policies of a namespace keep no other from a report.
func TestReportsHaveRoom(t *testing.T) {
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rt.Close(t.Context()) })
	m, err := manage.New(t.Context(), manage.Config{Runtime: rt, Engine: new(admission.Engine)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close(t.Context()) })
	o := &objects{manager: m, logger: slog.New(slog.DiscardHandler)}
	var list []clusterplugins.Object
	for i := range 5000 {
		list = append(list, clusterplugins.Object{Kind: "AdmissionPolicy", Namespace: "hostile", Name: fmt.Sprintf("p-%04d", i), Spec: []byte("{}")})
	}
	o.apply(append(list, clusterplugins.Object{Kind: "AdmissionPolicy", Namespace: "team", Name: "a", Spec: []byte("{}")}))
	n := map[string]int{}
	for _, s := range o.states() {
		n[s.Namespace]++
	}
	if n["team"] != 1 || n["hostile"] != maxReported {
		t.Errorf("the report has policies %v, want 1 of team and %d of hostile", n, maxReported)
	}
}
