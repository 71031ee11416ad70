package audit_test

import (
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/audit"
	"github.com/kubewasm/kubewasm/admission/internal/policy"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/listserver"
)

// standIns makes the policies that represent others.
var standIns = policy.StandInsOf[admission.Policy, admission.PolicyRules]()

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
	if _, err := a.Run(t.Context()); err == nil || err.Error() != "audit: no cluster is configured" {
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
	a := auditor(t, nil, nil, scripted(t, "p", nil), standIns.Disabled(scripted(t, "off", nil)))
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
p       Enforce  0     1     0     0      
off     Enforce  0     0     0     0      it is disabled
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

// hpas is the resource of autoscalers in a version.
func hpas(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "autoscaling", Version: version, Resource: "horizontalpodautoscalers"}
}

// forV2 makes a policy one of autoscaling/v2: by its rules, or by what its module declares.
func forV2(t *testing.T, declared bool) func(*admission.PluginConfig) {
	return func(c *admission.PluginConfig) {
		c.Match.Rules = rules("CREATE", "autoscaling", "horizontalpodautoscalers")
		c.Match.Rules[0].APIVersions = []string{"v2"}
		if !declared {
			return
		}
		c.Match.Rules = nil
		module, err := c.Module.Source.Fetch(t.Context())
		if err == nil {
			module, err = metadata.Add(module, &metadata.Metadata{ABI: 1, Matches: []metadata.Rule{{
				Operations: []string{"CREATE"}, APIGroups: []string{"autoscaling"}, APIVersions: []string{"v2"}, Resources: []string{"horizontalpodautoscalers"},
			}}})
		}
		if err != nil {
			t.Fatal(err)
		}
		c.Module.Source = host.Bytes(module)
	}
}

// TestObjectsOfOtherVersions holds that an object in a version that a policy does not name is a
// finding, and that a cluster which serves that version is asked for it.
func TestObjectsOfOtherVersions(t *testing.T) {
	served := func(version string) *listserver.Resource {
		return &listserver.Resource{GroupVersionResource: hpas(version), Kind: "HorizontalPodAutoscaler", Namespaced: true, N: 1, Object: func(dst []byte, _, _ int) []byte {
			return fmt.Appendf(dst, `{"metadata":{%%s,"name":"web","namespace":"shop","annotations":{"deny":"as %s"}}}`, version)
		}}
	}
	const failed = `error shop/web p: policy "p": `
	const refused = "the request is for horizontalpodautoscalers of autoscaling/v1, and the rules name autoscaling/v2: name the same versions in the webhook configuration, and the API server converts"
	for _, test := range []struct {
		name     string
		declared bool
		want     string
	}{
		{"rules", false, failed + "match: " + refused},
		{"what the module declares", true, failed + refused},
	} {
		t.Run(test.name, func(t *testing.T) {
			for name, c := range map[string]struct {
				served []*listserver.Resource
				want   string
			}{
				"the cluster serves another version": {[]*listserver.Resource{served("v1")}, test.want},
				"the cluster serves both":            {[]*listserver.Resource{served("v1"), served("v2")}, "fail shop/web p: as v2"},
			} {
				a := auditor(t, cluster(t, listserver.New(c.served...)), nil, scripted(t, "p", forV2(t, test.declared)))
				if diff := cmp.Diff([]string{c.want}, lines(run(t, a))); diff != "" {
					t.Errorf("%s: findings (-want +got):\n%s", name, diff)
				}
			}
			for version, want := range map[string]string{"v1": test.want, "v2": "fail shop/web p: no"} {
				a := auditor(t, nil, nil, scripted(t, "p", forV2(t, test.declared)))
				result, err := a.Review(t.Context(), func(yield func(audit.Object, error) bool) {
					yield(audit.Object{Resource: hpas(version), Kind: "HorizontalPodAutoscaler", Namespaced: true, JSON: []byte(`{"metadata":{"namespace":"shop","name":"web","annotations":{"deny":"no"}}}`)}, nil)
				})
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff([]string{want}, lines(result)); diff != "" {
					t.Errorf("a file with %s: findings (-want +got):\n%s", version, diff)
				}
			}
		})
	}
}
