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
