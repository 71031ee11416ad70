package main

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
)

// TestLifeOfAPolicy follows policies from their creation to their end.
func TestLifeOfAPolicy(t *testing.T) {
	w := newWorld(t)
	w.run(t, w.options())
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

	owned := &v1alpha1.AdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "zone"}, Spec: spec(`{"allowedToMutate":true}`)}
	w.create(t, owned)
	both := state(owned, "Serving", "")
	both.Webhooks = []string{"mutate", "validate"}
	w.report(t, one, state(zone, "Serving", ""), both)
	w.sent(t, "/mutate/team/zone", "/validate/team/zone", "/validate/zone")
	w.status(t, owned, "1/2", "Ready=False/NotReported", "Sent=True/Sent")
}
