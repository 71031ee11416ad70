package main

import (
	"testing"

	"github.com/kubewasm/kubewasm/admission/admissiontest"
	"github.com/kubewasm/kubewasm/guest/admission"
)

func TestDefaults(t *testing.T) {
	d := &defaults{CPU: "100m", Memory: "128Mi", Label: "defaults.example.com/applied"}
	tests := []struct{ name, spec, want string }{
		{
			"a container that says nothing", `containers: [{name: web}]`,
			`[{"op":"add","path":"/spec/containers/0/resources","value":{"requests":{"cpu":"100m"}}},` +
				`{"op":"add","path":"/spec/containers/0/resources/requests/memory","value":"128Mi"},` +
				`{"op":"add","path":"/metadata/labels","value":{"defaults.example.com/applied":"true"}}]`,
		},
		{
			"what is there stays", `containers: [{name: web, resources: {requests: {cpu: "2"}, limits: {memory: 1Gi}}}]`, ``,
		},
		{
			"one of two", `containers: [{name: web, resources: {requests: {cpu: "2", memory: 1Gi}}}, {name: db, resources: {requests: {cpu: "1"}}}]`,
			`[{"op":"add","path":"/spec/containers/1/resources/requests/memory","value":"128Mi"},` +
				`{"op":"add","path":"/metadata/labels","value":{"defaults.example.com/applied":"true"}}]`,
		},
		{
			"init containers, and none that are ephemeral", `initContainers: [{name: a}], containers: [{name: web, resources: {limits: {cpu: "1", memory: 1Gi}}}], ephemeralContainers: [{name: b}]`,
			`[{"op":"add","path":"/spec/initContainers/0/resources","value":{"requests":{"cpu":"100m"}}},` +
				`{"op":"add","path":"/spec/initContainers/0/resources/requests/memory","value":"128Mi"},` +
				`{"op":"add","path":"/metadata/labels","value":{"defaults.example.com/applied":"true"}}]`,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			req := admissiontest.Request(t, `{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {`+test.spec+`}}`)
			patch := admission.NewPatch(req.Object())
			if got := d.Mutate(req, patch); !got.Allowed() {
				t.Error(got.Message())
			}
			if got := string(patch.JSON()); got != test.want || patch.Err() != nil {
				t.Errorf("patch is %s, %v\nwant     %s", got, patch.Err(), test.want)
			}
			again := admission.NewPatch(patch.Object())
			req, err := admission.RequestFromReview([]byte(`{"request":{"operation":"CREATE","object":` + string(patch.Object()) + `}}`))
			if err != nil {
				t.Fatal(err)
			}
			if d.Mutate(req, again); again.JSON() != nil {
				t.Errorf("the second patch is %s", again.JSON())
			}
		})
	}
}
