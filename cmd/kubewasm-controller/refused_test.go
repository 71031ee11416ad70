package main

import (
	"errors"
	"os"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/entries"
)

// TestRefusedFinalizer holds that a policy which takes no finalizer, as a policy of its namespace about
// its policies decides, keeps no other from its entry, and none from leaving.
func TestRefusedFinalizer(t *testing.T) {
	w := newWorld(t)
	refused := &v1alpha1.AdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a"}, Spec: spec("")}
	w.create(t, refused)
	deny := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "deny"},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Update},
				Rule:       admissionv1.Rule{APIGroups: []string{"kubewasm.dev"}, APIVersions: []string{"*"}, Resources: []string{"admissionpolicies"}},
			}}}},
			Validations: []admissionv1.Validation{{Expression: "false"}},
		},
	}
	w.create(t, deny)
	w.create(t, &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "deny"},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "deny", ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	})
	eventually(t, "denial", func() error {
		if w.admin.Patch(t.Context(), refused.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`)), client.DryRunAll) == nil {
			return errors.New("an update passes")
		}
		return nil
	})
	pod := w.pod(t, "webhook", "webhook-0", "n")
	shop, leaving := policy("shop", ""), policy("leaving", "")
	leaving.Finalizers = []string{entries.Finalizer}
	w.create(t, shop)
	w.create(t, leaving)
	w.report(t, pod, state(refused, "Serving", ""), state(shop, "Serving", ""))
	w.run(t, w.options())
	w.sent(t, "/validate/shop")
	w.delete(t, leaving)
	w.status(t, refused, "1/1", "Sent=False/FinalizerRefused")
}

// TestPolicyAboutPolicies holds that a policy about everything, which denies everything since no
// webhook answers, can be changed and deleted.
func TestPolicyAboutPolicies(t *testing.T) {
	w := newWorld(t)
	pod := w.pod(t, "webhook", "webhook-0", "n")
	all := policy("all", `{"match":{"rules":[{"operations":["*"],"apiGroups":["kubewasm.dev"],"apiVersions":["*"],"resources":["*/*"]}]}}`)
	w.create(t, all)
	w.report(t, pod, state(all, "Serving", ""))
	w.run(t, w.options())
	w.sent(t, "/validate/all")
	eventually(t, "denial", func() error {
		other := &v1alpha1.AdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a"}, Spec: spec("")}
		if w.admin.Create(t.Context(), other, client.DryRunAll) == nil {
			return errors.New("another object passes")
		}
		return nil
	})
	w.status(t, all, "1/1", "Sent=True/Sent")
	w.change(t, all, func() { all.Labels = map[string]string{"a": "b"} })
	w.delete(t, all)
}

// TestWithoutCAs restarts a controller without its file of CAs: entries stay and say so, policies can
// be deleted, and a controller with the file goes on.
func TestWithoutCAs(t *testing.T) {
	w := newWorld(t)
	pod := w.pod(t, "webhook", "webhook-0", "n")
	kept, leaving, late := policy("kept", ""), policy("leaving", ""), policy("late", "")
	without := w.options()
	without.entries.CAFile = ""
	w.create(t, kept)
	// Nothing is written before there was a file.
	w.report(t, pod, state(kept, "Serving", ""))
	stop := w.run(t, without)
	w.status(t, kept, "1/1")
	stop()
	if _, err := w.paths(t.Context()); err == nil {
		t.Error("there is a webhook configuration")
	}
	w.create(t, leaving)
	w.report(t, pod, state(kept, "Serving", ""), state(leaving, "Serving", ""))
	stop = w.run(t, w.options())
	w.sent(t, "/validate/kept", "/validate/leaving")
	stop()

	stop = w.run(t, without)
	w.status(t, kept, "1/1", "Sent=True/NoCertificate")
	w.create(t, late)
	w.report(t, pod, state(kept, "Serving", ""), state(leaving, "Serving", ""), state(late, "Serving", ""))
	w.status(t, late, "1/1")
	w.delete(t, leaving)
	w.sent(t, "/validate/kept")
	stop()

	stop = w.run(t, w.options())
	w.sent(t, "/validate/kept", "/validate/late")
	w.status(t, kept, "1/1", "Sent=True/Sent")
	stop()
	testGuard(t, w)
}

// testGuard holds that the policy of the chart lets the controller alone write the versions that
// processes serve.
func testGuard(t *testing.T, w *world) {
	text, err := os.ReadFile("../../charts/manifests/controller/controller.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range strings.Split(string(text), "\n---\n") {
		var of metav1.TypeMeta
		var object client.Object
		err := yaml.Unmarshal([]byte(document), &of)
		switch of.Kind {
		case "ValidatingAdmissionPolicy":
			object = new(admissionv1.ValidatingAdmissionPolicy)
		case "ValidatingAdmissionPolicyBinding":
			object = new(admissionv1.ValidatingAdmissionPolicyBinding)
		}
		if object != nil {
			err = errors.Join(err, yaml.UnmarshalStrict([]byte(document), object))
		}
		if err != nil {
			t.Fatal(err)
		}
		if object != nil {
			w.create(t, object)
		}
	}
	config := rest.CopyConfig(w.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:kubewasm-webhook:kubewasm-webhook-controller", Groups: []string{"system:masters"}}
	controller, err := client.New(config, client.Options{Scheme: scheme()})
	if err != nil {
		t.Fatal(err)
	}
	guarded := policy("guarded", "")
	w.create(t, guarded)
	patch := func(as client.Client, text string) error {
		return as.Status().Patch(t.Context(), guarded.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(text)))
	}
	revision := func(name string) *v1alpha1.PluginRevision {
		return &v1alpha1.PluginRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}, PluginKind: "AdmissionPolicy", Plugin: "a", Revision: 1, Generation: 1, Spec: spec(`{"module":{"oci":"a:1"}}`), Hash: "h"}
	}
	const rollout, pin = `{"status":{"rollout":{"generation":1,"wanted":2}}}`, `{"status":{"pin":{"generation":1,"reference":"a@sha256:b"}}}`
	denied := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "controller") {
			t.Errorf("%s: error %v", what, err)
		}
	}
	eventually(t, "denial", func() error {
		if patch(w.admin, rollout) == nil {
			return errors.Join(errors.New("an administrator's patch passes"), patch(controller, `{"status":{"rollout":null}}`))
		}
		return nil
	})
	denied("a rollout", patch(w.admin, rollout))
	denied("a pin", patch(w.admin, pin))
	denied("a revision", w.admin.Create(t.Context(), revision("theirs")))
	own := revision("own")
	for what, err := range map[string]error{
		"a rollout": patch(controller, rollout), "a pin": patch(controller, pin), "a revision": controller.Create(t.Context(), own),
		"another member of the status": patch(w.admin, `{"status":{"ready":"1/2"}}`), "a label": w.admin.Patch(t.Context(), own, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`))),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	denied("another spec of a revision", w.admin.Patch(t.Context(), own, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"module":{"oci":"b:1"}}}`))))
	denied("the rollout taken away", patch(w.admin, `{"status":{"rollout":null}}`))
}
