package admission

import (
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	arv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiserver "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
)

// Rules mean what they mean to an API server.
func TestRulesMatchLikeTheAPIServer(t *testing.T) {
	everywhere, namespaced, cluster := arv1.AllScopes, arv1.NamespacedScope, arv1.ClusterScope
	for _, scope := range []*arv1.ScopeType{nil, &everywhere, &namespaced, &cluster} {
		for _, group := range []string{"", "apps", "*"} {
			for _, resource := range []string{"pods", "pods/status", "pods/*", "*", "*/*", "*/status", "namespaces"} {
				compareRule(t, arv1.RuleWithOperations{Operations: []arv1.OperationType{"CREATE", "DELETE"}, Rule: arv1.Rule{
					APIGroups: []string{group}, APIVersions: []string{"v1", "v2"}, Resources: []string{resource}, Scope: scope,
				}})
			}
		}
	}
}

// compareRule compares a rule with that of the API server on many requests.
func compareRule(t *testing.T, rule arv1.RuleWithOperations) {
	for _, resource := range []schema.GroupVersionResource{{Version: "v1", Resource: "pods"}, {Group: "apps", Version: "v2", Resource: "pods"}, {Version: "v1", Resource: "namespaces"}, {Version: "v3", Resource: "pods"}} {
		for _, sub := range []string{"", "status", "scale"} {
			for _, namespace := range []string{"", "shop"} {
				for _, operation := range []string{"CREATE", "UPDATE", "DELETE"} {
					r := &admissionv1.AdmissionRequest{
						Resource: metav1.GroupVersionResource(resource), SubResource: sub, Namespace: namespace, Operation: admissionv1.Operation(operation),
					}
					attributes := apiserver.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, namespace, "", resource, sub, apiserver.Operation(operation), nil, false, nil)
					want := (&rules.Matcher{Rule: rule, Attr: attributes}).Matches()
					if got := ruleMatches(&rule, r); got != want {
						t.Errorf("rule %+v, %s/%s %q %s: matches is %t", rule, resource, sub, namespace, operation, got)
					}
				}
			}
		}
	}
}
