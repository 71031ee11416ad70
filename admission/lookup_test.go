package admission_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
)

const (
	uniqueHosts = "../examples/admission/unique-hosts"
	asker       = "testdata/asker.wasm"
)

// objects are what a plugin may look up in a test. Without any they are not known.
type objects struct {
	mu        sync.Mutex
	list      []*host.Object
	err       error
	snapshots int
	open      int
}

func (o *objects) Snapshot() ([]*host.Object, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.snapshots++
	return o.list, o.err
}

func (o *objects) set(err error, list ...*host.Object) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list, o.err = list, err
}

func (o *objects) Wait(context.Context) error { return o.err }

func (o *objects) Close() { o.open-- }

// keeper is a cluster that keeps objects by resource and namespace: "v1/pods" and
// "v1/pods shop".
type keeper struct {
	cluster
	kept map[string]*objects
}

func (k *keeper) Keep(resource schema.GroupVersionResource, namespace string, _ host.ObjectQuery) host.Objects {
	key := strings.TrimSpace(strings.TrimPrefix(resource.GroupVersion().String()+"/"+resource.Resource, "/") + " " + namespace)
	if k.kept[key] == nil {
		k.kept[key] = &objects{}
	}
	k.kept[key].open++
	return k.kept[key]
}

func ingress(namespace, name, hostName string) *host.Object {
	return &host.Object{Namespace: namespace, Name: name, JSON: fmt.Appendf(nil,
		`{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","metadata":{"name":%q,"namespace":%q},"spec":{"rules":[{"host":%q}]}}`, name, namespace, hostName)}
}

// hostRequest is the creation of an Ingress.
func hostRequest(host string) *admissionv1.AdmissionRequest {
	r := requestOf(string(ingress("shop", "new", host).JSON))
	r.Kind.Group, r.Kind.Kind, r.Name = "networking.k8s.io", "Ingress", "new"
	return r
}

func message(r *admissionv1.AdmissionResponse) string {
	switch {
	case !r.Allowed:
		return fmt.Sprintf("%d %s", r.Result.Code, r.Result.Message)
	case len(r.Warnings) != 0:
		return "allowed: " + strings.Join(r.Warnings, " ")
	}
	return "allowed"
}

// TestVerdictsFollowWhatWasLookedUp holds that the same bytes are decided anew by the
// objects as they are then, and that a call sees them at one moment.
func TestVerdictsFollowWhatWasLookedUp(t *testing.T) {
	ingresses := &objects{}
	cfg := config(t, "unique", uniqueHosts)
	cfg.Limits.Instances = 1
	cfg.Cluster, cfg.Objects = &keeper{kept: map[string]*objects{"networking.k8s.io/v1/ingresses": ingresses}}, []host.ObjectGrant{{Resource: "networking.k8s.io/v1/ingresses"}}
	engine := admission.NewEngine(load(t, cfg))
	request := hostRequest("a.example.com")
	taken := `422 unique: spec.rules[0].host: Invalid value: "a.example.com": the Ingress bank/web has it`
	for i, step := range []struct {
		list []*host.Object
		want string
	}{
		{nil, "allowed"},
		{[]*host.Object{ingress("bank", "web", "a.example.com")}, taken},
		{[]*host.Object{ingress("bank", "web", "b.example.com")}, "allowed"},
		{[]*host.Object{ingress("bank", "web", "b.example.com"), ingress("shop", "new", "a.example.com")}, "allowed"},
		{[]*host.Object{ingress("bank", "web", "a.example.com"), ingress("shop", "new", "a.example.com")}, taken},
	} {
		ingresses.set(nil, step.list...)
		ingresses.snapshots = 0
		for range 2 {
			if got := message(engine.Validate(t.Context(), request)); got != step.want {
				t.Errorf("step %d: %s, want %s", i, got, step.want)
			}
		}
		if ingresses.snapshots != 2 {
			t.Errorf("step %d: two calls have taken %d snapshots", i, ingresses.snapshots)
		}
	}
}

// TestObjectsThatAreNotKnown holds that a plugin whose objects are not there yet fails as
// its policy says, and not before it looks one up.
func TestObjectsThatAreNotKnown(t *testing.T) {
	for policy, want := range map[host.FailurePolicy]string{
		host.Fail:   `500 plugin "unique": validate trapped: `,
		host.Ignore: `allowed: plugin "unique": validate trapped: `,
	} {
		t.Run(string(policy), func(t *testing.T) {
			ingresses := &objects{err: errors.New("list them: forbidden")}
			kept := &keeper{kept: map[string]*objects{"networking.k8s.io/v1/ingresses": ingresses}}
			cfg := config(t, "unique", uniqueHosts)
			cfg.FailurePolicy, cfg.Cluster, cfg.Objects = policy, kept, []host.ObjectGrant{{Resource: "networking.k8s.io/v1/ingresses"}}
			p, err := admission.Load(t.Context(), shared, cfg)
			if err != nil {
				t.Fatal(err)
			}
			engine := admission.NewEngine(p)
			got := message(engine.Validate(t.Context(), hostRequest("a.example.com")))
			if !strings.HasPrefix(got, want) || !strings.Contains(got, `objects "networking.k8s.io/v1/ingresses": list them: forbidden`) {
				t.Errorf("%s, want %s", got, want)
			}
			ingresses.set(nil)
			if got := message(engine.Validate(t.Context(), hostRequest("a.example.com"))); got != "allowed" {
				t.Errorf("when they are known: %s", got)
			}
			if err := p.Close(t.Context()); err != nil || ingresses.open != 0 {
				t.Errorf("%v, %d uses of the objects are left", err, ingresses.open)
			}
		})
	}
}

// TestLoadWaitsForObjects holds that a plugin is not in service before the objects are known
// that will be soon.
func TestLoadWaitsForObjects(t *testing.T) {
	waited := make(chan struct{})
	cfg := config(t, "asker", asker)
	cfg.Objects = []host.ObjectGrant{{Resource: "v1/pods"}}
	cfg.Cluster = waitingCluster{waited: waited}
	loaded := make(chan struct{})
	go func() {
		defer close(loaded)
		load(t, cfg)
	}()
	select {
	case <-loaded:
		t.Error("the plugin was loaded before the objects were known")
	case waited <- struct{}{}:
	}
	<-loaded
}

type waitingCluster struct {
	cluster
	waited chan struct{}
}

func (w waitingCluster) Keep(schema.GroupVersionResource, string, host.ObjectQuery) host.Objects {
	return waiting{w.waited}
}

type waiting struct{ waited chan struct{} }

func (w waiting) Wait(context.Context) error {
	<-w.waited
	return nil
}

func (w waiting) Snapshot() ([]*host.Object, error) { return nil, nil }
func (w waiting) Close()                            {}

func TestObjectsThatAreGranted(t *testing.T) {
	some := func(names ...string) *objects {
		o := &objects{}
		for _, name := range names {
			namespace, name, _ := strings.Cut(name, "/")
			o.list = append(o.list, &host.Object{Namespace: namespace, Name: name, Labels: map[string]string{"name": name}, JSON: []byte(`{"` + namespace + `":"` + name + `"}`)})
		}
		return o
	}
	cfg := config(t, "asker", asker)
	cfg.Limits = host.Limits{Instances: 1, Fuel: 20_000_000}
	cfg.Cluster = &keeper{kept: map[string]*objects{
		"v1/pods":         some("bank/a", "shop/a", "shop/b"),
		"v1/secrets bank": some("bank/a", "bank/b"), "v1/secrets shop": some("shop/s"),
		"v1/nodes": some("/n1", "/n2"),
	}}
	cfg.Objects = []host.ObjectGrant{{Resource: "v1/pods"}, {Resource: "v1/secrets", Namespaces: []string{"shop", "bank"}}, {Resource: "v1/nodes"}}
	cfg.Limits.Fuel, cfg.Limits.Timeout = 50_000_000, time.Minute // Questions for ever end by their fuel.
	engine := admission.NewEngine(load(t, cfg))
	const named = "the plugin's configuration "
	for name, test := range map[string]struct{ question, want string }{
		"an object":                              {"gv1/pods\x00shop\x00b", `403 {"shop":"b"}`},
		"no object":                              {"gv1/pods\x00shop\x00c", "403 no reason given"},
		"an object without a namespace":          {"gv1/nodes\x00\x00n1", `403 {"":"n1"}`},
		"one of a namespace without it":          {"gv1/pods\x00\x00a", "403 no reason given"},
		"a list":                                 {"lv1/nodes\x00", "403 \n\t{\"\":\"n1\"}\n\t{\"\":\"n2\"}"},
		"a list of a namespace":                  {"lv1/pods\x00shop", "403 \n\f{\"shop\":\"a\"}\n\f{\"shop\":\"b\"}"},
		"a list by labels":                       {"lv1/pods\x00\x00name in (a),name", "403 \n\f{\"bank\":\"a\"}\n\f{\"shop\":\"a\"}"},
		"a page":                                 {"lv1/pods\x00\x00\x00bank/z", "403 \n\f{\"shop\":\"a\"}\n\f{\"shop\":\"b\"}"},
		"a page behind the last":                 {"lv1/pods\x00\x00\x00shop/b", "403 no reason given"},
		"a page of a namespace before it":        {"lv1/secrets\x00bank\x00\x00a/a", "403 \n\f{\"bank\":\"a\"}\n\f{\"bank\":\"b\"}"},
		"a list of a namespace that is named":    {"lv1/secrets\x00shop", "403 \n\f{\"shop\":\"s\"}"},
		"an object of a namespace that is":       {"gv1/secrets\x00bank\x00b", `403 {"bank":"b"}`},
		"a list of all when some are named":      {"lv1/secrets\x00", named + `names the objects "v1/secrets" of some namespaces, not of all`},
		"a namespace that is not":                {"lv1/secrets\x00kube-system", named + `does not name the objects "v1/secrets" of the namespace "kube-system"`},
		"an object of a namespace that is not":   {"gv1/secrets\x00kube-system\x00a", named + "does not name"},
		"a resource that is not":                 {"gv1/configmaps\x00shop\x00a", named + `does not name the objects "v1/configmaps"`},
		"another group":                          {"gapps/v1/pods\x00shop\x00a", named + "does not name"},
		"a part too few":                         {"gv1/pods\x00shop", `"v1/pods\x00shop" is not a resource, a namespace and a name`},
		"a part too many":                        {"lv1/pods\x00shop\x00\x00\x00", "is not a resource, a namespace, a selector and an object"},
		"nothing":                                {"l", "is not a resource, a namespace, a selector and an object"},
		"a selector that is none":                {"lv1/pods\x00\x00a in (", `selector "a in (": `},
		"a selector that is too long":            {"lv1/pods\x00\x00" + strings.Repeat("a,", 2049), "the selector has 4098 bytes, more than 4096"},
		"a question that is too long":            {"l" + strings.Repeat("x", 8193), "the question has 8193 bytes, more than 8192"},
		"a page behind what is no object":        {"lv1/pods\x00\x00\x00web", `"web" is not a namespace and a name`},
		"a buffer outside of the memory":         {"wv1/pods\x00", "memory"},
		"a question outside of the memory":       {"p", "memory"},
		"questions for ever":                     {"ov1/pods\x00\x00\x00shop/a", "fuel"},
		"questions for ever about what is named": {"ov1/pods\x00\x00name notin (b)\x00a/a", "fuel"},
	} {
		t.Run(name, func(t *testing.T) {
			r := requestOf(`{}`)
			r.Options.Raw = []byte(test.question)
			got := strings.Replace(message(engine.Validate(t.Context(), r)), "403 asker: ", "403 ", 1)
			if failed := !strings.HasPrefix(test.want, "403"); got != test.want && !(failed && strings.HasPrefix(got, "500") && strings.Contains(got, test.want)) {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
			// The instance begins anew.
			r.Options.Raw = []byte("gv1/pods\x00bank\x00a")
			if got := strings.Replace(message(engine.Validate(t.Context(), r)), "403 asker: ", "403 ", 1); got != `403 {"bank":"a"}` {
				t.Errorf("afterwards: %s", got)
			}
		})
	}
}

func TestObjectGrantsThatAreRefused(t *testing.T) {
	grant := func(resource string, namespaces ...string) []host.ObjectGrant {
		return []host.ObjectGrant{{Resource: resource, Namespaces: namespaces}}
	}
	for name, test := range map[string]struct {
		guest   string
		objects []host.ObjectGrant
		cluster admission.Cluster
		want    string
	}{
		"no cluster":                    {asker, grant("v1/pods"), nil, "objects need a cluster"},
		"no resource":                   {asker, grant(""), &keeper{}, `objects: "" is not version/resource`},
		"every resource":                {asker, grant("*/*"), &keeper{}, `objects: "*/*" is not version/resource`},
		"a kind":                        {asker, grant("v1/Pod"), &keeper{}, `objects: "v1/Pod" is not version/resource`},
		"a subresource":                 {asker, grant("apps/v1/deployments/scale"), &keeper{}, "is not version/resource"},
		"the same twice":                {asker, append(grant("v1/pods"), grant("v1/pods", "shop")...), &keeper{}, `objects: "v1/pods" is there twice`},
		"no namespaces":                 {asker, []host.ObjectGrant{{Resource: "v1/pods", Namespaces: []string{}}}, &keeper{}, "objects[0].namespaces is empty: leave it out for all"},
		"a namespace that is none":      {asker, grant("v1/pods", "shop", "*"), &keeper{}, `objects[0].namespaces has "*"`},
		"a guest that has no grant":     {asker, nil, &keeper{}, `needs the grant "objects", which the configuration does not give`},
		"a guest of another dialect":    {"", grant("v1/pods"), &keeper{kept: map[string]*objects{}}, "objects are for guests of package abi, and the module is of stellar"},
		"a guest that looks nothing up": {rulebreaker, grant("v1/pods"), &keeper{kept: map[string]*objects{}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if test.guest == "" {
				test.guest = buildC(t, "testdata/stellar/validator.c")
			}
			cfg := config(t, "p", test.guest)
			cfg.Objects, cfg.Cluster = test.objects, test.cluster
			p, err := admission.Load(t.Context(), shared, cfg)
			if err == nil {
				defer p.Close(context.Background())
			}
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("error is %v, want %s", err, test.want)
			}
			if k, ok := test.cluster.(*keeper); ok && err != nil {
				for name, o := range k.kept {
					if o.open != 0 {
						t.Errorf("%d uses of %s are left", o.open, name)
					}
				}
			}
		})
	}
}

// TestLongLists holds that a list of 50,000 objects needs the memory of a page, in the
// guest and in the host, and that a guest without the fuel for it ends.
func TestLongLists(t *testing.T) {
	const n = 50_000
	ingresses := &objects{}
	for i := range n {
		ingresses.list = append(ingresses.list, ingress("shop", fmt.Sprintf("i%05d", i), fmt.Sprintf("h%05d.%s.example.com", i, strings.Repeat("x", 200))))
	}
	cfg := config(t, "unique", uniqueHosts)
	cfg.Cluster, cfg.Objects = &keeper{kept: map[string]*objects{"networking.k8s.io/v1/ingresses": ingresses}}, []host.ObjectGrant{{Resource: "networking.k8s.io/v1/ingresses"}}
	cfg.Limits = host.Limits{Instances: 1, MemoryBytes: 32 << 20, Timeout: 5 * time.Minute}
	engine := admission.NewEngine(load(t, cfg))
	last := fmt.Sprintf("h%05d.%s.example.com", n-1, strings.Repeat("x", 200))
	for range 2 {
		if got := message(engine.Validate(t.Context(), hostRequest(last))); !strings.HasSuffix(got, "the Ingress shop/i49999 has it") {
			t.Fatal(got)
		}
	}
	if ingresses.snapshots != 2 {
		t.Errorf("%d snapshots, want 2", ingresses.snapshots)
	}
	cfg.Limits.Fuel = 10_000_000
	poor := admission.NewEngine(load(t, cfg))
	if got := message(poor.Validate(t.Context(), hostRequest(last))); !strings.Contains(got, "fuel") {
		t.Error(got)
	}
}
