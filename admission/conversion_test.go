package admission_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	neturl "net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	arv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/internal/policy"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/serving"
)

// standIns makes the policies that represent others.
var standIns = policy.StandInsOf[admission.Policy, admission.PolicyRules]()

const (
	converterGuest  = "testdata/converter.wasm"
	crontabVersions = "../examples/admission/crontab-versions"
)

var cronTabs = metav1.GroupKind{Group: "stable.example.com", Kind: "CronTab"}

// converterOf returns a plugin that converts CronTabs as the configuration of
// testdata/converter.wat says.
func converterOf(t testing.TB, name, guestConfig string, change func(*admission.PluginConfig)) *admission.Plugin {
	t.Helper()
	cfg := config(t, name, converterGuest)
	cfg.GuestConfig, cfg.Converts, cfg.Grants = []byte(guestConfig), []metav1.GroupKind{cronTabs}, []string{host.GrantObjects}
	if change != nil {
		change(&cfg)
	}
	return load(t, cfg)
}

// toV1 is a request to convert objects, of v1beta1 unless they have another version, to v1.
func toV1(objects ...string) *admission.ConversionRequest {
	r := &admission.ConversionRequest{UID: "uid-1", Desired: schema.GroupVersion{Group: cronTabs.Group, Version: "v1"}, Kind: cronTabs.Kind}
	for _, object := range objects {
		r.Objects = append(r.Objects, []byte(object))
	}
	return r
}

const (
	tab = `{"apiVersion":"stable.example.com/v1beta1","kind":"CronTab","metadata":{"name":"backup","namespace":"shop","uid":"u1","generation":2,` +
		`"creationTimestamp":null,"finalizers":["a","b"],"labels":{"a":"b"}},"spec":{"x":1}}`
	aboutTab = `objects[0], CronTab shop/backup of stable.example.com/v1beta1, to stable.example.com/v1: `
)

func TestConversionChecksWhatAGuestReturns(t *testing.T) {
	const (
		head = `{"apiVersion":"stable.example.com/v1","kind":"CronTab","metadata":`
		meta = `"name":"backup","namespace":"shop","uid":"u1"`
		rest = `"generation":2,"finalizers":["a","b"]`
	)
	for _, test := range []struct{ name, guestConfig, want string }{
		{"an object with another spec", head + `{` + meta + `,` + rest + `,"creationTimestamp":null,"labels":{"a":"b"}},"spec":{"y":2}}`, ""},
		{"labels and annotations that have changed", head + `{` + meta + `,` + rest + `,"labels":{"c":"d"},"annotations":{"k":"v"}}}`, ""},
		{"labels that are gone", head + `{` + meta + `,"finalizers" : [ "a", "b" ], "generation":2.0}}`, ""},
		{"labels that are null", head + `{` + meta + `,` + rest + `,"labels":null,"annotations":null}}`, ""},
		{"a patch", `[{"op":"replace","path":"/apiVersion","value":"stable.example.com/v1"}]`, ""},
		{"no change at all", `"nothing"`, `apiVersion is "stable.example.com/v1beta1", want "stable.example.com/v1"`},
		{"another version", `[{"op":"replace","path":"/apiVersion","value":"stable.example.com/v2"}]`, `apiVersion is "stable.example.com/v2", want "stable.example.com/v1"`},
		{"no version", head[:1] + `"kind":"CronTab"}`, `apiVersion is nothing, want "stable.example.com/v1"`},
		{"another kind", strings.Replace(head, "CronTab", "Other", 1) + `{` + meta + `,` + rest + `}}`, `kind is "Other", want "CronTab"`},
		{"a kind that is no text", strings.Replace(head, `"CronTab"`, "1", 1) + `{}}`, `kind is number, want "CronTab"`},
		{"no metadata", head[:len(head)-len(`,"metadata":`)] + `}`, "metadata is nothing, want object"},
		{"metadata that is null", head + `null}`, "metadata is null, want object"},
		{"metadata that is a list", head + `[]}`, "metadata is array, want object"},
		{"another name", head + `{"name":"other","namespace":"shop","uid":"u1",` + rest + `}}`, `metadata.name is "other", want "backup"`},
		{"no name", head + `{"namespace":"shop","uid":"u1",` + rest + `}}`, `metadata.name is nothing, want "backup"`},
		{"another namespace", head + `{"name":"backup","namespace":"bank","uid":"u1",` + rest + `}}`, `metadata.namespace is "bank", want "shop"`},
		{"another uid", head + `{"name":"backup","namespace":"shop","uid":"u2",` + rest + `}}`, `metadata.uid is "u2", want "u1"`},
		{"a finalizer that is gone", head + `{` + meta + `,"generation":2,"finalizers":["a"]}}`, `metadata.finalizers has changed: a conversion may change labels and annotations`},
		{"an owner", head + `{` + meta + `,` + rest + `,"ownerReferences":[]}}`, `metadata.ownerReferences has changed: a conversion may change labels and annotations`},
		{"two specs", head + `{` + meta + `,` + rest + `},"spec":{},"spec":{}}`, `spec occurs twice`},
		{"two names", head + `{` + meta + `,` + rest + `,"name":"backup"}}`, `metadata.name occurs twice`},
		{"two labels of a key", head + `{` + meta + `,` + rest + `,"labels":{"a":"b","a":"c"}}}`, `metadata.labels.a occurs twice`},
		{"a label that is no text", head + `{` + meta + `,` + rest + `,"labels":{"a":1}}}`, `metadata.labels[a] is number, want string`},
		{"labels that are a list", head + `{` + meta + `,` + rest + `,"labels":[]}}`, `metadata.labels is array, want object`},
		{"a label that is none", head + `{` + meta + `,` + rest + `,"labels":{"a":"no label!"}}}`, `metadata.labels: Invalid value: "no label!"`},
		{"an annotation whose key is none", head + `{` + meta + `,` + rest + `,"annotations":{"no key!":"v"}}}`, `metadata.annotations: Invalid value: "no key!"`},
		{"a patch that does not apply", `[{"op":"remove","path":"/spec/y"}]`, `patch: operations[0]: remove /spec/y: `},
		{"a patch that leaves no object", `[{"op":"replace","path":"","value":[]}]`, `the converted object is not a JSON object`},
		{"a refusal", `"refuse"`, "spec.when is in no version"},
		{"a refusal without a reason", `"error"`, "no reason given"},
		{"a refusal with the version", `"desired"`, "stable.example.com/v1"},
		{"a verdict that there is not", `"verdict"`, "convert returned verdict 9, want 0 or 1"},
		{"a trap", `"trap"`, "convert trapped: "},
		{"a look-up", `"get"`, "convert trapped: call k8s.io/api.get_object: objects are looked up in validate and mutate"},
		{"a result", `"with a result"`, "convert trapped: call k8s.io/admission.result: convert has only a reason as its result"},
		{"a loop", `"loop"`, "convert trapped: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := converterOf(t, "tabs", test.guestConfig, func(c *admission.PluginConfig) {
				c.Limits.Fuel = 1_000_000
			})
			converted, err := admission.NewEngine(p).Convert(t.Context(), toV1(tab))
			if test.want == "" {
				if err != nil || len(converted) != 1 {
					t.Errorf("converted to %q, %v", converted, err)
				}
				return
			}
			if want := `plugin "tabs": convert ` + aboutTab + test.want; err == nil || !strings.HasPrefix(err.Error(), want) || converted != nil {
				t.Errorf("converted to %q, %v\nwant %s", converted, err, want)
			}
		})
	}
}

func TestConversionIsAllOrNothing(t *testing.T) {
	e := admission.NewEngine(load(t, func() admission.PluginConfig {
		cfg := config(t, "tabs", crontabVersions)
		cfg.Converts = []metav1.GroupKind{cronTabs}
		return cfg
	}()))
	one := func(name, hostPort string) string {
		return `{"apiVersion":"stable.example.com/v1beta1","kind":"CronTab","metadata":{"name":"` + name + `"},"spec":{"hostPort":"` + hostPort + `","cronSpec":"@daily"}}`
	}
	ready := `{"kind":"CronTab","apiVersion":"stable.example.com/v1","metadata":{"name":"ready"}}`
	converted, err := e.Convert(t.Context(), toV1(one("a", "db:1"), ready, one("c", "db:3")))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`{"apiVersion":"stable.example.com/v1","kind":"CronTab","metadata":{"name":"a"},"spec":{"host":"db","port":1,"schedule":{"cron":"@daily"}}}`,
		ready,
		`{"apiVersion":"stable.example.com/v1","kind":"CronTab","metadata":{"name":"c"},"spec":{"host":"db","port":3,"schedule":{"cron":"@daily"}}}`,
	}
	for i := range want {
		if string(converted[i]) != want[i] {
			t.Errorf("objects[%d] is %s\nwant %s", i, converted[i], want[i])
		}
	}
	converted, err = e.Convert(t.Context(), toV1(one("a", "db:1"), one("b", "db"), one("c", "db:3")))
	if want := `plugin "tabs": convert objects[1], CronTab b of stable.example.com/v1beta1, to stable.example.com/v1: spec.hostPort: "db" has no port`; err == nil || err.Error() != want || converted != nil {
		t.Errorf("converted to %q, %v; want %s", converted, err, want)
	}
	if converted, err := e.Convert(t.Context(), toV1()); err != nil || len(converted) != 0 {
		t.Errorf("no objects are converted to %q, %v", converted, err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := e.Convert(ended, toV1(one("a", "db:1"))); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the request: %v", err)
	}
}

// A list of many objects costs memory in proportion to them, whatever a guest makes of each.
func TestConvertedObjectsAreBounded(t *testing.T) {
	meta := `"metadata":{"name":"a","annotations":{"k":"` + strings.Repeat("x", 200<<10) + `"}}`
	p := converterOf(t, "tabs", `{"apiVersion":"stable.example.com/v1","kind":"CronTab",`+meta+`}`, nil)
	object := `{"apiVersion":"stable.example.com/v1beta1","kind":"CronTab","metadata":{"name":"a"}}`
	objects := make([]string, 20)
	for i := range objects {
		objects[i] = object
	}
	e := admission.NewEngine(p)
	if _, err := e.Convert(t.Context(), toV1(objects[:5]...)); err != nil {
		t.Error(err)
	}
	_, err := e.Convert(t.Context(), toV1(objects...))
	if want := `plugin "tabs": convert objects[5], CronTab a of stable.example.com/v1beta1, to stable.example.com/v1: the converted objects are more than 4 times as long as the originals`; err == nil || err.Error() != want {
		t.Errorf("error is %v\nwant     %s", err, want)
	}
}

func TestWhichPluginConverts(t *testing.T) {
	const v1 = `[{"op":"replace","path":"/apiVersion","value":"stable.example.com/v1"}]`
	others := func(c *admission.PluginConfig) {
		c.Converts = []metav1.GroupKind{{Group: "example.com", Kind: "CronTab"}, {Group: cronTabs.Group, Kind: "Other"}}
	}
	one, other := converterOf(t, "one", v1, nil), converterOf(t, "other", v1, others)
	policy := script(t, "policy", "", nil)
	e := admission.NewEngine(policy, other, one)
	if _, err := e.Convert(t.Context(), toV1(tab)); err != nil {
		t.Error(err)
	}
	// Plugins that convert decide nothing.
	if r := admission.NewEngine(one).Validate(t.Context(), &admissionv1.AdmissionRequest{UID: "u"}); !r.Allowed {
		t.Errorf("answer is %+v", r)
	}
	fails := func(c admission.Converter, want string) {
		t.Helper()
		if converted, err := c.Convert(t.Context(), toV1(tab)); err == nil || err.Error() != want {
			t.Errorf("converted to %q, %v; want %s", converted, err, want)
		}
	}
	fails(admission.NewEngine(policy, other), "no plugin converts CronTab.stable.example.com")
	fails(admission.NewEngine(one, converterOf(t, "two", v1, nil)), "the plugins one and two convert CronTab.stable.example.com: name one in the path of the conversion webhook")
	fails(admission.NewEngine(standIns.Disabled(one)), "no plugin converts CronTab.stable.example.com")
	missing := standIns.UnavailableConverter("one", []metav1.GroupKind{cronTabs}, admission.PolicyRules{}, errors.New("no such file"))
	fails(admission.NewEngine(missing), `plugin "one" is not available: no such file`)
	if r := admission.NewEngine(missing).Validate(t.Context(), &admissionv1.AdmissionRequest{UID: "u"}); !r.Allowed {
		t.Errorf("a converter that is not available decides: %+v", r)
	}
	for name, want := range map[string]string{
		"one": "", "other": `plugin "other": does not convert CronTab.stable.example.com`,
		"policy": "policy policy does not convert, or is disabled", "none": "there is no policy none",
	} {
		by, _ := e.ForPolicy(name)
		if _, err := by.Convert(t.Context(), toV1(tab)); want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("by name %s: %v, want %s", name, err, want)
		}
	}
	by, _ := admission.NewEngine(standIns.Disabled(one)).ForPolicy("one")
	fails(by, "policy one does not convert, or is disabled")
}

func TestMistakesOfConverters(t *testing.T) {
	for _, test := range []struct {
		name, guest string
		change      func(*admission.PluginConfig)
		want        string
	}{
		{"a module that only converts, and no kinds", converterGuest, func(c *admission.PluginConfig) { c.Converts, c.Grants = nil, []string{host.GrantObjects} }, `plugin "p": configuration: the module only converts: name the kinds in converts`},
		{"a module that does not convert", mutant, nil, `plugin "p": configuration: converts is set, but the module has no function convert`},
		{"a module of another ABI", "testdata/hostile/stellar.wasm", nil, `plugin "p": configuration: converts is for guests of package abi, and the module is of stellar`},
		{"everything that decides", converterGuest, func(c *admission.PluginConfig) {
			c.Converts = append(c.Converts, metav1.GroupKind{Kind: "Pod"}, cronTabs)
			c.Match.Rules = []arv1.RuleWithOperations{{Operations: []arv1.OperationType{"*"}, Rule: arv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"}}}}
			c.Mode, c.FailurePolicy, c.AllowedToMutate = host.Monitor, host.Ignore, true
		}, `plugin "p": configuration: converts[1]: group is "" and kind "Pod", want both, of a custom resource
converts[2]: CronTab.stable.example.com is there twice
match is set beside converts: converts selects the kinds of a conversion
mode Monitor is set beside converts: a conversion without effect leaves no object
failurePolicy Ignore is set beside converts: an object that could not be converted cannot be served
allowedToMutate is set beside converts: use another plugin for mutation, of the same module if desired`},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := config(t, "p", test.guest)
			cfg.Converts = []metav1.GroupKind{cronTabs}
			if test.change != nil {
				test.change(&cfg)
			}
			p, err := admission.Load(t.Context(), shared, cfg)
			if err == nil {
				p.Close(t.Context())
				t.Fatal("it was loaded")
			}
			if err.Error() != test.want {
				t.Errorf("error is %v\nwant     %s", err, test.want)
			}
		})
	}
}

// conversionReview returns a ConversionReview, as an API server writes it.
func conversionReview(desired string, objects ...string) string {
	return `{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":{"uid":"uid-1","desiredAPIVersion":"` + desired + `","objects":[` + strings.Join(objects, ",") + `]}}`
}

// converterFunc is a function as a Converter.
type converterFunc func(ctx context.Context, request *admission.ConversionRequest) ([][]byte, error)

func (f converterFunc) Convert(ctx context.Context, request *admission.ConversionRequest) ([][]byte, error) {
	return f(ctx, request)
}

func TestHandlerServesAConverter(t *testing.T) {
	const v1 = "stable.example.com/v1"
	var log bytes.Buffer
	panics := 0
	handler := &admission.Handler{Logger: slog.New(slog.NewTextHandler(&log, nil)), Panicked: func() { panics++ }}
	url := serve(t, handler)
	answer := func(c admission.Converter, body string) (int, string) {
		t.Helper()
		handler.Converter = c
		return post(t, url, "application/json", strings.NewReader(body))
	}
	engine := admission.NewEngine(converterOf(t, "tabs", `[{"op":"replace","path":"/apiVersion","value":"stable.example.com/v1"}]`, nil))
	const signature = "X-Amz-Signature=0123456789abcdef"
	missing := admission.NewEngine(standIns.UnavailableConverter("tabs", []metav1.GroupKind{{Group: "stable.example.com", Kind: "CronTab"}}, admission.PolicyRules{},
		fmt.Errorf("fetch module: %w", &neturl.Error{Op: "Get", URL: "https://storage.example.com/blob?" + signature, Err: &net.DNSError{Err: "server misbehaving", Name: "storage.example.com", Server: "10.96.0.10:53"}})))
	second := strings.Replace(tab, "backup", "second", 1)
	converted := func(object string) string { return strings.Replace(object, "v1beta1", "v1", 1) }
	same := converterFunc(func(_ context.Context, r *admission.ConversionRequest) ([][]byte, error) { return r.Objects, nil })
	for _, test := range []struct {
		name string
		c    admission.Converter
		body string
		code int
		want string
	}{
		{
			"two objects, in their order", engine, conversionReview(v1, tab, second), http.StatusOK,
			`{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","response":{"uid":"uid-1","result":{"status":"Success"},"convertedObjects":[` + converted(tab) + `,` + converted(second) + `]}}`,
		},
		{
			"no objects", engine, conversionReview(v1), http.StatusOK,
			`{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","response":{"uid":"uid-1","result":{"status":"Success"},"convertedObjects":[]}}`,
		},
		{
			"a failure", engine, conversionReview("stable.example.com/v2", tab), http.StatusOK,
			`{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","response":{"uid":"uid-1","result":{"status":"Failure","message":"plugin \"tabs\": convert objects[0], CronTab shop/backup of stable.example.com/v1beta1, to stable.example.com/v2: apiVersion is \"stable.example.com/v1\", want \"stable.example.com/v2\""},"convertedObjects":[]}}`,
		},
		{
			"a panic", converterFunc(func(context.Context, *admission.ConversionRequest) ([][]byte, error) { panic("oops") }), conversionReview(v1, tab), http.StatusOK,
			`{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","response":{"uid":"uid-1","result":{"status":"Failure","message":"conversion panicked"},"convertedObjects":[]}}`,
		},
		{
			"a converter that drops an object", converterFunc(func(_ context.Context, r *admission.ConversionRequest) ([][]byte, error) { return r.Objects[1:], nil }), conversionReview(v1, tab, second), http.StatusOK,
			`{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","response":{"uid":"uid-1","result":{"status":"Failure","message":"conversion returned 1 objects for 2"},"convertedObjects":[]}}`,
		},
		{
			"a failure with a library's text", missing, conversionReview(v1, tab), http.StatusOK,
			`{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","response":{"uid":"uid-1","result":{"status":"Failure","message":"the host's address cannot be looked up"},"convertedObjects":[]}}`,
		},
		{"a review of v1beta1", same, strings.Replace(conversionReview(v1), "k8s.io/v1", "k8s.io/v1beta1", 1), http.StatusBadRequest, `body is \"apiextensions.k8s.io/v1beta1\" \"ConversionReview\", want apiextensions.k8s.io/v1 ConversionReview`},
		{"another review", same, review("uid-1", `{}`), http.StatusBadRequest, `body is \"admission.k8s.io/v1\" \"AdmissionReview\", want apiextensions.k8s.io/v1 ConversionReview`},
		{"no JSON", same, `{`, http.StatusBadRequest, "decode conversion review: unexpected end of JSON input"},
		{"no request", same, `{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1"}`, http.StatusBadRequest, "conversion review has no request"},
		{"no uid", same, strings.Replace(conversionReview(v1), "uid-1", "", 1), http.StatusBadRequest, "request of the conversion review has no uid"},
		{"no version", same, conversionReview(""), http.StatusBadRequest, "request.desiredAPIVersion is (none), want a group and a version such as example.com/v1"},
		{"a version without a group", same, conversionReview("v1"), http.StatusBadRequest, `request.desiredAPIVersion is \"v1\", want a group and a version`},
		{"an object of another group", same, conversionReview("example.com/v1", tab), http.StatusBadRequest, `request.objects[0].apiVersion is \"stable.example.com/v1beta1\", not of group example.com/v1`},
		{"two kinds", same, conversionReview(v1, tab, strings.Replace(tab, "CronTab", "Other", 1)), http.StatusBadRequest, `request.objects[1].kind is \"Other\", but earlier ones are \"CronTab\"`},
		{"an object without a kind", same, conversionReview(v1, strings.Replace(tab, "CronTab", "", 1)), http.StatusBadRequest, `request.objects[0].kind is empty`},
		{"an object without a version", same, conversionReview(v1, `{"kind":"CronTab"}`), http.StatusBadRequest, `request.objects[0].apiVersion is (none), want a group and a version`},
		{"an object that is none", same, conversionReview(v1, tab, `null`), http.StatusBadRequest, `request.objects[1] is null, want object`},
		{"metadata that are none", same, conversionReview(v1, `{"apiVersion":"stable.example.com/v1beta1","kind":"CronTab","metadata":[]}`), http.StatusBadRequest, `request.objects[0]: metadata is array, want object`},
		{"objects that are no list", same, strings.Replace(conversionReview(v1), "[]", "{}", 1), http.StatusBadRequest, `request.objects is object, want array`},
		{"two uids", same, strings.Replace(conversionReview(v1), `"uid":"uid-1"`, `"uid":"uid-1","uid":"uid-2"`, 1), http.StatusBadRequest, `request.uid occurs twice`},
		{"an object with two kinds", same, conversionReview(v1, strings.Replace(tab, `"kind"`, `"kind":"Other","kind"`, 1)), http.StatusBadRequest, `request.objects[0]: kind occurs twice`},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, out := answer(test.c, test.body)
			if code != test.code || code == http.StatusOK && out != test.want || !strings.Contains(out, test.want) {
				t.Errorf("answer is %d %s\nwant      %d %s", code, out, test.code, test.want)
			}
		})
	}
	if text := log.String(); !strings.Contains(text, "https://storage.example.com/blob") || strings.Contains(text, signature) {
		t.Errorf("the log has the URL with its query, or none: %s", text)
	}
	if panics != 1 || !strings.Contains(log.String(), "oops") {
		t.Errorf("%d panics, and the log is %s", panics, log.String())
	}
	handler.MaxBodyBytes = 100
	if code, out := answer(same, conversionReview(v1, tab)); code != http.StatusRequestEntityTooLarge || !strings.Contains(out, "the conversion review is too long: ") || !strings.Contains(out, "list fewer at a time") {
		t.Errorf("answer is %d %s", code, out)
	}
}

// An API server waits for a conversion as long as for any webhook, and says nothing of it.
func TestAConversionMayTakeAsLongAsAnAPIServerWaits(t *testing.T) {
	var left time.Duration
	url := serve(t, &admission.Handler{Converter: converterFunc(func(ctx context.Context, r *admission.ConversionRequest) ([][]byte, error) {
		deadline, _ := ctx.Deadline()
		left = time.Until(deadline)
		return r.Objects, nil
	})})
	if code, out := post(t, url, "application/json", strings.NewReader(conversionReview("stable.example.com/v1", tab))); code != http.StatusOK {
		t.Fatalf("%d %s", code, out)
	}
	if left > serving.MaxTimeout || left < 20*time.Second {
		t.Errorf("%v are left, want nearly %v", left, serving.MaxTimeout)
	}
}

// decided notes what an Observer is told.
type decided struct {
	mu  sync.Mutex
	all []admission.Decision
}

func (d *decided) Decided(_ context.Context, decision admission.Decision) {
	d.mu.Lock()
	defer d.mu.Unlock()
	decision.Duration = 0
	d.all = append(d.all, decision)
}

func TestConversionsAreObserved(t *testing.T) {
	var seen decided
	p := converterOf(t, "tabs", `"refuse"`, func(c *admission.PluginConfig) { c.PolicyRules.Observer = &seen })
	e := admission.NewEngine(p)
	_, err := e.Convert(t.Context(), toV1(tab))
	if _, err := e.Convert(t.Context(), toV1()); err != nil {
		t.Error(err)
	}
	want := []admission.Decision{
		{Policy: "tabs", Converting: true, Mode: host.Enforce, Verdict: admission.Failed, Err: err},
		{Policy: "tabs", Converting: true, Mode: host.Enforce, Verdict: admission.Allowed},
	}
	if diff := cmp.Diff(want, seen.all, cmp.Comparer(func(a, b error) bool { return errors.Is(a, b) || errors.Is(b, a) })); diff != "" {
		t.Errorf("decisions (-want +got):\n%s", diff)
	}
}

func TestConversionsWhilePluginsAreReplaced(t *testing.T) {
	marked := func(mark string) *admission.Plugin {
		return converterOf(t, "tabs", `[{"op":"replace","path":"/apiVersion","value":"stable.example.com/v1"},{"op":"add","path":"/spec","value":"`+mark+`"}]`, nil)
	}
	e := admission.NewEngine(marked("0"))
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				converted, err := e.Convert(t.Context(), toV1(tab, tab, tab))
				if err != nil {
					t.Error(err)
					return
				}
				for _, object := range converted[1:] {
					if !bytes.Equal(object, converted[0]) {
						t.Errorf("one request saw two versions: %s and %s", converted[0], object)
					}
				}
			}
		})
	}
	for i := range 20 {
		<-e.Replace(marked(fmt.Sprint(i)))
	}
	close(done)
	wg.Wait()
}

// BenchmarkConvert is a list of 500 objects, a page of kubectl's.
func BenchmarkConvert(b *testing.B) {
	cfg := config(b, "tabs", crontabVersions)
	cfg.Converts = []metav1.GroupKind{cronTabs}
	e := admission.NewEngine(load(b, cfg))
	r := toV1()
	for i := range 500 {
		object, err := json.Marshal(map[string]any{
			"apiVersion": "stable.example.com/v1beta1", "kind": "CronTab",
			"metadata": map[string]any{"name": fmt.Sprint("tab-", i), "namespace": "shop", "uid": "705ab4f5-6393-11e8-b7cc-42010a800002"},
			"spec":     map[string]any{"hostPort": "db.shop:5432", "cronSpec": "0 3 * * *", "image": "backup:1"},
		})
		if err != nil {
			b.Fatal(err)
		}
		r.Objects = append(r.Objects, object)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.Convert(b.Context(), r); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/500, "µs/object")
}
