package admission_test

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/admission/stellar"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
	"github.com/kubewasm/kubewasm/internal/testkit/race"
)

// The guests of the tests.
const (
	requiredLabels = "../examples/admission/required-labels"
	scripted       = "testdata/scripted"
	rulebreaker    = "testdata/rulebreaker.wasm"
	mutant         = "testdata/mutant.wasm"
	memberGuest    = "testdata/member"
)

// withStellar are the dialects of the guests of the tests.
var withStellar = []*dialect.Dialect{stellar.New()}

// shared holds the compiled modules of all tests.
var shared *host.Runtime

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if shared, err = host.NewRuntime(compiled.Config()); err != nil {
			panic(err)
		}
		defer shared.Close(context.Background())
		return m.Run()
	}())
}

// config returns the configuration of a guest: a module, or a package to build.
func config(t testing.TB, name, guest string) admission.PluginConfig {
	t.Helper()
	if !strings.HasSuffix(guest, ".wasm") {
		var err error
		if guest, err = guestbuild.Build(t.Context(), guest); err != nil {
			t.Fatal(err)
		}
	}
	return admission.PluginConfig{Dialects: withStellar, Config: host.Config{Name: name, Module: host.ModuleConfig{Source: host.File(guest)}}}
}

// load loads a plugin and closes it with the test.
func load(t testing.TB, cfg admission.PluginConfig) *admission.Plugin {
	t.Helper()
	p, err := admission.Load(t.Context(), shared, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return p
}

// request returns the creation of a Pod with annotations, given as key, value,
// key, value.
func request(t testing.TB, annotations ...string) *admissionv1.AdmissionRequest {
	t.Helper()
	m := map[string]string{}
	for i := 0; i+1 < len(annotations); i += 2 {
		m[annotations[i]] = annotations[i+1]
	}
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": "web", "annotations": m}})
	if err != nil {
		t.Fatal(err)
	}
	return requestOf(string(raw))
}

func requestOf(object string) *admissionv1.AdmissionRequest {
	return &admissionv1.AdmissionRequest{
		UID:       "uid-1",
		Kind:      metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Name:      "web",
		Namespace: "shop",
		Operation: admissionv1.Create,
		UserInfo:  authenticationv1.UserInfo{Username: "alice"},
		Object:    runtime.RawExtension{Raw: []byte(object)},
	}
}

// denied is an answer that denies.
func denied(code int32, reason metav1.StatusReason, message string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{UID: "uid-1", Result: &metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	}}
}

func allowed() *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{UID: "uid-1", Allowed: true}
}

var (
	policyName  = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	causePolicy = regexp.MustCompile(` \(policy [a-z][a-z0-9-]*\)$`)
)

// compare compares an answer with what is wanted. What one policy says may be wanted
// without its name: TestDenialsNameTheirPolicy holds that it is there.
func compare(t *testing.T, want, got *admissionv1.AdmissionResponse) {
	t.Helper()
	if want.Result != nil && got.Result != nil {
		got = got.DeepCopy()
		if policy, message, ok := strings.Cut(got.Result.Message, ": "); ok && message == want.Result.Message && policyName.MatchString(policy) {
			got.Result.Message = message
		}
		if d := got.Result.Details; d != nil {
			for i := range d.Causes {
				d.Causes[i].Message = causePolicy.ReplaceAllString(d.Causes[i].Message, "")
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

func TestOnePluginAnswers(t *testing.T) {
	e := admission.NewEngine(load(t, config(t, "scripted", scripted)))
	withWarnings := func(r *admissionv1.AdmissionResponse, warnings ...string) *admissionv1.AdmissionResponse {
		r.Warnings = warnings
		return r
	}
	withAudit := func(r *admissionv1.AdmissionResponse, key, value string) *admissionv1.AdmissionResponse {
		r.AuditAnnotations = map[string]string{key: value}
		return r
	}
	tests := []struct {
		name   string
		script []string
		want   *admissionv1.AdmissionResponse
	}{
		{"nothing to say allows", nil, allowed()},
		{"a denial is 403 Forbidden", []string{"deny", "not today"}, denied(403, "Forbidden", "not today")},
		{"a denial without a reason says so", []string{"deny", ""}, denied(403, "Forbidden", "no reason given")},
		{"a denial has the code that it is given, and the reason of the code", []string{"deny", "slow down", "code", "429"}, denied(429, "TooManyRequests", "slow down")},
		{"a denial has the reason that it is given", []string{"deny", "no", "code", "409", "reason", "Teapot"}, denied(409, "Teapot", "no")},
		{"a code without a reason of its own", []string{"deny", "no", "code", "418"}, denied(418, "", "no")},
		{"a code below 400 is raised", []string{"deny", "no", "code", "399"}, denied(400, "BadRequest", "no")},
		{"a code that HTTP does not have", []string{"deny", "no", "code", "1000"}, denied(400, "BadRequest", "no")},
		{"a code and a reason say nothing when the request is allowed", []string{"code", "500", "reason", "Teapot"}, allowed()},
		{"warnings are kept when the request is allowed", []string{"warn", "one|two|one"}, withWarnings(allowed(), "one", "two")},
		{"warnings are kept when the request is denied", []string{"deny", "no", "warn", "one\r\n two"}, withWarnings(denied(403, "Forbidden", "no"), "one two")},
		{"audit annotations are kept when the request is allowed", []string{"audit", "image=nginx"}, withAudit(allowed(), "scripted.image", "nginx")},
		{"audit annotations are kept when the request is denied", []string{"deny", "no", "audit", "a/b=c\nd"}, withAudit(denied(403, "Forbidden", "no"), "scripted.a_b", "c\nd")},
		{"a plugin that cannot decide denies with 500", []string{"error", "no data"}, denied(500, "InternalError", `plugin "scripted": could not decide: no data`)},
		{"a plugin that panics denies with 500", []string{"panic", "oops"}, denied(500, "InternalError", `plugin "scripted": validate trapped: module closed with exit_code(2): panic: oops`)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := e.Validate(t.Context(), request(t, test.script...))
			// How the runtime words an exit is its own affair.
			if r := got.Result; r != nil && strings.Contains(r.Message, "trapped: ") {
				before, _, _ := strings.Cut(r.Message, "trapped: ")
				_, after, _ := strings.Cut(r.Message, "panic: ")
				r.Message = before + "trapped: module closed with exit_code(2): panic: " + after
			}
			compare(t, test.want, got)
		})
	}
}

func TestFieldErrorsAreCausesAndMessage(t *testing.T) {
	e := admission.NewEngine(load(t, config(t, "scripted", scripted)))
	causes := []metav1.StatusCause{
		{Type: metav1.CauseTypeFieldValueInvalid, Field: "spec.containers[1].image", Message: `Invalid value: "a\"b": must be pinned`},
		{Type: metav1.CauseTypeFieldValueRequired, Field: "spec.nodeSelector[zone]", Message: "Required value"},
		{Type: metav1.CauseTypeFieldValueNotSupported, Field: "spec.dnsPolicy", Message: `Unsupported value: "Never": supported values: "Default", "None"`},
		{Type: "FieldValueTooMany", Field: "spec.containers", Message: "Too many: 7: must have at most 5 items"},
		{Type: metav1.CauseTypeFieldValueDuplicate, Field: "spec.ports", Message: "Duplicate value: [80,80]"},
	}
	var lines []string
	for _, c := range causes {
		lines = append(lines, c.Field+": "+c.Message)
	}

	want := denied(422, "", strings.Join(lines, "; "))
	want.Result.Details = &metav1.StatusDetails{Name: "web", Kind: "Pod", Causes: causes}
	compare(t, want, e.Validate(t.Context(), request(t, "fields", "")))

	want.Result.Message = "see below; " + want.Result.Message
	want.Result.Code, want.Result.Reason = 403, metav1.StatusReasonForbidden
	compare(t, want, e.Validate(t.Context(), request(t, "fields", "", "deny", "see below", "code", "403")))
}

func TestGuestSeesTheRequestAsItCameIn(t *testing.T) {
	e := admission.NewEngine(load(t, config(t, "scripted", scripted)))
	full := func(echo string) *admissionv1.AdmissionRequest {
		dryRun := true
		r := requestOf(`{ "metadata" : {"annotations":{"echo":"` + echo + `"}}, "n": 1.50e+01, "s": "\u00e4ö\/" }`)
		r.OldObject.Raw = []byte(`{"old": [ ]}`)
		r.Options.Raw = []byte(`{"kind":"CreateOptions"}`)
		r.Kind.Group, r.Resource.Group, r.SubResource = "g1", "g2", "status"
		r.RequestKind = &metav1.GroupVersionKind{Group: "g3", Version: "v3", Kind: "K3"}
		r.RequestResource = &metav1.GroupVersionResource{Group: "g4", Version: "v4", Resource: "r4"}
		r.RequestSubResource = "scale"
		r.DryRun = &dryRun
		r.UserInfo = authenticationv1.UserInfo{
			Username: "alice", UID: "u1", Groups: []string{"dev", "staff"},
			Extra: map[string]authenticationv1.ExtraValue{"other": {"x"}, "scopes": {"a", "b"}},
		}
		return r
	}
	want := map[string]string{
		"request":   "uid-1,CREATE,g1,v1,Pod,g2,v1,pods,status,g3,v3,K3,g4,v4,r4,scale,web,shop,true,alice,u1,dev+staff,a+b,true",
		"object":    string(full("object").Object.Raw),
		"oldObject": `{"old": [ ]}`,
		"options":   `{"kind":"CreateOptions"}`,
	}
	for echo, want := range want {
		compare(t, denied(403, "Forbidden", want), e.Validate(t.Context(), full(echo)))
	}
	// What the request does not have is empty.
	compare(t, denied(403, "Forbidden", "uid-1,CREATE,,v1,Pod,,v1,pods,,,,,,,,,web,shop,false,alice,,,,false"),
		e.Validate(t.Context(), request(t, "echo", "request")))
	compare(t, denied(403, "Forbidden", "no reason given"), e.Validate(t.Context(), request(t, "echo", "oldObject")))
}

func TestLargeObjectsCrossWhole(t *testing.T) {
	cfg := config(t, "scripted", scripted)
	cfg.Limits.Instances = 1
	e := admission.NewEngine(load(t, cfg))
	sum := func(b []byte) string {
		hash := fnv.New64a()
		hash.Write(b)
		return fmt.Sprintf("%d:%x", len(b), hash.Sum64())
	}
	// Many times in one instance: the guest's memory of 64 MiB must not fill.
	for i := range 20 {
		r := request(t, "echo", "sums", "filler", strings.Repeat("x", 3<<20+i))
		r.OldObject.Raw = r.Object.Raw[:2<<20]
		compare(t, denied(403, "Forbidden", sum(r.Object.Raw)+" "+sum(r.OldObject.Raw)), e.Validate(t.Context(), r))
	}
}

func TestGuestsThatBreakTheRules(t *testing.T) {
	failed := func(message string) *admissionv1.AdmissionResponse {
		return denied(500, "InternalError", `plugin "rulebreaker": `+message)
	}
	tests := []struct {
		object string
		want   *admissionv1.AdmissionResponse
	}{
		{"0", allowed()},
		{"1", failed("could not decide: no reason given")},
		{"2", denied(403, "Forbidden", "no reason given")},
		{"3", failed("validate returned verdict 7, want 0, 1 or 2")},
		{"4", failed("validate returned verdict -1, want 0, 1 or 2")},
		{"5", failed("validate trapped: wasm error: unreachable")},
		{"6", failed("validate trapped: call k8s.io/admission.result: parse admission result: malformed message: read field 1: unexpected EOF")},
		{"7", failed("validate trapped: call k8s.io/admission.result: bytes [65530, 65630) are out of bounds of the guest's memory of 65536 bytes")},
		{"8", denied(400, "Teapot", "no reason given")},
		{"9", failed("validate trapped: out of stack: 16777216 bytes")},
	}
	for _, policy := range []host.FailurePolicy{host.Fail, host.Ignore} {
		cfg := config(t, "rulebreaker", rulebreaker)
		cfg.FailurePolicy = policy
		e := admission.NewEngine(load(t, cfg))
		for _, test := range tests {
			t.Run(string(policy)+" "+test.object, func(t *testing.T) {
				got, want := e.Validate(t.Context(), requestOf(test.object)), test.want
				if policy == host.Ignore && want.Result != nil && want.Result.Code == 500 {
					want = &admissionv1.AdmissionResponse{UID: "uid-1", Allowed: true, Warnings: []string{want.Result.Message + " (ignored)"}}
				}
				compare(t, want, got)
				// The instance that broke the rules is gone, and the next works.
				compare(t, allowed(), e.Validate(t.Context(), requestOf("0")))
			})
		}
	}
}

func TestSeveralPluginsMakeOneAnswer(t *testing.T) {
	labels := config(t, "labels", requiredLabels)
	labels.GuestConfig = []byte(`{"labels":["owner"]}`)
	ignored := config(t, "ignored", rulebreaker)
	ignored.FailurePolicy = host.Ignore
	plugins := func(cfgs ...admission.PluginConfig) *admission.Engine {
		var list []admission.Policy
		for _, cfg := range cfgs {
			list = append(list, load(t, cfg))
		}
		return admission.NewEngine(list...)
	}
	first, second := config(t, "first", scripted), config(t, "second", scripted)
	second.GuestConfig = []byte(`{"warning":"second is here"}`)

	t.Run("none allows", func(t *testing.T) {
		compare(t, allowed(), plugins().Validate(t.Context(), request(t)))
	})
	t.Run("all allow", func(t *testing.T) {
		want := allowed()
		want.Warnings = []string{"second is here"}
		compare(t, want, plugins(first, second).Validate(t.Context(), request(t)))
	})
	t.Run("every message, warning and annotation is kept, with the names", func(t *testing.T) {
		want := denied(409, "Conflict", "first: no; second: no; labels: metadata.labels[owner]: Required value: every Pod must have it")
		want.Warnings = []string{"w", "second is here"}
		want.AuditAnnotations = map[string]string{"first.k": "v", "second.k": "v"}
		want.Result.Details = &metav1.StatusDetails{Name: "web", Kind: "Pod", Causes: []metav1.StatusCause{
			{Type: metav1.CauseTypeFieldValueRequired, Field: "metadata.labels[owner]", Message: "Required value: every Pod must have it"},
		}}
		compare(t, want, plugins(first, second, labels).Validate(t.Context(), request(t, "deny", "no", "code", "409", "warn", "w", "audit", "k=v")))
	})
	t.Run("a denial counts for more than a failure", func(t *testing.T) {
		broken := config(t, "broken", rulebreaker)
		got := plugins(broken, labels).Validate(t.Context(), requestOf("5"))
		if got.Result == nil || got.Result.Code != 422 || !strings.HasPrefix(got.Result.Message, `plugin "broken": validate trapped`) {
			t.Errorf("answer is %+v", got)
		}
	})
	t.Run("a failure that is ignored leaves the others their say", func(t *testing.T) {
		got := plugins(ignored, first).Validate(t.Context(), requestOf("5"))
		if !got.Allowed || len(got.Warnings) != 1 {
			t.Errorf("answer is %+v", got)
		}
	})
}

func TestNoInstanceInTimeIsAFailure(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e := admission.NewEngine(load(t, config(t, "scripted", scripted)))
	got := e.Validate(ctx, request(t))
	if got.Allowed || got.UID != "uid-1" || got.Result.Code != 500 || !strings.Contains(got.Result.Message, context.Canceled.Error()) {
		t.Errorf("answer is %+v", got)
	}
}

func TestClosedPluginFails(t *testing.T) {
	p := load(t, config(t, "scripted", scripted))
	e := admission.NewEngine(p)
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	compare(t, denied(500, "InternalError", `plugin "scripted": plugin is closed`), e.Validate(t.Context(), request(t)))
}

func TestLoadRefusesWhatItCannotServe(t *testing.T) {
	tests := []struct {
		name, want string
		change     func(*admission.PluginConfig)
	}{
		{"an unknown policy", `plugin "p": configuration: failurePolicy is "Panic", want Fail or Ignore`, func(c *admission.PluginConfig) { c.FailurePolicy = "Panic" }},
		{"the configuration of a dialect that it is not of", `plugin "p": probe: dialect.stellar is for modules of that dialect, and the module is a guest of package abi`, func(c *admission.PluginConfig) {
			c.Dialect = dialect.Config{"stellar": []byte("{}")}
		}},
		{"the configuration of an unknown dialect", `plugin "p": configuration: unknown field "dialect.stelar", did you mean "stellar"?`, func(c *admission.PluginConfig) {
			c.Dialect = dialect.Config{"stelar": []byte("{}")}
		}},
		{"configurations of two dialects", `plugin "p": configuration: dialect has rego and stellar, want one of them`, func(c *admission.PluginConfig) {
			c.Dialect = dialect.Config{"stellar": []byte("{}"), "rego": []byte("{}")}
		}},
		{"the configuration of a dialect without dialects", `plugin "p": configuration: dialect.stellar: this program supports no dialects`, func(c *admission.PluginConfig) {
			c.Dialects, c.Dialect = nil, dialect.Config{"stellar": []byte("{}")}
		}},
		{"a mistake in the configuration of a dialect", `plugin "p": configuration: unknown field "dialect.stellar.fuel"`, func(c *admission.PluginConfig) {
			c.Dialect = dialect.Config{"stellar": []byte(`{"fuel": 1}`)}
		}},
		{"an unknown field in the configuration", `plugin "p": configure returned Error: labls: unknown field, did you mean "labels"?; labels[1]: want string, got number`, func(c *admission.PluginConfig) { c.GuestConfig = []byte(`{"labls":[],"labels":["a",1]}`) }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cfg := config(t, "p", requiredLabels)
			test.change(&cfg)
			p, err := admission.Load(t.Context(), shared, cfg)
			if err == nil || err.Error() != test.want {
				t.Errorf("Load = %v, %v\nwant %s", p, err, test.want)
			}
		})
	}
}

func TestAllowAllocatesTheAnswerOnly(t *testing.T) {
	cfg := config(t, "labels", requiredLabels)
	cfg.GuestConfig = []byte(`{"labels":["app"]}`)
	e := admission.NewEngine(load(t, cfg))
	r := requestOf(string(podJSON(t)))
	ctx := t.Context()
	if n := testing.AllocsPerRun(200, func() {
		if !e.Validate(ctx, r).Allowed {
			t.Fatal("denied")
		}
	}); n > 1 && !race.Enabled {
		t.Errorf("%v allocations, want 1", n)
	}
}

// podJSON is a Pod of 4.3 KB, as an API server sends it.
func podJSON(t testing.TB) []byte {
	t.Helper()
	pod, err := os.ReadFile("testdata/pod.json")
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

func BenchmarkValidate(b *testing.B) {
	pod := podJSON(b)
	cfg := config(b, "labels", requiredLabels)
	cfg.GuestConfig = []byte(`{"labels":["app","owner"],"registries":["registry.example.com/"]}`)
	e := admission.NewEngine(load(b, cfg))
	r := requestOf(string(pod))
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if !e.Validate(ctx, r).Allowed {
			b.Fatal("denied")
		}
	}
}
