package admission

import (
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	arv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
					if got := ruleFit(&rule, r) == exact; got != want {
						t.Errorf("rule %+v, %s/%s %q %s: matches is %t", rule, resource, sub, namespace, operation, got)
					}
				}
			}
		}
	}
}

// Rules fit what an API server takes for the same objects, see ShouldCallHook in
// k8s.io/apiserver/pkg/admission/plugin/webhook/generic: what it would convert fits by
// equivalence.
func TestRulesFitEquivalentsLikeTheAPIServer(t *testing.T) {
	// As in k8s.io/kubernetes, where the identity is the place in the storage.
	registry := runtime.NewEquivalentResourceRegistryWithIdentity(func(r schema.GroupResource) string {
		if r == (schema.GroupResource{Group: "events.k8s.io", Resource: "events"}) {
			return "events"
		}
		return r.String()
	})
	served := []schema.GroupVersionResource{
		{Group: "autoscaling", Version: "v1", Resource: "horizontalpodautoscalers"}, {Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"},
		{Version: "v1", Resource: "events"}, {Group: "events.k8s.io", Version: "v1", Resource: "events"},
		{Version: "v1", Resource: "pods"}, {Group: "metrics.k8s.io", Version: "v1beta1", Resource: "pods"},
		{Group: "stellar.org", Version: "v1alpha1", Resource: "stellarnodes"}, {Group: "stellar.org", Version: "v1", Resource: "stellarnodes"},
	}
	for _, resource := range served {
		for _, sub := range []string{"", "status"} {
			registry.RegisterKindFor(resource, sub, resource.GroupVersion().WithKind("Some"))
		}
	}
	want := func(rule *arv1.RuleWithOperations, resource schema.GroupVersionResource, sub string) fit {
		matches := func(r schema.GroupVersionResource) bool {
			attributes := apiserver.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, "shop", "", r, sub, apiserver.Update, nil, false, nil)
			return (&rules.Matcher{Rule: *rule, Attr: attributes}).Matches()
		}
		if matches(resource) {
			return exact
		}
		for _, other := range registry.EquivalentResourcesFor(resource, sub) {
			if matches(other) {
				return equivalent
			}
		}
		return unrelated
	}
	found := map[fit]int{}
	for _, named := range served {
		for _, groups := range [][]string{{named.Group}, {named.Group, "apps"}, {"*"}} {
			for _, versions := range [][]string{{named.Version}, {"*"}} {
				if groups[0] == "*" && versions[0] != "*" {
					continue // It is refused.
				}
				for _, resources := range [][]string{{named.Resource}, {"*"}, {"*/*"}, {named.Resource + "/status"}, {"secrets"}} {
					for _, operation := range []arv1.OperationType{"*", arv1.Update, arv1.Create} {
						rule := arv1.RuleWithOperations{Operations: []arv1.OperationType{operation}, Rule: arv1.Rule{APIGroups: groups, APIVersions: versions, Resources: resources}}
						for _, resource := range served {
							for _, sub := range []string{"", "status"} {
								r := &admissionv1.AdmissionRequest{Resource: metav1.GroupVersionResource(resource), SubResource: sub, Namespace: "shop", Operation: admissionv1.Update}
								got, want := ruleFit(&rule, r), want(&rule, resource, sub)
								found[want]++
								if got != want {
									t.Errorf("rule %+v, %v %q: fit is %d, want %d", rule, resource, sub, got, want)
								}
							}
						}
					}
				}
			}
		}
	}
	if found[exact] == 0 || found[equivalent] == 0 || found[unrelated] == 0 {
		t.Errorf("fits are %v, want some of each", found)
	}
}
