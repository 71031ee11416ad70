package policies_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities"
	"github.com/kubewasm/kubewasm/host"
)

// hostsInRego is the policy of Gatekeeper's library that users ask for most.
const hostsInRego = `package p
violation contains {"msg": msg} if {
	some ns, name
	other := data.inventory.namespace[ns]["networking.k8s.io/v1"]["Ingress"][name]
	not same(ns, name)
	other.spec.rules[_].host == input.review.object.spec.rules[_].host
	msg := sprintf("host is that of %s/%s", [ns, name])
}
same(ns, name) if { ns == input.review.namespace; name == input.review.name }
`

var ingressKind = capabilities.Kind{APIVersion: "networking.k8s.io/v1", Kind: "Ingress"}

// A policy for Gatekeeper sees the objects as they are at each request.
func TestInventoryFollowsTheCluster(t *testing.T) {
	ingresses := &objects{}
	cfg := config(t, "hosts", regoSource(t, "p/violation", hostsInRego))
	cfg.Cluster, cfg.ContextAwareResources = &keeper{kept: map[string]*objects{"networking.k8s.io/v1/ingresses": ingresses}}, []capabilities.Kind{ingressKind}
	cfg.Limits.Instances = 1
	p := load(t, cfg)
	e := admission.NewEngine(p)
	taken := func(by string) *admissionv1.AdmissionResponse { return denied(403, "Forbidden", "host is that of "+by) }
	for _, step := range []struct {
		name string
		set  []*host.Object
		err  error
		want *admissionv1.AdmissionResponse
	}{
		{"no objects", nil, nil, allowed()},
		{"one of that host", []*host.Object{ingress("bank", "a", "a.example.com")}, nil, taken("bank/a")},
		{"itself", []*host.Object{ingress("shop", "new", "a.example.com")}, nil, allowed()},
		{"another namespace", []*host.Object{ingress("bank", "b", "b.example.com"), ingress("zoo", "a", "a.example.com")}, nil, taken("zoo/a")},
		{"a host that has changed", []*host.Object{ingress("bank", "b", "a.example.com"), ingress("zoo", "a", "c.example.com")}, nil, taken("bank/b")},
		{"not known", nil, errors.New("the API server is away"), denied(500, "InternalError", `plugin "hosts": look up objects: networking.k8s.io/v1 Ingress: the API server is away`)},
		{"no objects any more", nil, nil, allowed()},
	} {
		ingresses.set(step.err, step.set...)
		t.Run(step.name, func(t *testing.T) {
			for range 2 { // The second request changes nothing.
				compare(t, step.want, e.Validate(t.Context(), hostRequest("a.example.com")))
			}
		})
	}
	if err := p.Close(t.Context()); err != nil || ingresses.open != 0 {
		t.Errorf("%v; %d uses are open", err, ingresses.open)
	}
}

// dumps denies with what it finds in data.
const dumps = `package p
violation contains {"msg": json.marshal(data.inventory)} if true
`

const dumpsKubernetes = `package p
main contains json.marshal({"kubernetes": data.kubernetes, "setting": data.setting})
`

// Data is the same however it has become so: by many small changes, in a new instance, or in
// a module that cannot change it.
func TestInventoryDoesNotDependOnItsHistory(t *testing.T) {
	kinds := []capabilities.Kind{
		{APIVersion: "v1", Kind: "Pod"}, {APIVersion: "v1", Kind: "Node"},
		{APIVersion: "v1", Kind: "Secret", Namespaces: []string{"b", "a"}},
	}
	module := func(entrypoint, source string, without ...string) host.Source {
		data, err := os.ReadFile(regoSource(t, entrypoint, source))
		if err != nil {
			t.Fatal(err)
		}
		for _, export := range without {
			name := string(rune(len(export))) + export
			if !bytes.Contains(data, []byte(name)) {
				t.Fatalf("the module has no %s", export)
			}
			data = bytes.ReplaceAll(data, []byte(name), []byte(name[:1]+strings.Repeat("x", len(export))))
		}
		return host.Bytes(data)
	}
	for name, test := range map[string]struct {
		source     host.Source
		gatekeeper bool
	}{
		"Gatekeeper":                      {module("p/violation", dumps), true},
		"OPA":                             {module("p/main", dumpsKubernetes), false},
		"without a stash of free blocks":  {module("p/violation", dumps, "opa_heap_blocks_stash"), true},
		"without changes in place":        {module("p/violation", dumps, "opa_value_add_path"), true},
		"OPA, without changes in place":   {module("p/main", dumpsKubernetes, "opa_value_remove_path"), false},
		"an older compiler":               {module("p/violation", dumps, "opa_eval"), true},
		"an older compiler of OPA's form": {module("p/main", dumpsKubernetes, "opa_eval"), false},
	} {
		t.Run(name, func(t *testing.T) {
			kept := map[string]*objects{"v1/pods": {}, "v1/nodes": {}, "v1/secrets a": {}, "v1/secrets b": {}}
			cfg := pluginConfig{
				Config: host.Config{Name: "p", Module: host.ModuleConfig{Source: test.source}, Limits: host.Limits{Instances: 1}}, Cluster: &keeper{kept: kept},
				Scope: capabilities.Scope{ContextAwareResources: kinds},
			}
			if !test.gatekeeper {
				cfg.GuestConfig = []byte(`{"setting":[1]}`)
			}
			e := admission.NewEngine(load(t, cfg))
			random := rand.New(rand.NewPCG(1, 2))
			have := map[string]*host.Object{} // By resource, namespace and name.
			pick := func(n int) string { return string(rune('a' + random.IntN(n))) }
			for round := range 120 {
				for range random.IntN(6) {
					resource, namespace, object := "pods", pick(3), pick(4)
					switch random.IntN(4) {
					case 0:
						resource, namespace = "nodes", ""
					case 1:
						resource, namespace = "secrets", pick(2)
					}
					key := resource + " " + namespace + " " + object
					if random.IntN(2) == 0 {
						delete(have, key)
						continue
					}
					have[key] = &host.Object{Namespace: namespace, Name: object, JSON: fmt.Appendf(nil, `{"n":%d,"text":%q}`, round, strings.Repeat("x", random.IntN(2000)))}
				}
				want := map[string]any{}
				put := func(path []string, object *host.Object) {
					at := want
					for _, part := range path {
						if at[part] == nil {
							at[part] = map[string]any{}
						}
						at = at[part].(map[string]any)
					}
					var value any
					if err := json.Unmarshal(object.JSON, &value); err != nil {
						t.Fatal(err)
					}
					at[object.Name] = value
				}
				if test.gatekeeper {
					want["cluster"], want["namespace"] = map[string]any{}, map[string]any{}
				}
				lists := map[string][]*host.Object{}
				kindOf := map[string]string{"pods": "Pod", "nodes": "Node", "secrets": "Secret"}
				for _, key := range slices.Sorted(maps.Keys(have)) {
					resource, o := strings.Fields(key)[0], have[key]
					scope := "v1/" + resource
					if resource == "secrets" {
						scope += " " + o.Namespace
					}
					lists[scope] = append(lists[scope], o)
					switch {
					case !test.gatekeeper && o.Namespace == "":
						put([]string{resource}, o)
					case !test.gatekeeper:
						put([]string{resource, o.Namespace}, o)
					case o.Namespace == "":
						put([]string{"cluster", "v1", kindOf[resource]}, o)
					default:
						put([]string{"namespace", o.Namespace, "v1", kindOf[resource]}, o)
					}
				}
				if !test.gatekeeper {
					want = map[string]any{"kubernetes": want, "setting": []any{1.0}}
				}
				for scope, o := range kept {
					o.set(nil, lists[scope]...)
				}
				got := e.Validate(t.Context(), requestOf(`{}`))
				var data map[string]any
				if err := json.Unmarshal([]byte(strings.TrimPrefix(got.Result.Message, "p: ")), &data); err != nil {
					t.Fatalf("round %d: %v: %s", round, err, got.Result.Message)
				}
				if diff := cmp.Diff(want, data); diff != "" {
					t.Fatalf("round %d (-want +got)\n%s", round, diff)
				}
			}
		})
	}
}

// unknownKinds is a cluster that learns a kind late.
type unknownKinds struct {
	keeper
	known bool
}

func (u *unknownKinds) Resource(ctx context.Context, kind schema.GroupVersionKind) (schema.GroupVersionResource, error) {
	if !u.known {
		return schema.GroupVersionResource{}, errors.New("no such kind")
	}
	return u.keeper.Resource(ctx, kind)
}

func TestInventoryOfAKindThatIsNotKnownYet(t *testing.T) {
	cluster := &unknownKinds{keeper: keeper{kept: map[string]*objects{}}}
	cfg := config(t, "hosts", regoSource(t, "p/violation", hostsInRego))
	cfg.Cluster, cfg.ContextAwareResources = cluster, []capabilities.Kind{ingressKind}
	e := admission.NewEngine(load(t, cfg))
	compare(t, denied(500, "InternalError", `plugin "hosts": look up objects: networking.k8s.io/v1 Ingress: no such kind`), e.Validate(t.Context(), hostRequest("a")))
	cluster.known = true
	compare(t, allowed(), e.Validate(t.Context(), hostRequest("a")))
}

func TestInventoryThatIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		entrypoint, source, settings string
		cluster                      admission.Cluster
		kinds                        []capabilities.Kind
		operations                   []string
		want                         string
	}{
		"the other form":        {"p/violation", "package p\nviolation contains {\"msg\": \"no\"} if data.kubernetes.pods\n", "", cluster{}, []capabilities.Kind{ingressKind}, nil, "data.kubernetes, which this host does not fill for it: want data.inventory"},
		"settings in its place": {"p/main", dumpsKubernetes, `{"kubernetes":{}}`, cluster{}, []capabilities.Kind{ingressKind}, nil, "settings have kubernetes, which the objects of contextAwareResources take"},
		"no cluster":            {"p/violation", hostsInRego, "", nil, []capabilities.Kind{ingressKind}, nil, "contextAwareResources"},
		"operations":            {"p/violation", hostsInRego, "", cluster{}, []capabilities.Kind{ingressKind}, []string{"kubernetes/*"}, "dialect.kubewarden is for modules of that dialect, and the module is of opa"},
		"mistakes": {"p/violation", hostsInRego, "", cluster{}, []capabilities.Kind{{Kind: "Pod"}, {APIVersion: "v1", Kind: "Pod", Namespaces: []string{"A"}}}, nil,
			"contextAwareResources has apiVersion \"\", kind \"Pod\"\ncontextAwareResources has namespace \"A\" of v1 Pod: a lowercase RFC 1123 label"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t, "p", regoSource(t, test.entrypoint, test.source))
			cfg.GuestConfig, cfg.Cluster, cfg.ContextAwareResources, cfg.HostCapabilities = []byte(test.settings), test.cluster, test.kinds, test.operations
			if _, err := loadPlugin(t.Context(), shared, cfg); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, want %s", err, test.want)
			}
		})
	}
}

// The objects of a cluster neither use up the fuel of a verdict nor take more memory than the
// plugin may have, and a policy that fails on them is filled again.
func TestInventoryWithinLimits(t *testing.T) {
	pods := &objects{}
	var list []*host.Object
	for i := range 2000 {
		list = append(list, &host.Object{Namespace: "a", Name: fmt.Sprintf("p%04d", i), JSON: fmt.Appendf(nil, `{"metadata":{"name":"p%04d"},"spec":{"text":%q}}`, i, strings.Repeat("x", 2000))})
	}
	const source = `package p
violation contains {"msg": sprintf("%d", [count(data.inventory.namespace.a["v1"].Pod)])} if true
`
	cfg := config(t, "p", regoSource(t, "p/violation", source))
	cfg.Cluster, cfg.ContextAwareResources = &keeper{kept: map[string]*objects{"v1/pods": pods}}, []capabilities.Kind{{APIVersion: "v1", Kind: "Pod"}}
	cfg.Limits = host.Limits{Instances: 1, Fuel: 60_000_000, MemoryBytes: 16 << 20, Timeout: time.Minute}
	e := admission.NewEngine(load(t, cfg))
	pods.set(nil, list...)
	compare(t, denied(403, "Forbidden", "2000"), e.Validate(t.Context(), requestOf(`{}`)))
	// Four times as many do not fit.
	var more []*host.Object
	for _, suffix := range []string{"a", "b", "c", "d"} {
		for _, o := range list {
			more = append(more, &host.Object{Namespace: "a", Name: o.Name + suffix, JSON: o.JSON})
		}
	}
	slices.SortFunc(more, func(a, b *host.Object) int { return strings.Compare(a.Name, b.Name) })
	pods.set(nil, more...)
	if got := e.Validate(t.Context(), requestOf(`{}`)); got.Allowed || got.Result.Code != 500 {
		t.Errorf("answer is %+v", got.Result)
	}
	pods.set(nil, list...)
	compare(t, denied(403, "Forbidden", "2000"), e.Validate(t.Context(), requestOf(`{}`)))
	// Changes without end leave no more garbage than data may have.
	for i := range 300 {
		changed := slices.Clone(list)
		for n := range 20 {
			o := *changed[(i*20+n)%len(changed)]
			changed[(i*20+n)%len(changed)] = &o
		}
		list = changed
		pods.set(nil, list...)
		compare(t, denied(403, "Forbidden", "2000"), e.Validate(t.Context(), requestOf(`{}`)))
	}
}

// deny fails unless the policy of BenchmarkInventory has found what it looks for.
func deny(b *testing.B, got *admissionv1.AdmissionResponse) {
	if got.Allowed || got.Result.Code != 403 {
		b.Fatalf("answer is %+v", got.Result)
	}
}

// BenchmarkInventory asks a policy that looks into data of 1,000 Pods of 4 KB: as they are, after
// one of them has changed, and with all of them parsed again, as a request does whose data come
// with it.
func BenchmarkInventory(b *testing.B) {
	pod, err := os.ReadFile("testdata/pod.json")
	if err != nil {
		b.Fatal(err)
	}
	const source = `package p
violation contains {"msg": "there is one of that name"} if data.inventory.namespace[input.review.namespace]["v1"].Pod[input.review.object.metadata.labels.wants]
`
	policy := func(b *testing.B, pods *objects) *admission.Engine {
		cfg := config(b, "p", regoSource(b, "p/violation", source))
		cfg.Cluster, cfg.ContextAwareResources = &keeper{kept: map[string]*objects{"v1/pods": pods}}, []capabilities.Kind{{APIVersion: "v1", Kind: "Pod"}}
		cfg.Limits.Instances = 1
		return admission.NewEngine(load(b, cfg))
	}
	var list []*host.Object
	for i := range 1000 {
		list = append(list, &host.Object{Namespace: "shop", Name: fmt.Sprintf("p%04d", i), JSON: pod})
	}
	request := requestOf(`{"metadata":{"labels":{"wants":"p0500"}}}`)
	for _, bench := range []struct {
		name   string
		change func(i int, list []*host.Object) []*host.Object
	}{
		{"unchanged", func(_ int, list []*host.Object) []*host.Object { return list }},
		{"one has changed", func(i int, list []*host.Object) []*host.Object {
			list = slices.Clone(list)
			o := *list[i%len(list)]
			list[i%len(list)] = &o
			return list
		}},
		{"all have changed", func(_ int, list []*host.Object) []*host.Object {
			list = slices.Clone(list)
			for i := range list {
				o := *list[i]
				list[i] = &o
			}
			return list
		}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			pods, list := &objects{}, list
			pods.set(nil, list...)
			e := policy(b, pods)
			deny(b, e.Validate(b.Context(), request))
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				list = bench.change(i, list)
				pods.set(nil, list...)
				deny(b, e.Validate(b.Context(), request))
				i++
			}
		})
	}
}
