package entries

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/plugin"
)

const pods = `"rules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"]}]`

// TestEntry reads the entries of specs: the reason that there is none, or the failure policy, the
// timeout in seconds and the scope of the rule.
func TestEntry(t *testing.T) {
	c := Config{Namespace: "kubewasm", Service: "webhook", Port: 443, Timeout: 5 * time.Second, Exempt: []string{"kube-system"}}
	for _, test := range []struct {
		name, namespace, spec string
		want                  string
	}{
		{"a policy", "", `{"match":{` + pods + `}}`, "Fail 5 *"},
		{"failures are ignored", "", `{"failurePolicy":"Ignore","match":{` + pods + `}}`, "Ignore 5 *"},
		{"it monitors", "", `{"mode":"Monitor","failurePolicy":"Fail","match":{` + pods + `}}`, "Ignore 5 *"},
		{"a timeout is rounded up", "", `{"limits":{"timeout":"1.2s"},"match":{` + pods + `}}`, "Fail 2 *"},
		{"a timeout is at least a second", "", `{"limits":{"timeout":"1ms"},"match":{` + pods + `}}`, "Fail 1 *"},
		{"a timeout is at most 30 seconds", "", `{"limits":{"timeout":"2m"},"match":{` + pods + `}}`, "Fail 30 *"},
		{"a policy of a namespace", "team", `{"match":{` + pods + `}}`, "Fail 5 Namespaced"},
		{"objects of the cluster alone, for a namespace", "team", `{"match":{"rules":[{"operations":["*"],"apiGroups":[""],"apiVersions":["v1"],"resources":["nodes"],"scope":"Cluster"}]}}`, reasonNoRules},
		{"a policy of an exempt namespace", "kube-system", `{"match":{` + pods + `}}`, reasonExempt},
		{"a policy of the webhook's namespace", "kubewasm", `{"match":{` + pods + `}}`, reasonExempt},
		{"without rules", "", `{}`, reasonNoRules},
		{"disabled", "", `{"enabled":false,"match":{` + pods + `}}`, reasonDisabled},
		{"a mode that there is not", "", `{"mode":"Off","match":{` + pods + `}}`, reasonRules},
		{"a selector that is wrong", "", `{"match":{"namespaceSelector":{"matchExpressions":[{"key":"a","operator":"Like"}]},` + pods + `}}`, reasonRules},
		{"an object selector that is wrong", "", `{"match":{"objectSelector":{"matchExpressions":[{"key":"a","operator":"Like"}]},` + pods + `}}`, reasonRules},
		{"no object", "", `[]`, reasonRules},
	} {
		t.Run(test.name, func(t *testing.T) {
			raw := runtime.RawExtension{Raw: []byte(test.spec)}
			var object any = &v1alpha1.ClusterAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: raw}
			if test.namespace != "" {
				object = &v1alpha1.AdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: test.namespace, Name: "a"}, Spec: raw}
			}
			p, _ := plugin.Of(object)
			e, _, refused := c.entry(p, nil)
			got := ""
			if refused != nil {
				got = refused.reason
			} else {
				got = fmt.Sprintf("%s %d %s", *e.FailurePolicy, *e.TimeoutSeconds, *e.Rules[0].Scope)
			}
			if got != test.want {
				t.Errorf("the entry is %q, want %q", got, test.want)
			}
		})
	}
}

// TestEntryOfARevision reads the entries of policies with a rollout: until it is decided which revision
// serves, the spec does not count, since no replica serves it.
func TestEntryOfARevision(t *testing.T) {
	c := Config{Namespace: "kubewasm", Service: "webhook", Port: 443, Timeout: 5 * time.Second}
	spec := func(text string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(text)} }
	serves := &v1alpha1.RevisionRef{Revision: 1, Generation: 1, Spec: spec(`{"match":{` + pods + `}}`)}
	monitors := `"mode":"Monitor","match":{` + pods + `},"rollout":{}`
	for name, test := range map[string]struct {
		spec    string
		rollout *v1alpha1.RolloutStatus
		want    string
	}{
		"the stable one serves":             {`{` + monitors + `}`, &v1alpha1.RolloutStatus{Stable: serves}, "Fail"},
		"the first one is on trial":         {`{` + monitors + `}`, &v1alpha1.RolloutStatus{Candidate: serves}, "Ignore"},
		"the controller has not decided":    {`{` + monitors + `}`, &v1alpha1.RolloutStatus{Stable: &v1alpha1.RevisionRef{Revision: 1, Generation: 1}}, reasonNotServing},
		"it has not seen the policy before": {`{` + monitors + `}`, nil, reasonNotServing},
		"nor decided about one that is off": {`{"enabled":false,` + monitors + `}`, nil, reasonDisabled},
		"the spec serves at once":           {`{"match":{` + pods + `}}`, &v1alpha1.RolloutStatus{Stable: &v1alpha1.RevisionRef{Revision: 1, Generation: 1}}, "Fail"},
	} {
		p, _ := plugin.Of(&v1alpha1.ClusterAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: *spec(test.spec), Status: v1alpha1.PluginStatus{Rollout: test.rollout}})
		e, _, refused := c.entry(p, nil)
		got := ""
		if refused != nil {
			got = refused.reason
		} else {
			got = string(*e.FailurePolicy)
		}
		if got != test.want {
			t.Errorf("%s: the entry is %q, want %q", name, got, test.want)
		}
	}
}

// TestNames holds that the names of entries are those of one policy alone.
func TestNames(t *testing.T) {
	seen := map[string]plugin.Key{}
	for _, k := range []plugin.Key{
		{Kind: plugin.ClusterAdmissionPolicy, Name: "a"}, {Kind: plugin.ClusterAdmissionPolicy, Name: "a.b"}, {Kind: plugin.ClusterAdmissionPolicy, Name: "a.b.admissionpolicies.kubewasm.dev"},
		{Kind: plugin.AdmissionPolicy, Namespace: "b", Name: "a"}, {Kind: plugin.AdmissionPolicy, Namespace: "c", Name: "a.b"}, {Kind: plugin.AdmissionPolicy, Namespace: "b", Name: "a.c"},
	} {
		name := nameOf(k)
		if other, ok := seen[name]; ok {
			t.Errorf("%s and %s have the entry %s", k, other, name)
		}
		seen[name] = k
	}
}
