package conformance_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
		Config:  host.Config{Name: "named", Module: host.ModuleConfig{File: guest}, Grants: []string{sched.GrantActivate, sched.GrantApply}},
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

// TestNamedEffects holds that guests look up values of queries, wait for objects, and have changes of
// them applied.
func TestNamedEffects(t *testing.T) {
	run(t, "named", func(t *testing.T, rt *host.Runtime, guest string) {
		var applied []string
		handle := &framework.Handle{Informers: framework.NewInformers(), Applies: func(of sched.Applied) {
			applied = append(applied, fmt.Sprint(of.Resource.Resource, " ", of.Namespace, "/", of.Name, " ", of.Annotations, " ", string(of.Status)))
		}}
		p, err := sched.Load(t.Context(), rt, sched.PluginConfig{
			Objects: []host.ObjectGrant{{Resource: "example.com/v1/things", Apply: []string{"status", "annotations[example.com/a]", "annotations[example.com/by]"}}, {Resource: "metrics.kubewasm.dev/v1/load", Query: &host.ObjectQuery{Prometheus: "load", Service: "monitoring/prometheus", Name: "node"}}},
			Config:  host.Config{Name: "named", Module: host.ModuleConfig{File: guest}, Grants: []string{sched.GrantActivate, sched.GrantApply}},
		}, framework.Of(handle))
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close(context.WithoutCancel(t.Context()))
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1"}}
		samples, err := manifest.Read([]byte(`{apiVersion: metrics.kubewasm.dev/v1, kind: Load, metadata: {name: n1}, value: 0.25}`))
		if err != nil {
			t.Fatal(err)
		}
		sample, _, err := framework.Decode(&samples.All[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := handle.Informers[schema.GroupVersionResource{Group: "metrics.kubewasm.dev", Version: "v1", Resource: "load"}].Add(sample); err != nil {
			t.Fatal(err)
		}
		for node, want := range map[string]int64{"n1": 25, "n2": 50} {
			if score, status := p.Score(p.Begin(pod), framework.NewNodeInfo(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, UID: types.UID(node)}})); score != want || status != nil {
				t.Errorf("the score of %s is %d, %v; want %d", node, score, status, want)
			}
		}
		// Without a thing of its name the Pod waits, until there is one.
		prebind := func(ctx context.Context) string {
			s := p.PreBind(ctx, p.Begin(pod), pod, "n1")
			return strings.TrimSuffix(s.Code().String()+": "+s.Message(), ": ")
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if got := prebind(ended); got != "Wait: no thing web" {
			t.Errorf("PreBind: %s", got)
		}
		bound := make(chan string)
		go func() { bound <- prebind(t.Context()) }()
		other, err := manifest.Read([]byte(`{apiVersion: example.com/v1, kind: Thing, metadata: {namespace: shop, name: web}}`))
		if err != nil {
			t.Fatal(err)
		}
		web, _, err := framework.Decode(&other.All[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := handle.Change(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}, nil, web); err != nil {
			t.Fatal(err)
		}
		if got := <-bound; got != "Success" {
			t.Errorf("PreBind: %s", got)
		}
		if diff := cmp.Diff([]string{"things shop/web map[example.com/a:\"ä example.com/by:web] ", `things shop/web map[] {"phase":"Bound"}`}, applied); diff != "" {
			t.Errorf("applied (-want +got):\n%s", diff)
		}
	})
}
