package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
)

// TestLifeOfAPolicy follows policies from their creation to their end.
func TestLifeOfAPolicy(t *testing.T) {
	w := newWorld(t)
	stop := w.run(t, w.options())
	one := w.pod(t, "webhook", "webhook-1", "n1")
	two := w.pod(t, "webhook", "webhook-2", "n1")
	zone := policy("zone", `{"limits":{"timeout":"1500ms"}}`)
	w.create(t, zone)
	w.sent(t)
	w.status(t, zone, "0/2", "Ready=False/NotReported", "Sent=False/NotServing")

	w.report(t, one, state(zone, "Loading", ""))
	w.report(t, two, state(zone, "Loading", ""))
	w.status(t, zone, "0/2", "Ready=False/Loading", "Sent=False/NotServing")
	w.report(t, one, state(zone, "Serving", ""))
	w.sent(t, "/validate/zone")
	w.status(t, zone, "1/2", "Ready=False/Loading", "Sent=True/Sent")
	w.report(t, two, state(zone, "Serving", ""))
	w.status(t, zone, "2/2", "Ready=True/Serving", "Sent=True/Sent")

	// A policy of a namespace, which mutates.
	owned := &v1alpha1.AdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "zone"}, Spec: spec(`{"allowedToMutate":true,"mode":"Monitor"}`)}
	w.create(t, owned)
	both := func() v1alpha1.PluginState {
		s := state(owned, "Serving", "")
		s.Webhooks = []string{"mutate", "validate"}
		return s
	}
	w.report(t, one, state(zone, "Serving", ""), both())
	w.sent(t, "/mutate/team/zone", "/validate/team/zone", "/validate/zone")
	w.status(t, owned, "1/2", "Ready=False/NotReported", "Sent=True/Sent")
	got, _ := w.entries(t)
	want := []admissionv1.ValidatingWebhook{
		{
			Name: "zone.team.admissionpolicies.kubewasm.dev",
			ClientConfig: admissionv1.WebhookClientConfig{
				Service:  &admissionv1.ServiceReference{Namespace: namespace, Name: "kubewasm-webhook", Path: ptr.To("/validate/team/zone"), Port: ptr.To[int32](443)},
				CABundle: w.Config.CAData,
			},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{"CREATE"},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}, Scope: ptr.To(admissionv1.NamespacedScope)},
			}},
			// It only monitors.
			FailurePolicy: ptr.To(admissionv1.Ignore), MatchPolicy: ptr.To(admissionv1.Equivalent),
			NamespaceSelector:       &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "kubernetes.io/metadata.name", Operator: "In", Values: []string{"team"}}}},
			ObjectSelector:          &metav1.LabelSelector{},
			SideEffects:             ptr.To(admissionv1.SideEffectClassNone),
			TimeoutSeconds:          ptr.To[int32](5),
			AdmissionReviewVersions: []string{"v1"},
		},
		{
			Name: "zone.clusteradmissionpolicies.kubewasm.dev",
			ClientConfig: admissionv1.WebhookClientConfig{
				Service:  &admissionv1.ServiceReference{Namespace: namespace, Name: "kubewasm-webhook", Path: ptr.To("/validate/zone"), Port: ptr.To[int32](443)},
				CABundle: w.Config.CAData,
			},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{"CREATE"},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}, Scope: ptr.To(admissionv1.AllScopes)},
			}},
			FailurePolicy: ptr.To(admissionv1.Fail), MatchPolicy: ptr.To(admissionv1.Equivalent),
			NamespaceSelector:       &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "kubernetes.io/metadata.name", Operator: "NotIn", Values: []string{"kube-system", namespace}}}},
			ObjectSelector:          &metav1.LabelSelector{},
			SideEffects:             ptr.To(admissionv1.SideEffectClassNone),
			TimeoutSeconds:          ptr.To[int32](2),
			AdmissionReviewVersions: []string{"v1"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}

	// A change is not ready before it serves, and its entry stays meanwhile.
	w.change(t, zone, func() { zone.Spec = spec(`{"failurePolicy":"Ignore"}`) })
	w.status(t, zone, "0/2", "Ready=False/NotReported", "Sent=True/Sent")
	// It breaks: the earlier version serves.
	stale := state(zone, "Stale", "compile: \x1b[31m broken")
	w.report(t, one, stale, both())
	w.report(t, two, stale, both())
	w.status(t, zone, "0/2", "Ready=False/Stale", "Sent=True/Sent")
	if got, want := meta.FindStatusCondition(zone.Status.Conditions, "Ready").Message, `2 of 2: compile: \u001b[31m broken (webhook-1)`; got != want {
		t.Errorf("the message is %q, want %q", got, want)
	}
	w.sent(t, "/mutate/team/zone", "/validate/team/zone", "/validate/zone")
	eventually(t, "an Event on the policy", func() error {
		list, err := w.Cluster.Client.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Reason == "PluginStale" && e.Regarding.Name == zone.Name && e.Regarding.UID == zone.UID && strings.Contains(e.Note, "2 of 2: compile") {
				return nil
			}
		}
		return fmt.Errorf("there are %d Events: %v", len(list.Items), list.Items)
	})
	// What it has guarded stays guarded, unless it is disabled.
	for _, without := range []string{"Unavailable", "Refused", "Loading", "?"} {
		w.report(t, one, state(zone, without, "no"), both())
		w.report(t, two, state(zone, without, "no"), both())
		w.status(t, zone, "0/2", "Sent=True/NotServing")
		w.sent(t, "/mutate/team/zone", "/validate/team/zone", "/validate/zone")
	}
	w.report(t, one, state(zone, "Disabled", "no"), both())
	w.report(t, two, state(zone, "Disabled", "no"), both())
	w.sent(t, "/mutate/team/zone", "/validate/team/zone")
	w.report(t, one, state(zone, "Serving", ""), both())
	w.sent(t, "/mutate/team/zone", "/validate/team/zone", "/validate/zone")
	// It is repaired.
	w.report(t, two, state(zone, "Serving", ""), both())
	w.status(t, zone, "2/2", "Ready=True/Serving", "Sent=True/Sent")
	w.status(t, owned, "2/2", "Ready=True/Serving", "Sent=True/Sent")
	// A Pod goes, and its report with it.
	if err := w.admin.Delete(t.Context(), two, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	w.status(t, zone, "1/1", "Ready=True/Serving")
	eventually(t, "the report of a Pod that is gone", func() error {
		err := w.admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "webhook-2"}, &v1alpha1.PluginReport{})
		if err == nil {
			return errors.New("is there")
		}
		return client.IgnoreNotFound(err)
	})
	// It is disabled, enabled, and has wrong rules.
	for _, c := range []struct{ spec, sent string }{
		{`{"enabled":false}`, "False/Disabled"}, {`{"match":{}}`, "True/NoRules"}, {`{"converts":[{"group":"a.example","kind":"B"}]}`, "False/Converts"},
		{`{"match":{"rules":[{"operations":["CREATE"],"apiGroups":["A/b"],"apiVersions":["v1"],"resources":["configmaps"]}]}}`, "True/RulesInvalid"},
		// This module's checks take it, and the API server does not.
		{`{"match":{"rules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["pods","pods/*","*/*","*"]}]}}`, "True/RulesInvalid"},
	} {
		w.change(t, zone, func() { zone.Spec = spec(c.spec) })
		w.report(t, one, state(zone, "Serving", ""), both())
		w.status(t, zone, "1/1", "Sent="+c.sent)
		w.change(t, zone, func() { zone.Spec = spec("") })
		w.report(t, one, state(zone, "Serving", ""), both())
		w.status(t, zone, "1/1", "Sent=True/Sent")
		w.sent(t, "/mutate/team/zone", "/validate/team/zone", "/validate/zone")
	}
	// Entries that others write go, and those that others remove come back.
	w.overwrite(t, nil)
	w.sent(t, "/mutate/team/zone", "/validate/team/zone", "/validate/zone")
	w.overwrite(t, func(all []admissionv1.ValidatingWebhook) []admissionv1.ValidatingWebhook {
		other := all[0].DeepCopy()
		other.Name, other.ClientConfig.Service.Path = "other.clusteradmissionpolicies.kubewasm.dev", ptr.To("/validate/other")
		all[0].FailurePolicy = ptr.To(admissionv1.Fail)
		return append(all, *other)
	})
	w.sent(t, "/mutate/team/zone", "/validate/team/zone", "/validate/zone")

	// Deletion waits for the entries, and nothing else.
	w.delete(t, zone)
	w.sent(t, "/mutate/team/zone", "/validate/team/zone")
	w.delete(t, owned)
	w.sent(t)
	// A policy of the same name is not the one that the replicas report on.
	again := policy("zone", "")
	w.create(t, again)
	w.status(t, again, "0/1", "Ready=False/NotReported", "Sent=False/NotServing")
	w.report(t, one, state(again, "Serving", ""))
	w.status(t, again, "1/1", "Ready=True/Serving", "Sent=True/Sent")

	// Without its controller, a policy can be deleted after -uninstall.
	stop()
	if err := run(t.Context(), []string{"-kubeconfig", w.Kubeconfig, "-namespace", namespace, "-uninstall", "-uninstall-deployment", "kubewasm-controller"}); err != nil {
		t.Fatal(err)
	}
	if got, err := w.paths(t.Context()); !apierrors.IsNotFound(err) {
		t.Errorf("the configurations are there: %v, %v", got, err)
	}
	w.delete(t, again)
}
