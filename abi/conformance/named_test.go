package conformance_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/framework"
	"github.com/kubewasm/kubewasm/internal/manifest"
	"github.com/kubewasm/kubewasm/sched"
)

// TestNamedEvents holds that guests register for events of custom resources, read their objects in
// hints, and activate Pods.
func TestNamedEvents(t *testing.T) { run(t, "named", onCases(namedCases)) }

func namedCases(t *testing.T, rt *host.Runtime, guest string, _ *Suite) {
	var activated []string
	handle := &framework.Handle{Informers: framework.NewInformers(), Activates: func(pods []types.NamespacedName) {
		for _, pod := range pods {
			activated = append(activated, pod.String())
		}
	}}
	p, err := sched.Load(t.Context(), rt, sched.PluginConfig{
		Objects: []host.ObjectGrant{{Resource: "example.com/v1/things"}},
		Config:  host.Config{Name: "named", Module: host.ModuleConfig{File: guest}, Grants: []string{sched.GrantActivate}},
	}, framework.Of(handle))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(context.WithoutCancel(t.Context()))
	type event struct {
		Resource abi.EventResource
		Object   string
		Action   abi.ActionType
		Hint     bool
	}
	var got []event
	events := p.EventsToRegister()
	for _, e := range events {
		got = append(got, event{e.Resource, e.Object, e.Action, e.Hint != nil})
	}
	if diff := cmp.Diff([]event{
		{Resource: abi.EventNode, Action: abi.ActionAdd},
		{abi.EventNamed, "example.com/v1/things", abi.ActionAdd | abi.ActionUpdate, true},
	}, got); diff != "" {
		t.Fatalf("events (-want +got):\n%s", diff)
	}
	list, err := manifest.Read([]byte(`{apiVersion: example.com/v1, kind: Thing, metadata: {namespace: shop, name: x}, spec: {for: web}}`))
	if err != nil {
		t.Fatal(err)
	}
	thing, _, err := framework.Decode(&list.All[0])
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1"}}
	for name, want := range map[string]bool{"web": true, "api": false} {
		of := pod.DeepCopy()
		of.Name = name
		if queue, err := events[1].Hint(of, nil, thing); queue != want || err != nil {
			t.Errorf("the hint about %s is %t, %v; want %t", name, queue, err, want)
		}
	}
	if status, _ := p.Permit(p.Begin(pod), pod, "n1"); status != nil {
		t.Error(status.Message())
	}
	if diff := cmp.Diff([]string{"shop/a", "bank/b"}, activated); diff != "" {
		t.Errorf("activated (-want +got):\n%s", diff)
	}
}
