package admission_test

import (
	"cmp"
	"testing"

	arv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiserver "k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"
)

// TestConditionsOfTheManifests evaluates what the manifests leave out, by the API server's own
// code.
func TestConditionsOfTheManifests(t *testing.T) {
	var shipped *arv1.ValidatingWebhook
	for _, object := range documents(t, charts+"webhook/webhooks.yaml") {
		var config arv1.ValidatingWebhookConfiguration
		if object.GetKind() != "ValidatingWebhookConfiguration" {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &config); err != nil {
			t.Fatal(err)
		}
		shipped = &config.Webhooks[0]
	}
	matcher := webhook.NewValidatingWebhookAccessor("u", "c", shipped).GetCompiledMatcher(
		plugincel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())))

	const (
		deleted = `metadata: {name: a, resourceVersion: "1", deletionTimestamp: "2026-11-01T12:00:00Z", finalizers: [x, y], managedFields: [{manager: a}]}`
		less    = `metadata: {name: a, resourceVersion: "2", deletionTimestamp: "2026-11-01T12:00:00Z", finalizers: [y], managedFields: [{manager: b}]}`
		none    = `metadata: {name: a, deletionTimestamp: "2026-11-01T12:00:00Z"}`
		living  = `metadata: {name: a, finalizers: [x]}`
	)
	for _, test := range []struct {
		name              string
		object, oldObject string
		operation         apiserver.Operation
		subresource       string
		resource          string // things if it is empty.
		groups            []string
		// sent is set if policies are asked.
		sent bool
	}{
		{name: "a new object", object: living, operation: "CREATE", sent: true},
		{name: "a new object of a node", object: living, operation: "CREATE", groups: []string{"system:nodes"}, sent: true},
		{name: "a new object that claims to be deleted", object: deleted, operation: "CREATE", sent: true},
		{name: "a deletion", oldObject: deleted, operation: "DELETE", sent: true},
		{name: "an update", object: living, oldObject: living, operation: "UPDATE", sent: true},
		{name: "one finalizer of two", object: less, oldObject: deleted, operation: "UPDATE"},
		{name: "all finalizers", object: none, oldObject: deleted, operation: "UPDATE"},
		{name: "finalizers of an object with a spec", object: none + "\nspec: {a: [{b: 1}]}", oldObject: deleted + "\nspec: {a: [{b: 1}]}", operation: "UPDATE"},
		{name: "no change at all", object: deleted, oldObject: deleted, operation: "UPDATE"},
		{name: "finalizers of an object that is not being deleted", object: "metadata: {name: a}", oldObject: living, operation: "UPDATE", sent: true},
		{name: "an object that claims to be deleted", object: none, oldObject: living, operation: "UPDATE", sent: true},
		{name: "a new finalizer", object: deleted, oldObject: less, operation: "UPDATE", sent: true},
		{name: "a first finalizer", object: less, oldObject: none, operation: "UPDATE", sent: true},
		{name: "another finalizer", object: `metadata: {name: a, deletionTimestamp: "2026-11-01T12:00:00Z", finalizers: [z]}`, oldObject: deleted, operation: "UPDATE", sent: true},
		{name: "a finalizer and a spec", object: less + "\nspec: {a: 2}", oldObject: deleted + "\nspec: {a: 1}", operation: "UPDATE", sent: true},
		{name: "a finalizer, and a spec where none was", object: less + "\nspec: {}", oldObject: deleted, operation: "UPDATE", sent: true},
		{name: "a finalizer, and no spec where one was", object: less, oldObject: deleted + "\nspec: {}", operation: "UPDATE", sent: true},
		{name: "a finalizer, and another type in the spec", object: less + "\nspec: {a: '1'}", oldObject: deleted + "\nspec: {a: 1}", operation: "UPDATE", sent: true},
		{name: "a finalizer and data", object: less + "\ndata: {a: b, c: d}", oldObject: deleted + "\ndata: {a: b}", operation: "UPDATE", sent: true},
		{name: "a finalizer and a list", object: less + "\nspec: {a: [1, 2]}", oldObject: deleted + "\nspec: {a: [2, 1]}", operation: "UPDATE", sent: true},
		{name: "a finalizer and a label", object: `metadata: {name: a, deletionTimestamp: "2026-11-01T12:00:00Z", labels: {a: b}}`, oldObject: deleted, operation: "UPDATE", sent: true},
		{name: "a finalizer and no label", object: none, oldObject: `metadata: {name: a, deletionTimestamp: "2026-11-01T12:00:00Z", labels: {a: b}}`, operation: "UPDATE", sent: true},
		{name: "a finalizer and another time", object: `metadata: {name: a, deletionTimestamp: "2027-11-01T12:00:00Z"}`, oldObject: deleted, operation: "UPDATE", sent: true},
		{name: "a subresource of an object that is being deleted", object: less, oldObject: deleted, operation: "UPDATE", subresource: "ephemeralcontainers", sent: true},
		{name: "a status", object: living + "\nstatus: {a: 1}", oldObject: living, operation: "UPDATE", subresource: "status", sent: true},
		{name: "a status of a pod", object: living + "\nstatus: {a: 1}", oldObject: living, operation: "UPDATE", resource: "pods", subresource: "status"},
		{name: "a pod", object: living, oldObject: living, operation: "UPDATE", resource: "pods", sent: true},
		{name: "labels, by the status", object: "metadata: {name: a, labels: {a: b}}", oldObject: "metadata: {name: a}", operation: "UPDATE", resource: "pods", subresource: "status", sent: true},
		{name: "no annotation, by the status", object: "metadata: {name: a}", oldObject: "metadata: {name: a, annotations: {a: b}}", operation: "UPDATE", resource: "pods", subresource: "status", sent: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			parse := func(text string) runtime.Object {
				if text == "" {
					return nil
				}
				object := &unstructured.Unstructured{}
				if err := yaml.Unmarshal([]byte("apiVersion: v1\nkind: Thing\n"+text), &object.Object); err != nil {
					t.Fatal(err)
				}
				return object
			}
			kind := schema.GroupVersionKind{Version: "v1", Kind: "Thing"}
			attributes := apiserver.NewAttributesRecord(parse(test.object), parse(test.oldObject), kind, "shop", "a", kind.GroupVersion().WithResource(cmp.Or(test.resource, "things")),
				test.subresource, test.operation, nil, false, &user.DefaultInfo{Name: "u", Groups: append(test.groups, user.AllAuthenticated)})
			versioned, err := apiserver.NewVersionedAttributes(attributes, kind, apiserver.NewObjectInterfacesFromScheme(runtime.NewScheme()))
			if err != nil {
				t.Fatal(err)
			}
			got := matcher.Match(t.Context(), versioned, nil, nil)
			if got.Error != nil || got.Matches != test.sent {
				t.Errorf("it is sent: %t, by the condition %q, error %v; want %t", got.Matches, got.FailedConditionName, got.Error, test.sent)
			}
		})
	}
}
