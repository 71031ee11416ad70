package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
)

// TestManyPolicies has more policies than a webhook configuration takes, and a policy that is too large
// for it.
func TestManyPolicies(t *testing.T) {
	w := newWorld(t)
	// As the chart's conditions, and an old CA beside a new one.
	o := w.options()
	o.entries.Conditions = []admissionv1.MatchCondition{{Name: "c", Expression: "'" + strings.Repeat("x", 1200) + "' != ''"}}
	if err := os.WriteFile(w.caFile, append(w.Config.CAData, w.Config.CAData...), 0o600); err != nil {
		t.Fatal(err)
	}
	pod := w.pod(t, "webhook", "webhook-0", "n")
	var states []v1alpha1.PluginState
	var policies []client.Object
	add := func(p client.Object) {
		w.create(t, p)
		policies, states = append(policies, p), append(states, state(p, "Serving", ""))
	}
	rule := `{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["` + strings.Repeat("x", 60) + `"]}`
	large := policy("large", `{"match":{"rules":[`+strings.Repeat(rule+",", 300)+rule+`]}}`)
	add(large)
	for i := range 100 {
		add(&v1alpha1.AdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: fmt.Sprintf("policy-%d", i)}, Spec: spec("")})
	}
	for i := range 380 {
		add(policy(fmt.Sprintf("policy-%d", i), ""))
	}
	w.report(t, pod, states...)
	w.run(t, o)
	w.status(t, large, "1/1", "Sent=False/RulesInvalid")
	sent := map[string]int{}
	eventually(t, "conditions", func() error {
		clear(sent)
		all, err := w.policies(t.Context())
		if err != nil {
			return err
		}
		for key, p := range all {
			c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionSent)
			if c == nil {
				return errors.New("a policy has none")
			}
			sent[key.Kind+" "+c.Reason]++
		}
		return nil
	})
	v := &admissionv1.ValidatingWebhookConfiguration{}
	if err := w.admin.Get(t.Context(), client.ObjectKey{Name: "kubewasm-webhook-cluster"}, v); err != nil {
		t.Fatal(err)
	}
	t.Logf("%v, %d entries have %d bytes", sent, len(v.Webhooks), v.Size())
	if sent["AdmissionPolicy TooMany"] == 0 || sent["ClusterAdmissionPolicy TooMany"] != 0 || len(v.Webhooks) < 400 || v.Size() > 3<<19 {
		t.Errorf("the conditions are %v, and %d entries have %d bytes", sent, len(v.Webhooks), v.Size())
	}
}
