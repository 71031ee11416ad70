package service_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/record"
	"github.com/kubewasm/kubewasm/host/service"
	"github.com/kubewasm/kubewasm/host/service/testdata/testservice"
	"github.com/kubewasm/kubewasm/host/shadow"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/replaying"
)

// cluster has objects of a resource, a space and a namespace. Others are not known.
type cluster struct {
	mu   sync.Mutex
	kept map[string][]*host.Object
	// queries are the sources, open the Objects that are not closed, and snapshots the questions.
	queries         []host.ObjectQuery
	open, snapshots int
}

func (c *cluster) Keep(resource schema.GroupVersionResource, namespace string, query host.ObjectQuery) host.Objects {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open++
	c.queries = append(c.queries, query)
	return kept{c, resource.Resource + " " + namespace}
}

func (c *cluster) set(key string, list ...*host.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept[key] = list
}

type kept struct {
	*cluster
	key string
}

func (k kept) Snapshot() ([]*host.Object, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.snapshots++
	if list, ok := k.kept[k.key]; ok {
		return list, nil
	}
	return nil, errors.New("they are not listed yet")
}

func (k kept) Wait(context.Context) error { _, err := k.Snapshot(); return err }

func (k kept) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open--
}

func configMap(namespace, name, team string) *host.Object {
	return &host.Object{Namespace: namespace, Name: name, Labels: map[string]string{"team": team},
		JSON: fmt.Appendf(nil, `{"kind":"ConfigMap","metadata":{"namespace":%q,"name":%q}}`, namespace, name)}
}

// looking returns the configuration of a guest that looks up what requests name, in a cluster.
func looking(t *testing.T) (service.Config, *cluster) {
	t.Helper()
	file, err := guestbuild.Build(t.Context(), "testdata/testservice/looks")
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{kept: map[string][]*host.Object{
		"configmaps ": {configMap("bank", "a", "x"), configMap("shop", "a", "x"), configMap("shop", "b", "y")},
		"pods shop":   {{Namespace: "shop", Name: "p", JSON: []byte(`{"kind":"Pod"}`)}},
		"load ":       {{Name: "n1", JSON: []byte(`{"value":0.5}`)}},
	}}
	cfg := config(t)
	cfg.Module, cfg.Limits.Fuel, cfg.Cluster = host.ModuleConfig{File: file}, 100_000_000, c
	cfg.Objects = []host.ObjectGrant{
		{Resource: "v1/configmaps"}, {Resource: "v1/pods", Namespaces: []string{"shop"}}, {Resource: "v1/services"},
		{Resource: "metrics.kubewasm.dev/v1/load", Query: &host.ObjectQuery{Prometheus: "load", Service: "monitoring/prometheus", Name: "node"}},
	}
	return cfg, c
}

func TestLookUps(t *testing.T) {
	cfg, c := looking(t)
	p := load(t, cfg)
	var large []*host.Object // Three pages.
	for n := range 300 {
		o := configMap("shop", fmt.Sprintf("l%03d", n), "large")
		o.JSON = append(o.JSON, strings.Repeat(" ", 1<<10)...)
		large = append(large, o)
	}
	for name, test := range map[string]struct {
		question string
		want     []string
		err      string
	}{
		"objects":                         {"get v1/configmaps shop a\nget v1/pods shop p", []string{`{"kind":"ConfigMap","metadata":{"namespace":"shop","name":"a"}}`, `{"kind":"Pod"}`}, ""},
		"no object":                       {"get v1/configmaps shop c", []string{"none"}, ""},
		"a list":                          {"list v1/configmaps - -", []string{`+++{"kind":"ConfigMap","metadata":{"namespace":"shop","name":"b"}}`}, ""},
		"a list of a namespace":           {"list v1/configmaps bank -", []string{`+{"kind":"ConfigMap","metadata":{"namespace":"bank","name":"a"}}`}, ""},
		"a list by a selector":            {"list v1/configmaps - team=x", []string{`++{"kind":"ConfigMap","metadata":{"namespace":"shop","name":"a"}}`}, ""},
		"a value of a query":              {"get metrics.kubewasm.dev/v1/load - n1", []string{`{"value":0.5}`}, ""},
		"a resource that is not granted":  {"get v1/secrets shop a", nil, `the plugin's configuration does not name the objects "v1/secrets"`},
		"a list that is not granted":      {"list v1/secrets - -", nil, `the plugin's configuration does not name the objects "v1/secrets"`},
		"a namespace that is not granted": {"get v1/pods bank p", nil, `the plugin's configuration does not name the objects "v1/pods" of the namespace "bank"`},
		"all of some namespaces":          {"list v1/pods - -", nil, `the plugin's configuration names the objects "v1/pods" of some namespaces, not of all`},
		"objects that are not known":      {"get v1/services shop a", nil, `objects "v1/services": they are not listed yet`},
		"no selector":                     {"list v1/configmaps - team=(", nil, `selector "team=("`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := p.Echo(t.Context(), &testservice.Message{Text: test.question})
			if test.err != "" {
				if !errors.As(err, new(*host.TrapError)) || !strings.Contains(err.Error(), test.err) {
					t.Errorf("got %+v, %v, want a trap with %s", got, err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got.Texts); diff != "" {
				t.Errorf("answers (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("pages", func(t *testing.T) {
		c.set("configmaps ", large...)
		got, err := p.Echo(t.Context(), &testservice.Message{Text: "list v1/configmaps shop -"})
		if err != nil || !strings.HasPrefix(got.Texts[0], strings.Repeat("+", len(large))+"{") {
			t.Errorf("got %v, %v", got, err)
		}
	})
	want := []host.ObjectQuery{{}, {}, {}, *cfg.Objects[3].Query}
	if diff := cmp.Diff(want, c.queries); diff != "" {
		t.Errorf("queries (-want +got):\n%s", diff)
	}
	if err := p.Close(t.Context()); err != nil || c.open != 0 {
		t.Errorf("%d objects are kept after %v", c.open, err)
	}
}

// changing changes the cluster when the guest asks.
type changing struct{ *cluster }

func (c changing) Ask(context.Context, *testservice.Message) (*testservice.Message, error) {
	c.set("configmaps ")
	return &testservice.Message{Text: "changed"}, nil
}

func TestLookUpsStayTheSameInACall(t *testing.T) {
	cfg, c := looking(t)
	p, err := testservice.LoadTest(t.Context(), runtime(t), cfg, changing{c})
	if err != nil {
		t.Fatal(err)
	}
	const question = "get v1/configmaps bank a\nask -\nget v1/configmaps bank a"
	for _, want := range [][]string{
		{string(configMap("bank", "a", "").JSON), "changed", string(configMap("bank", "a", "").JSON)}, {"none", "changed", "none"},
	} {
		got, err := p.Echo(t.Context(), &testservice.Message{Text: question})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got.Texts); diff != "" {
			t.Errorf("answers (-want +got):\n%s", diff)
		}
	}
}

// A call pays for what the host looks at: a guest that lists often ends with its fuel, and the next
// call is served.
func TestLookUpsHaveABudget(t *testing.T) {
	cfg, c := looking(t)
	list := make([]*host.Object, 20_000)
	for n := range list {
		list[n] = configMap("shop", fmt.Sprintf("o%05d", n), "x")
	}
	c.set("configmaps ", list...)
	p := load(t, cfg)
	question := "list v1/configmaps shop team=none,team!=x\n"
	if _, err := p.Echo(t.Context(), &testservice.Message{Text: question}); err != nil {
		t.Fatal(err)
	}
	_, err := p.Echo(t.Context(), &testservice.Message{Text: strings.Repeat(question+"list v1/configmaps shop team=none\n", 100)})
	if trap := new(host.TrapError); !errors.As(err, &trap) || !strings.Contains(err.Error(), "fuel") {
		t.Errorf("got %v, want that the fuel is used up", err)
	}
	if _, err := p.Echo(t.Context(), &testservice.Message{Text: question}); err != nil {
		t.Error(err)
	}
}

func TestLoadChecksObjects(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*service.Config)
		err    string
	}{
		"no cluster":                 {func(cfg *service.Config) { cfg.Cluster = nil }, "objects need a cluster, which the program does not have"},
		"no resource":                {func(cfg *service.Config) { cfg.Objects[0].Resource = "configmaps" }, `objects: "configmaps" is not version/resource or group/version/resource`},
		"a resource twice":           {func(cfg *service.Config) { cfg.Objects[0].Resource = "v1/pods" }, `objects: "v1/pods" is there twice`},
		"a value without a query":    {func(cfg *service.Config) { cfg.Objects[3].Query = nil }, `objects: "metrics.kubewasm.dev/v1/load" has no query`},
		"a query of a host":          {func(cfg *service.Config) { cfg.Objects[3].Query.Service = "example.com" }, "service is not namespace/name:port"},
		"no grant":                   {func(cfg *service.Config) { cfg.Objects = nil }, `needs the grant "objects"`},
		"a question before the call": {func(cfg *service.Config) { cfg.GuestConfig = []byte(`{"early": "get v1/pods shop p"}`) }, "objects are looked up in methods"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, c := looking(t)
			test.change(&cfg)
			_, err := testservice.LoadTest(t.Context(), runtime(t), cfg, asked{})
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("got %v, want %s", err, test.err)
			}
			if c.open != 0 {
				t.Errorf("%d objects are kept", c.open)
			}
		})
	}
}

// A candidate gets the objects that the serving version got, and no others.
func TestShadowOfAPluginThatLooksUp(t *testing.T) {
	cfg, c := looking(t)
	cfg.Shadow = &shadow.Config{Module: cfg.Module, Rate: 1, CPU: 1}
	p := load(t, cfg)
	defer p.Close(context.Background())
	n := 0
	var s shadow.Status
	for start := time.Now(); s.Compared < 5; s = p.Shadow().Status() {
		if s.State == shadow.Stopped || s.Failed+s.Asked != 0 || time.Since(start) > time.Minute {
			t.Fatalf("got %+v", s)
		}
		n++
		name := fmt.Sprint("n", n)
		c.set("configmaps ", configMap("shop", name, ""))
		if got, err := p.Echo(t.Context(), &testservice.Message{Text: "get v1/configmaps shop " + name + "\nlist v1/pods shop -"}); err != nil || got.Texts[0] == "none" {
			t.Fatalf("got %+v, %v", got, err)
		}
	}
	if s.Same != s.Compared {
		t.Errorf("got %+v", s)
	}
	if most := 2*n + 2*len(cfg.Objects); c.snapshots > most {
		t.Errorf("%d snapshots in %d calls", c.snapshots, n)
	}
}

func TestARecordingOfLookUpsReplays(t *testing.T) {
	dir := t.TempDir()
	cfg, c := looking(t)
	cfg.Record = &record.Config{Path: dir, QueueBytes: 1 << 30}
	rt := runtime(t)
	p, err := testservice.LoadTest(t.Context(), rt, cfg, asked{})
	if err != nil {
		t.Fatal(err)
	}
	questions := []string{"get v1/configmaps shop a", "list v1/configmaps - -\nget v1/secrets shop a", "list v1/configmaps - team=x", "get v1/services shop a"}
	const calls = 40
	for n := range calls {
		_, _ = p.Echo(t.Context(), &testservice.Message{Text: questions[n%len(questions)]}) // Half of them fail.
		c.set("configmaps ", configMap("shop", fmt.Sprint(n), "x"))
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	wasm, err := host.File(cfg.Module.File).Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	replaying.Verify(t, rt, dir, calls, wasm)
}
