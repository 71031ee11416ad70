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
	componentresource "k8s.io/component-helpers/resource"
	"sigs.k8s.io/yaml"

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

// TestNamedResources holds that guests compute the QoS class and the requests of a Pod as Kubernetes does:
// the class, and thousandths of four resources.
func TestNamedResources(t *testing.T) {
	run(t, "named", func(t *testing.T, rt *host.Runtime, guest string) {
		p, err := sched.Load(t.Context(), rt, sched.PluginConfig{
			Objects: []host.ObjectGrant{{Resource: "example.com/v1/things"}},
			Config:  host.Config{Name: "named", Module: host.ModuleConfig{File: guest}, Grants: []string{sched.GrantActivate, sched.GrantApply}},
		}, framework.Of(&framework.Handle{Informers: framework.NewInformers()}))
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close(context.WithoutCancel(t.Context()))
		const (
			none   = "{name: n}"
			equal  = "{name: e, resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1000m, memory: 1024Mi}}}"
			part   = "{name: p, resources: {requests: {cpu: 500m}}}"
			gpu    = "{name: g, resources: {requests: {example.com/gpu: 2}, limits: {example.com/gpu: 2}}}"
			large  = "{name: l, resources: {requests: {cpu: 3}}}"
			beside = "{name: s, restartPolicy: Always, resources: {requests: {cpu: 200m, example.com/gpu: 1}}}"
		)
		for name, test := range map[string]struct{ pod, want string }{
			"nothing":                        {"spec: {containers: [" + none + "]}", "BestEffort 0 0 0 0"},
			"no containers":                  {"spec: {}", "BestEffort 0 0 0 0"},
			"limits that are the requests":   {"spec: {containers: [" + equal + "]}", "Guaranteed 1000 1073741824000 0 0"},
			"one container without any":      {"spec: {containers: [" + equal + ", " + none + "]}", "Burstable 1000 1073741824000 0 0"},
			"requests without limits":        {"spec: {containers: [" + part + "]}", "Burstable 500 0 0 0"},
			"other resources":                {"spec: {containers: [" + gpu + "]}", "BestEffort 0 0 0 2000"},
			"zeros":                          {"spec: {containers: [{name: z, resources: {requests: {cpu: 0}, limits: {memory: 0}}}]}", "BestEffort 0 0 0 0"},
			"cpu alone, equal":               {"spec: {containers: [{name: c, resources: {requests: {cpu: 1}, limits: {cpu: 1}}}]}", "Burstable 1000 0 0 0"},
			"an init container with more":    {"spec: {initContainers: [" + large + "], containers: [" + part + "]}", "Burstable 3000 0 0 0"},
			"an init container without any":  {"spec: {initContainers: [" + none + "], containers: [" + equal + "]}", "Burstable 1000 1073741824000 0 0"},
			"a sidecar before an init":       {"spec: {initContainers: [" + beside + ", " + large + "], containers: [" + part + "]}", "Burstable 3200 0 0 1000"},
			"a sidecar after an init":        {"spec: {initContainers: [" + large + ", " + beside + "], containers: [" + part + "]}", "Burstable 3000 0 0 1000"},
			"a sidecar beside more":          {"spec: {initContainers: [" + beside + "], containers: [" + large + "]}", "Burstable 3200 0 0 1000"},
			"overhead":                       {"spec: {overhead: {cpu: 250m, example.com/gpu: 1}, containers: [" + equal + "]}", "Guaranteed 1250 1073741824000 0 1000"},
			"the Pod as a whole":             {"spec: {resources: {requests: {cpu: 2}}, containers: [" + equal + "]}", "Burstable 2000 1073741824000 0 0"},
			"the Pod as a whole, guaranteed": {"spec: {resources: {requests: {cpu: 2, memory: 1}, limits: {cpu: 2, memory: 1}}, containers: [" + none + "]}", "Guaranteed 2000 1000 0 0"},
			"the Pod as a whole, huge pages": {"spec: {resources: {requests: {hugepages-2Mi: 2Mi}, limits: {hugepages-2Mi: 2Mi}}, containers: [" + part + "]}", "BestEffort 500 0 2097152000 0"},
			"the Pod as a whole, nothing":    {"spec: {resources: {}, containers: [" + part + "]}", "Burstable 500 0 0 0"},
			"the class of the status":        {"spec: {containers: [" + part + "]}, status: {qosClass: Guaranteed}", "Guaranteed 500 0 0 0"},
		} {
			pod := &corev1.Pod{}
			if err := yaml.UnmarshalStrict([]byte("{metadata: {namespace: shop, name: p, uid: p}, "+test.pod+"}"), pod); err != nil {
				t.Fatal(err)
			}
			status := p.Filter(p.Begin(pod), framework.NewNodeInfo(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n1"}}))
			if got := status.Message(); got != test.want {
				t.Errorf("%s: got %q, want %q", name, got, test.want)
			}
			requests := componentresource.PodRequests(pod, componentresource.PodResourcesOptions{})
			want := test.want[:strings.Index(test.want, " ")]
			for _, name := range []corev1.ResourceName{"cpu", "memory", "hugepages-2Mi", "example.com/gpu"} {
				amount := requests[name]
				want += fmt.Sprint(" ", amount.MilliValue())
			}
			if want != test.want {
				t.Errorf("%s: Kubernetes has %q, the table %q", name, want, test.want)
			}
		}
	})
}
