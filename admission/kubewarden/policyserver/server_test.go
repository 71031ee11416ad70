package policyserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities"
	"github.com/kubewasm/kubewasm/admission/kubewarden/policyserver"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/confidential"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
	"github.com/kubewasm/kubewasm/internal/testkit/guarded"
)

var policyOnce = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "policyserver")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "policy.wasm")
	cmd := exec.Command("clang", "--target=wasm32", "-O2", "-nostdlib", "-Wl,--no-entry", "-o", out, "../internal/policies/testdata/kubewarden/policy.c")
	if output, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("clang: %w\n%s", err, output)
	}
	return os.ReadFile(out)
})

// modules are the modules that the policies of a test name: policy does what its settings
// say, and others are added by the test.
type modules struct {
	mu      sync.Mutex
	byURL   map[string][]byte
	fetched map[string]int
	// kept are the digests of what was loaded, by URLs.
	kept map[string]string
	// slow holds up fetches, by URLs.
	slow map[string]chan struct{}
}

func newModules(t *testing.T) *modules {
	t.Helper()
	if _, err := exec.LookPath("clang"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("clang is not installed")
		}
		t.Skip("clang is not installed (Debian: clang, lld)")
	}
	module, err := policyOnce()
	if err != nil {
		t.Fatal(err)
	}
	return &modules{byURL: map[string][]byte{"registry://policy": module, "registry://broken": []byte("no module")}, fetched: map[string]int{}, kept: map[string]string{}}
}

func (m *modules) put(url string, module []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.byURL[url] = module
}

func (m *modules) fetches(url string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fetched[url]
}

type source struct {
	*modules
	url string
}

func (s source) String() string { return s.url }

func (s source) Fetch(ctx context.Context) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fetched[s.url]++
	if hold := s.slow[s.url]; hold != nil {
		s.mu.Unlock()
		select {
		case <-hold:
		case <-ctx.Done():
		}
		s.mu.Lock()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	if module := s.byURL[s.url]; module != nil {
		return module, nil
	}
	return nil, errors.New("there is no such module")
}

// Keep implements loading.Keeper.
func (s source) Keep(sha256 string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept[s.url] = sha256
}

// Kept implements loading.Keeper.
func (s source) Kept(context.Context) ([]byte, error) {
	return nil, errors.New("nothing is kept")
}

func (m *modules) source(url string) (host.Source, error) {
	if strings.HasPrefix(url, "ftp:") {
		return nil, errors.New("scheme ftp is none of a module")
	}
	return source{m, url}, nil
}

// observer keeps what it is told.
type observer struct {
	mu        sync.Mutex
	evaluated []policyserver.Evaluated
	loaded    []string
	forgotten []string
}

func (o *observer) Evaluated(_ context.Context, e *policyserver.Evaluated) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.evaluated = append(o.evaluated, *e)
}

func (o *observer) Loaded(policy string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		policy += " failed"
	}
	o.loaded = append(o.loaded, policy)
}

func (o *observer) Forget(policy string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.forgotten = append(o.forgotten, policy)
}

type testServer struct {
	*policyserver.Server
	t        *testing.T
	modules  *modules
	observer *observer
	log      *guarded.Log
	handler  http.Handler
}

func newServer(t *testing.T, change func(*policyserver.Config)) *testServer {
	t.Helper()
	s := &testServer{t: t, modules: newModules(t), observer: new(observer), log: guarded.NewLog()}
	rt, err := host.NewRuntime(compiled.Config())
	if err != nil {
		t.Fatal(err)
	}
	cfg := policyserver.Config{Runtime: rt, Source: s.modules.source, Observer: s.observer, Logger: slog.New(s.log), Timeout: 20 * time.Second}
	if change != nil {
		change(&cfg)
	}
	if s.Server, err = policyserver.New(cfg); err != nil {
		t.Fatal(err)
	}
	s.handler = s.Handler()
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if err := rt.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// apply applies a policies.yml, whose policies may fail.
func (s *testServer) apply(text string) error {
	s.t.Helper()
	f, err := policyserver.ParseFile([]byte(text))
	if err != nil {
		s.t.Fatal(err)
	}
	return s.Apply(s.t.Context(), f)
}

func (s *testServer) send(method, path, contentType, body string) (int, string) {
	r := httptest.NewRequestWithContext(s.t.Context(), method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	text, err := io.ReadAll(w.Body)
	if err != nil {
		s.t.Error(err)
	}
	return w.Code, strings.TrimSpace(string(text))
}

// pod is a review as an API server sends it.
const pod = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u1",` +
	`"kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},` +
	`"requestKind":{"group":"","version":"v1","kind":"Pod"},"requestResource":{"group":"","version":"v1","resource":"pods"},` +
	`"name":"web","namespace":"shop","operation":"CREATE","userInfo":{"username":"alice","groups":["devs"]},` +
	`"object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"}},"oldObject":null,"dryRun":false,"options":null}}`

// review sends pod and returns the answer.
func (s *testServer) review(path string) *admissionv1.AdmissionResponse {
	s.t.Helper()
	code, text := s.send(http.MethodPost, path, "application/json", pod)
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal([]byte(text), &review); err != nil || code != http.StatusOK || review.Response == nil || review.Kind != "AdmissionReview" {
		s.t.Fatalf("%s answers %d %s, %v", path, code, text, err)
	}
	return review.Response
}

// policies are of the shapes that Kubewarden's controller writes: one line of JSON with
// namespacedName, policyMode and hostCapabilities in every policy.
const policies = `{` +
	`"clusterwide-allow":{"namespacedName":{"Namespace":"","Name":"allow"},"module":"registry://policy","policyMode":"protect","allowedToMutate":false,"settings":{},"hostCapabilities":["*"]},` +
	`"clusterwide-deny":{"namespacedName":{"Namespace":"","Name":"deny"},"module":"registry://policy","policyMode":"protect","allowedToMutate":false,"settings":{"is":"mode-deny"},"hostCapabilities":["*"]},` +
	`"clusterwide-teapot":{"namespacedName":{"Namespace":"","Name":"teapot"},"module":"registry://policy","policyMode":"protect","allowedToMutate":false,"settings":{"is":"mode-echo"},"hostCapabilities":["*"]},` +
	`"clusterwide-worded":{"namespacedName":{"Namespace":"","Name":"worded"},"module":"registry://policy","policyMode":"protect","allowedToMutate":false,"settings":{"is":"mode-deny"},"message":"ask the platform team","hostCapabilities":["*"]},` +
	`"clusterwide-tried":{"namespacedName":{"Namespace":"","Name":"tried"},"module":"registry://policy","policyMode":"monitor","allowedToMutate":true,"settings":{"is":"mode-deny"},"hostCapabilities":["*"]},` +
	`"clusterwide-mutate":{"namespacedName":{"Namespace":"","Name":"mutate"},"module":"registry://policy","policyMode":"protect","allowedToMutate":true,"settings":{"is":"mode-mutate"},"hostCapabilities":["*"]},` +
	`"clusterwide-forbidden":{"namespacedName":{"Namespace":"","Name":"forbidden"},"module":"registry://policy","policyMode":"protect","allowedToMutate":false,"settings":{"is":"mode-mutate"},"hostCapabilities":["*"]},` +
	`"clusterwide-tried-mutate":{"namespacedName":{"Namespace":"","Name":"tried-mutate"},"module":"registry://policy","policyMode":"monitor","allowedToMutate":true,"settings":{"is":"mode-mutate"},"hostCapabilities":["*"]},` +
	`"clusterwide-fail":{"namespacedName":{"Namespace":"","Name":"fail"},"module":"registry://policy","policyMode":"protect","allowedToMutate":false,"settings":{"is":"mode-fail"},"hostCapabilities":["*"]},` +
	`"clusterwide-loop":{"namespacedName":{"Namespace":"","Name":"loop"},"module":"registry://policy","policyMode":"protect","allowedToMutate":false,"settings":{"is":"mode-loop"},"timeoutEvalSeconds":1,"hostCapabilities":["*"]},` +
	`"clusterwide-absent":{"namespacedName":{"Namespace":"","Name":"absent"},"module":"registry://absent","policyMode":"protect","allowedToMutate":false,"settings":null,"hostCapabilities":["*"]},` +
	`"clusterwide-absent-tried":{"namespacedName":{"Namespace":"","Name":"absent-tried"},"module":"registry://absent","policyMode":"monitor","allowedToMutate":false,"hostCapabilities":["*"]},` +
	`"clusterwide-broken":{"namespacedName":{"Namespace":"","Name":"broken"},"module":"registry://broken","policyMode":"protect","allowedToMutate":false,"hostCapabilities":["*"]},` +
	`"clusterwide-settings":{"namespacedName":{"Namespace":"","Name":"settings"},"module":"registry://policy","policyMode":"protect","allowedToMutate":false,"settings":{"labels":[]},"hostCapabilities":["*"]},` +
	`"namespaced-shop-deny":{"namespacedName":{"Namespace":"shop","Name":"deny"},"module":"registry://policy","policyMode":"protect","allowedToMutate":false,"settings":{"is":"mode-deny"},"hostCapabilities":["*"]},` +
	`"clusterwide-group-both":{"namespacedName":{"Namespace":"","Name":"both"},"policyMode":"protect","policies":{` +
	`"a":{"module":"registry://policy","settings":{"is":"mode-deny"},"hostCapabilities":["*"]},"b":{"module":"registry://policy","settings":null,"hostCapabilities":["*"]}},"expression":"a() \u0026\u0026 b()","message":"the group says no"},` +
	`"clusterwide-group-either":{"namespacedName":{"Namespace":"","Name":"either"},"policyMode":"protect","policies":{` +
	`"a":{"module":"registry://policy","settings":{"is":"mode-deny"},"hostCapabilities":["*"]},"b":{"module":"registry://policy","settings":{},"hostCapabilities":["*"]},"idle":{"module":"registry://absent","hostCapabilities":["*"]}},"expression":"a() || b()","message":"the group says no"},` +
	`"clusterwide-group-mutate":{"namespacedName":{"Namespace":"","Name":"mutate"},"policyMode":"protect","policies":{` +
	`"a":{"module":"registry://policy","settings":{"is":"mode-mutate"},"hostCapabilities":["*"]}},"expression":"a()","message":"the group says no"},` +
	`"clusterwide-group-fail":{"namespacedName":{"Namespace":"","Name":"fail"},"policyMode":"protect","policies":{` +
	`"a":{"module":"registry://policy","settings":{"is":"mode-fail"},"hostCapabilities":["*"]}},"expression":"!a()","message":"the group says no"},` +
	`"namespaced-group-shop-tried":{"namespacedName":{"Namespace":"shop","Name":"tried"},"policyMode":"monitor","policies":{` +
	`"a":{"module":"registry://policy","settings":{"is":"mode-deny"},"hostCapabilities":["*"]}},"expression":"a()","message":"the group says no"},` +
	`"clusterwide-group-broken":{"namespacedName":{"Namespace":"","Name":"broken"},"policyMode":"protect","policies":{` +
	`"a":{"module":"registry://policy","settings":{"labels":[]},"hostCapabilities":["*"]}},"expression":"a()","message":"the group says no"},` +
	`"clusterwide-group-expression":{"namespacedName":{"Namespace":"","Name":"expression"},"policyMode":"protect","policies":{` +
	`"a":{"module":"registry://policy","hostCapabilities":["*"]}},"expression":"a() &&","message":"the group says no"}}`

func denied(code int32, message string, causes ...metav1.StatusCause) *admissionv1.AdmissionResponse {
	r := &admissionv1.AdmissionResponse{UID: "u1", Result: &metav1.Status{Status: metav1.StatusFailure, Code: code, Message: message}}
	if len(causes) != 0 {
		r.Result.Details = &metav1.StatusDetails{Causes: causes}
	}
	return r
}

func with(r *admissionv1.AdmissionResponse, warning, key, value string) *admissionv1.AdmissionResponse {
	if warning != "" {
		r.Warnings = []string{warning}
	}
	if key != "" {
		r.AuditAnnotations = map[string]string{key: value}
	}
	return r
}

func allowed() *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{UID: "u1", Allowed: true}
}

func patched(patch string) *admissionv1.AdmissionResponse {
	patchType := admissionv1.PatchTypeJSONPatch
	return &admissionv1.AdmissionResponse{UID: "u1", Allowed: true, Patch: []byte(patch), PatchType: &patchType}
}

const mutation = `[{"op":"remove","path":"/apiVersion"},{"op":"remove","path":"/kind"},{"op":"add","path":"/metadata/labels","value":{"team":"shop"}}]`

func TestAnswersAreThoseOfKubewarden(t *testing.T) {
	s := newServer(t, func(c *policyserver.Config) { c.AcceptNamespace = "kubewarden" })
	if err := s.apply(policies); err == nil {
		t.Error("broken policies are no error of Apply")
	}
	// Modules that cannot be fetched are waited for, and those that are broken are not.
	if err := s.Ready(); err == nil || !strings.Contains(err.Error(), "clusterwide-absent") || strings.Contains(err.Error(), "broken") {
		t.Errorf("ready is %v", err)
	}
	cause := func(field, message string) metav1.StatusCause {
		return metav1.StatusCause{Field: field, Message: message}
	}
	tests := []struct {
		path string
		want *admissionv1.AdmissionResponse
	}{
		{"/validate/clusterwide-allow", allowed()},
		{"/validate/clusterwide-deny", with(denied(0, "not here"), "look out", "rule", "7")},
		{"/validate/namespaced-shop-deny", with(denied(0, "not here"), "look out", "rule", "7")},
		{"/validate/clusterwide-worded", with(denied(0, "ask the platform team", cause("", "not here")), "look out", "rule", "7")},
		{"/audit/clusterwide-worded", with(denied(0, "not here"), "look out", "rule", "7")},
		{"/validate/clusterwide-tried", with(allowed(), "look out", "rule", "7")},
		{"/audit/clusterwide-tried", with(denied(0, "not here"), "look out", "rule", "7")},
		{"/validate/clusterwide-mutate", with(patched(mutation), "changed", "changed", "labels")},
		{"/validate/clusterwide-forbidden", with(denied(0, "Request rejected by policy clusterwide-forbidden. The policy attempted to mutate the request, but it is currently configured to not allow mutations."), "changed", "changed", "labels")},
		{"/audit/clusterwide-forbidden", with(patched(mutation), "changed", "changed", "labels")},
		{"/validate/clusterwide-tried-mutate", with(allowed(), "changed", "changed", "labels")},
		{"/validate/clusterwide-fail", denied(500, `internal server error: plugin "clusterwide-fail": validate: guest call failed: cannot say`)},
		{"/validate/clusterwide-loop", denied(500, "Policy execution interrupted because it exceeded the allowed execution time")},
		{"/validate/clusterwide-absent", denied(500, `policy "clusterwide-absent": fetch module: there is no such module`)},
		{"/validate/clusterwide-absent-tried", with(allowed(), "policy clusterwide-absent-tried cannot be asked, and only monitors", "", "")},
		{"/audit/clusterwide-absent-tried", denied(500, `policy "clusterwide-absent-tried": fetch module: there is no such module`)},
		{"/validate/clusterwide-group-both", with(denied(0, "the group says no", cause("spec.policies.a", "not here")), "look out", "a.rule", "7")},
		{"/validate/clusterwide-group-either", with(allowed(), "look out", "a.rule", "7")},
		{"/validate/clusterwide-group-mutate", denied(0, "the group says no", cause("spec.policies.a", "mutation is not allowed inside of policy group"))},
		{"/validate/clusterwide-group-fail", denied(500, `internal server error: group "clusterwide-group-fail": plugin "clusterwide-group-fail/a": validate: guest call failed: cannot say`)},
		{"/validate/namespaced-group-shop-tried", with(allowed(), "look out", "a.rule", "7")},
		{"/validate/clusterwide-group-expression", denied(500, `group "clusterwide-group-expression": expression: at "the end": want a member, true, false, ! or (`)},
	}
	for _, test := range tests {
		t.Run(test.path, func(t *testing.T) {
			got := s.review(test.path)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
	for path, part := range map[string]string{
		"/validate/clusterwide-teapot":       `"settings":{"is":"mode-echo"}`,
		"/validate/clusterwide-broken":       "clusterwide-broken",
		"/validate/clusterwide-settings":     "settings are not valid: labels is empty",
		"/validate/clusterwide-group-broken": "settings are not valid: labels is empty",
	} {
		want := int32(http.StatusInternalServerError)
		if strings.HasSuffix(path, "teapot") {
			want = http.StatusTeapot
		}
		if got := s.review(path); got.Allowed || got.Result.Code != want || !strings.Contains(got.Result.Message, part) {
			t.Errorf("%s answers %+v", path, got.Result)
		}
	}
	t.Run("the namespace of the server", func(t *testing.T) {
		for _, id := range []string{"clusterwide-deny", "clusterwide-absent"} {
			if code, text := s.send(http.MethodPost, "/validate/"+id, "application/json", strings.Replace(pod, `"shop"`, `"kubewarden"`, 1)); code != 200 || !strings.Contains(text, `"allowed":true`) {
				t.Errorf("%s answers %d %s", id, code, text)
			}
		}
	})
	if n := s.modules.fetches("registry://policy"); n != 1 {
		t.Errorf("the module of many policies is fetched %d times", n)
	}
}

func TestRoutes(t *testing.T) {
	s := newServer(t, nil)
	review := func(path string) (int, string) { return s.send(http.MethodPost, path, "application/json", pod) }
	if code, text := review("/validate/p"); code != 503 || text != `{"message":"policies are being loaded","status":503}` {
		t.Errorf("before policies.yml was read the answer is %d %s", code, text)
	}
	if err := s.apply(`{"p": {"module": "registry://policy"}, "m": {"module": "registry://policy", "settings": {"is": "mode-mutate"}, "allowedToMutate": true}}`); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, method, path, contentType, body string
		code                                  int
		want                                  string // A part of the answer.
	}{
		{"an unknown id", "POST", "/validate/none", "application/json", pod, 404, `{"message":"unknown policy: none","status":404}`},
		{"an unknown id of an audit", "POST", "/audit/none", "application/json", pod, 404, `{"message":"unknown policy: none","status":404}`},
		{"an unknown id of a raw request", "POST", "/validate_raw/none", "application/json", `{"request":{}}`, 404, `{"message":"unknown policy: none","status":404}`},
		{"a member of a group", "POST", "/validate/group/member", "application/json", pod, 404, ""},
		{"no id", "POST", "/validate/", "application/json", pod, 404, ""},
		{"another path", "POST", "/other", "application/json", pod, 404, ""},
		{"another method", "GET", "/validate/p", "", "", 405, ""},
		{"no content type", "POST", "/validate/p", "", pod, 415, `"status":415`},
		{"another content type", "POST", "/validate/p", "text/plain", pod, 415, `"status":415`},
		{"a content type with parameters", "POST", "/validate/p", "application/json; charset=utf-8", pod, 200, `"allowed":true`},
		{"a content type of a kind of JSON", "POST", "/validate/p", "application/merge-patch+json", pod, 200, `"allowed":true`},
		{"no JSON", "POST", "/validate/p", "application/json", `{"request":`, 400, `"status":400`},
		{"a review without a request", "POST", "/validate/p", "application/json", `{}`, 422, `"status":422`},
		{"an audit without a request", "POST", "/audit/p", "application/json", `{}`, 422, `"status":422`},
		{"a raw review without a request", "POST", "/validate_raw/p", "application/json", `{}`, 422, `missing field request`},
		{"a raw review that is no object", "POST", "/validate_raw/p", "application/json", `[1]`, 422, `"status":422`},
		{"a raw review that is no JSON", "POST", "/validate_raw/p", "application/json", `{"request"`, 400, `"status":400`},
		{"a timeout that is none", "POST", "/validate/p?timeout=soon", "application/json", pod, 400, `"status":400`},
		{"a timeout", "POST", "/validate/p?timeout=10s", "application/json", pod, 200, `"allowed":true`},
		{"a raw request", "POST", "/validate_raw/p", "application/json", `{"request":{"uid":"r1","anything":[1,2]}}`, 200, `{"response":{"uid":"r1","allowed":true}}`},
		{"a raw request without a uid", "POST", "/validate_raw/p", "application/json", `{"request":{"anything":1}}`, 200, `{"response":{"uid":"","allowed":true}}`},
		{"a raw request that is no object", "POST", "/validate_raw/p", "application/json", `{"request":7}`, 200, `{"response":{"uid":"","allowed":true}}`},
		{"a raw request that is changed", "POST", "/validate_raw/m", "application/json", `{"request":{"metadata":{"name":"web"}}}`, 200, `"patchType":"JSONPatch"`},
		{"a body that is too long", "POST", "/validate/p", "application/json", strings.Repeat(" ", admission.DefaultMaxBodyBytes+1), 413, `"status":413`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			code, text := s.send(test.method, test.path, test.contentType, test.body)
			if code != test.code || !strings.Contains(text, test.want) {
				t.Errorf("answer is %d %s, want %d with %s", code, text, test.code, test.want)
			}
		})
	}
}

func TestObserverIsToldOfVerdicts(t *testing.T) {
	s := newServer(t, nil)
	if err := s.apply(policies); err == nil {
		t.Error("broken policies are no error of Apply")
	}
	for _, path := range []string{"/validate/clusterwide-tried", "/audit/clusterwide-tried-mutate", "/validate/clusterwide-fail", "/validate/clusterwide-absent"} {
		s.review(path)
	}
	s.send(http.MethodPost, "/validate_raw/clusterwide-deny", "application/json", `{"request":{}}`)
	type told struct {
		Policy, Mode, Origin, Kind string
		Accepted, Mutated          bool
		Code                       int32
		Initialization             bool
	}
	var got []told
	for _, e := range s.observer.evaluated {
		kind := ""
		if e.Request != nil {
			kind = e.Request.Kind.Kind
		}
		got = append(got, told{e.Policy, e.Mode, e.Origin, kind, e.Accepted, e.Mutated, e.Code, e.Initialization != nil})
	}
	want := []told{
		{"clusterwide-tried", "monitor", "validate", "Pod", false, false, 0, false},
		{"clusterwide-tried-mutate", "monitor", "audit", "Pod", true, true, 0, false},
		{"clusterwide-fail", "protect", "validate", "Pod", false, false, 500, false},
		{"clusterwide-absent", "protect", "validate", "Pod", false, false, 500, true},
		{"clusterwide-deny", "protect", "validate_raw", "", false, false, 0, false},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the observer is told (-want +got):\n%s", diff)
	}
	if !strings.Contains(s.log.String(), `msg="policy evaluation (monitor mode)" policy=clusterwide-tried uid=u1 allowed=false`) {
		t.Errorf("log has no verdict of the policy that monitors:\n%s", s.log)
	}
}

func TestFileThatIsWrong(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string
	}{
		{"three mistakes", `{"a": {"module": "m", "policyMode": "watch"}, "b/c": {"module": "m"}, "d": {}}`, []string{
			`policy "a": policyMode is "watch", want protect or monitor`, `policy "b/c": an id is not empty and has no /`, `policy "d": it has neither a module nor policies`}},
		{"a policy and a group", `a: {module: m, policies: {b: {module: m}}, expression: b(), message: sorry}`, []string{"it has a module and policies"}},
		{"a group with mistakes", `a: {policies: {b/c: {}, d: {module: m, settings: 7, timeoutEvalSeconds: 0}}}`, []string{
			"expression is missing", "message is missing", `member "b/c": a name is not empty`, "member b/c: module is missing", "member d: settings are no mapping", "member d: timeoutEvalSeconds is 0, want at least 1"}},
		{"values of another kind", `a: {module: [1]}`, []string{`policy "a"`}},
		{"resources", `a: {module: m, contextAwareResources: [{apiVersion: a/b/c, kind: X}, {apiVersion: v1}]}`, []string{`apiVersion "a/b/c"`, `apiVersion "v1", kind ""`}},
		{"an id twice", "a: {module: m}\na: {module: n}", []string{`key "a" already set in map`}},
		{"nothing", "", []string{"it is no mapping"}},
		{"a list", "[]", []string{"it is no mapping"}},
		{"no YAML", "{", []string{"read policies: "}},
		{"two documents", "a: {module: m}\n---\nb: {module: m}", []string{"more than one document"}},
		{"a number that is none", "a: {module: m, timeoutEvalSeconds: .inf}", []string{`policy "a": timeoutEvalSeconds is .inf, which JSON has no form for`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := policyserver.ParseFile([]byte(test.text))
			if err == nil {
				t.Fatal("there is no error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error has no %s:\n%v", want, err)
				}
			}
		})
	}
	f, err := policyserver.ParseFile([]byte("a: {module: m, modulus: n}\nb: {module: m, settings: null, timeoutEvalSeconds: null}"))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Warnings) != 1 || !strings.Contains(f.Warnings[0], `policy "a": unknown field "modulus"`) {
		t.Errorf("warnings are %q", f.Warnings)
	}
}

// Kubewarden's server reads YAML 1.2.
func TestSettingsAreYAML12(t *testing.T) {
	f, err := policyserver.ParseFile([]byte("a: {module: m, settings: {countries: [NO, DE], at: 012, from: 1:30, on: y}}"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(f.Policies["a"].Settings), `{"at":"012","countries":["NO","DE"],"from":"1:30","on":"y"}`; got != want {
		t.Errorf("settings are %s, want %s", got, want)
	}
}

// A policy with settings that JSON has no form for is not loaded, and the others of the file are.
func TestUnfitSettingsConcernOnePolicy(t *testing.T) {
	s := newServer(t, nil)
	err := s.apply(`
a: {module: registry://policy, settings: {limits: [1, .inf]}}
b: {module: registry://policy}
c: {policies: {d: {module: registry://policy, settings: {most: .NaN}}}, expression: d(), message: no}
`)
	for _, want := range []string{`policy "a": settings.limits.1 is .inf, which JSON has no form for`, "settings.most is .NaN"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error has no %s: %v", want, err)
		}
	}
	if err != nil && strings.Contains(err.Error(), `"b"`) {
		t.Errorf("it is the fault of b as well: %v", err)
	}
	if _, text := s.send(http.MethodPost, "/validate_raw/b", "application/json", `{"request":{}}`); !strings.Contains(text, `"allowed":true`) {
		t.Errorf("b answers %s", text)
	}
	// null is another thing than what has become null.
	if err := s.apply(`{a: {module: registry://policy, settings: {limits: [1, null]}}}`); err != nil {
		t.Errorf("without it: %v", err)
	}
}

func FuzzParseFile(f *testing.F) {
	f.Add([]byte(policies))
	f.Add([]byte("a: {module: m, settings: {b: [1, 2.5, null]}, hostCapabilities: [oci/*]}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := policyserver.ParseFile(data)
		if (err == nil) != (file != nil) {
			t.Errorf("ParseFile = %v, %v", file, err)
		}
	})
}

func TestConfigThatIsWrong(t *testing.T) {
	_, err := policyserver.New(policyserver.Config{Timeout: -1, Workers: -1, Interval: -1})
	const want = "policy server: configuration: runtime is missing\nsource is missing\ntimeout is -1ns, less than 0\nworkers is -1, less than 0\ninterval is -1ns, less than 0"
	if err == nil || err.Error() != want {
		t.Errorf("error is %v", err)
	}
	if g, err := policyserver.ReadGuests([]byte("answers: {ttl: 5m, cacheBytes: 1000}")); err != nil || g.Answers.TTL.Duration != 5*time.Minute || g.Answers.CacheBytes != 1000 {
		t.Errorf("answers are %+v, %v", g.Answers, err)
	}
	if _, err := policyserver.ReadGuests([]byte("answers: {ttl: -5m, cacheBytes: -1}\nnamespacedCapabilities: [oci/v9/*]")); err == nil || strings.Count(err.Error(), "less than 0") != 2 || !strings.Contains(err.Error(), "oci/v9") {
		t.Errorf("mistakes of bounds are %v", err)
	}
	_, err = policyserver.ReadGuests([]byte("limit: {}\nnamespacedCapabilities: [oci/v9/*]"))
	if err == nil || !strings.Contains(err.Error(), `unknown field "limit"`) {
		t.Errorf("error is %v", err)
	}
	if _, err = policyserver.ReadGuests([]byte("namespacedCapabilities: [oci/v9/*, '*', kubernetes/*, net]\ndefaultCapabilities: [nets/*]")); err == nil || strings.Count(err.Error(), "is none of") != 3 {
		t.Errorf("error is %v", err)
	}
}

func TestOnePolicyChangesAlone(t *testing.T) {
	s := newServer(t, nil)
	if err := s.apply(`{"a": {"module": "registry://policy", "settings": {"is": "mode-deny"}}, "b": {"module": "registry://policy"}, "c": {"module": "registry://policy"}}`); err != nil {
		t.Fatal(err)
	}
	before := s.Policies()
	s.observer.loaded = nil
	// a answers in another way, b is another policy, c is gone, and d is new.
	if err := s.apply(`{"a": {"module": "registry://policy", "settings": {"is": "mode-deny"}, "policyMode": "monitor"}, "b": {"module": "registry://policy", "settings": {"is": "mode-deny"}}, "d": {"module": "registry://policy"}}`); err != nil {
		t.Fatal(err)
	}
	after := s.Policies()
	slices.Sort(s.observer.loaded)
	if diff := cmp.Diff([]string{"b", "d"}, s.observer.loaded); diff != "" {
		t.Errorf("policies that were loaded (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"c"}, s.observer.forgotten); diff != "" {
		t.Errorf("policies that were forgotten (-want +got):\n%s", diff)
	}
	if !before[0].Since.Equal(after[0].Since) || before[1].Since.Equal(after[1].Since) {
		t.Errorf("policies were %+v and are %+v", before, after)
	}
	if got := s.review("/validate/a"); !got.Allowed {
		t.Errorf("a policy that monitors since the change denies: %+v", got.Result)
	}
	if got := s.review("/validate/b"); got.Allowed {
		t.Error("a policy with other settings answers as before")
	}
	if code, _ := s.send(http.MethodPost, "/validate/c", "application/json", pod); code != 404 {
		t.Errorf("a policy that is gone answers %d", code)
	}
}

// A source must not take a module that could not be loaded for the last good one.
func TestSourcesAreToldWhatWasLoaded(t *testing.T) {
	s := newServer(t, nil)
	module, err := policyOnce()
	if err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{"registry://a", "registry://b", "registry://of a bad group"} {
		s.modules.put(url, module)
	}
	err = s.apply(`{"broken": {"module": "registry://broken"}, "good": {"module": "registry://policy"},
		"group": {"policies": {"a": {"module": "registry://a"}, "b": {"module": "registry://b"}, "c": {"module": "registry://absent"}}, "expression": "a() && b()", "message": "no"},
		"bad": {"policies": {"a": {"module": "registry://of a bad group"}, "b": {"module": "registry://broken"}}, "expression": "a() && b()", "message": "no"}}`)
	if err == nil {
		t.Error("the broken module is no error")
	}
	digest := s.Policies()[2].Digest
	want := map[string]string{"registry://policy": digest, "registry://a": digest, "registry://b": digest}
	if diff := cmp.Diff(want, s.modules.kept); diff != "" {
		t.Errorf("kept (-want +got)\n%s", diff)
	}
}

func TestWhatServesWhenAChangeFails(t *testing.T) {
	const good = `{"p": {"module": "registry://policy", "settings": {"is": "mode-deny"}, "hostCapabilities": ["kubernetes/*", "net/*"]}}`
	tests := []struct {
		name, next string
		want       string // A part of the message of the denial.
	}{
		{"another module that is broken", `{"p": {"module": "registry://broken", "settings": {"is": "mode-deny"}, "hostCapabilities": ["*"]}}`, "not here"},
		{"settings that are wrong", `{"p": {"module": "registry://policy", "settings": {"labels": []}, "hostCapabilities": ["kubernetes/*", "net/*"]}}`, "not here"},
		{"a change that takes a grant away", `{"p": {"module": "registry://broken", "hostCapabilities": ["kubernetes/*"]}}`, `"p"`},
		{"a grant that is none", `{"p": {"module": "registry://policy", "hostCapabilities": ["kubernetes/*", "net/*", "oci/v3/verify"]}}`, "not here"},
		{"a scheme that is none", `{"p": {"module": "ftp://x", "hostCapabilities": ["*"]}}`, "not here"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newServer(t, nil)
			if err := s.apply(good); err != nil {
				t.Fatal(err)
			}
			if err := s.apply(test.next); err == nil {
				t.Error("the change is no error")
			}
			got := s.review("/validate/p")
			if got.Allowed || !strings.Contains(got.Result.Message, test.want) || (got.Result.Code == 500) != (test.want != "not here") {
				t.Errorf("answer is %+v, want %s", got.Result, test.want)
			}
			if list := s.Policies(); list[0].Err == nil {
				t.Errorf("policies are %+v", list)
			}
			if err := s.apply(good); err != nil {
				t.Fatal(err)
			}
			if got := s.review("/validate/p"); got.Result == nil || got.Result.Message != "not here" || s.Policies()[0].Err != nil {
				t.Errorf("the good file again answers %+v, %+v", got.Result, s.Policies())
			}
		})
	}
}

// replace makes a directory what kubelet makes of the mount of a ConfigMap: links to files in
// a directory that a link leads to, which is exchanged.
func replace(t *testing.T, dir string, generation int, files map[string]string) {
	t.Helper()
	name := fmt.Sprintf("..%d", generation)
	if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
		t.Fatal(err)
	}
	for file, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		link := filepath.Join(dir, file)
		if _, err := os.Lstat(link); err != nil {
			if err := os.Symlink(filepath.Join("..data", file), link); err != nil {
				t.Fatal(err)
			}
		}
	}
	next := filepath.Join(dir, "..data_tmp")
	if err := os.Symlink(name, next); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
}

func until(t *testing.T, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for !f() {
		if time.Now().After(deadline) {
			t.Fatal("it does not happen")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Policies change under load, by the ConfigMap's mount, and no request fails.
func TestChangesUnderLoad(t *testing.T) {
	dir := t.TempDir()
	policiesOf := func(generation int) string {
		return fmt.Sprintf(`{"steady": {"module": "registry://policy", "settings": {"is": "mode-deny"}},`+
			`"changing": {"module": "registry://policy", "settings": {"is": "mode-echo", "generation": %d}},`+
			`"group": {"policies": {"a": {"module": "registry://policy", "settings": {"generation": %d}}}, "expression": "a()", "message": "no"}}`, generation, generation)
	}
	replace(t, dir, 0, map[string]string{"policies.yml": policiesOf(0)})
	s := newServer(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	if err := s.FollowFile(ctx, filepath.Join(dir, "policies.yml")); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var requests atomic.Int64
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				requests.Add(1)
				id := []string{"steady", "changing", "group"}[i]
				code, text := s.send(http.MethodPost, "/validate/"+id, "application/json", pod)
				var review admissionv1.AdmissionReview
				if err := json.Unmarshal([]byte(text), &review); err != nil || code != 200 {
					t.Errorf("%s answers %d %s", id, code, text)
					return
				}
				r := review.Response
				switch {
				case id == "steady" && !r.Allowed && r.Result.Message == "not here":
				case id == "changing" && !r.Allowed && r.Result.Code == 418:
				case id == "group" && r.Allowed:
				default:
					t.Errorf("%s answers %s", id, text)
					return
				}
			}
		})
	}
	for generation := 1; generation <= 10; generation++ {
		replace(t, dir, generation, map[string]string{"policies.yml": policiesOf(generation)})
		want := fmt.Sprintf(`"generation":%d,`, generation)
		until(t, func() bool { return strings.Contains(s.review("/validate/changing").Result.Message, want) })
	}
	// A file that is wrong changes nothing.
	replace(t, dir, 11, map[string]string{"policies.yml": `{"steady": {"policyMode": "none"}}`})
	until(t, func() bool { return strings.Contains(s.log.String(), "policies.yml is refused: nothing changes") })
	s.review("/validate/changing")
	close(done)
	wg.Wait()
	cancel()
	if requests.Load() == 0 {
		t.Error("there were no requests")
	}
}

// A registry that was away is asked again.
func TestModuleThatComesLater(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policies.yml")
	if err := os.WriteFile(file, []byte(`{"late": {"module": "registry://late"}, "good": {"module": "registry://policy"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newServer(t, func(c *policyserver.Config) { c.Interval = 20 * time.Millisecond })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := s.FollowFile(ctx, file); err != nil {
		t.Fatal(err)
	}
	if got := s.review("/validate/late"); got.Allowed || got.Result.Code != 500 {
		t.Errorf("a policy without its module answers %+v", got)
	}
	if got := s.review("/validate/good"); !got.Allowed {
		t.Errorf("a good policy beside it answers %+v", got)
	}
	module, err := policyOnce()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Ready(); err == nil {
		t.Error("the server is ready without the module")
	}
	s.modules.put("registry://late", module)
	until(t, func() bool { return s.review("/validate/late").Allowed })
	if err := s.Ready(); err != nil {
		t.Errorf("ready is %v", err)
	}
	if n := s.modules.fetches("registry://policy"); n != 1 {
		t.Errorf("the module of the good policy was fetched %d times", n)
	}
	cancel()
}

// TestASlowModuleDelaysNoOtherTenant changes policies while the modules of more tenants than may load
// at the same time do not come.
func TestASlowModuleDelaysNoOtherTenant(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policies.yml")
	write := func(policies ...string) {
		t.Helper()
		if err := os.WriteFile(file+".next", []byte("{"+strings.Join(policies, ", ")+"}"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".next", file); err != nil {
			t.Fatal(err)
		}
	}
	s := newServer(t, func(c *policyserver.Config) { c.Interval = 20 * time.Millisecond })
	hold := make(chan struct{})
	s.modules.slow = map[string]chan struct{}{}
	var slow []string
	for n := range 20 {
		url := fmt.Sprint("registry://slow-", n)
		s.modules.slow[url] = hold
		slow = append(slow, fmt.Sprintf(`"slow-%d": {"module": %q}`, n, url))
	}
	one := `"one": {"module": "registry://policy"}`
	write(one)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := s.FollowFile(ctx, file); err != nil {
		t.Fatal(err)
	}
	write(append(slow, one)...)
	until(t, func() bool { return s.modules.fetches("registry://slow-0") != 0 })
	write(append(slow, `"two": {"module": "registry://policy"}`)...)
	until(t, func() bool {
		code, text := s.send(http.MethodPost, "/validate/two", "application/json", pod)
		return code == http.StatusOK && strings.Contains(text, `"allowed":true`)
	})
	if code, _ := s.send(http.MethodPost, "/validate/one", "application/json", pod); code != http.StatusNotFound {
		t.Errorf("a removed policy answers %d", code)
	}
	// One that is removed while its module does not come is not served, and Close waits for none.
	write(slow[1:]...)
	until(t, func() bool {
		code, _ := s.send(http.MethodPost, "/validate/two", "application/json", pod)
		return code == http.StatusNotFound
	})
	cancel()
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	close(hold)
	if err := s.apply("{" + one + "}"); !errors.Is(err, host.ErrClosed) {
		t.Errorf("apply after Close: %v", err)
	}
}

// cluster has one Namespace.
type cluster struct{ admission.Cluster }

func (cluster) Hold(schema.GroupVersionKind) func() { return func() {} }

func (cluster) Get(context.Context, schema.GroupVersionKind, string, string, bool) ([]byte, error) {
	return []byte(`{"kind":"Namespace","metadata":{"name":"shop"}}`), nil
}

func (cluster) List(context.Context, schema.GroupVersionKind, string, labels.Selector, fields.Selector) ([][]byte, error) {
	return [][]byte{[]byte(`{"kind":"Namespace","metadata":{"name":"shop"}}`)}, nil
}

func (cluster) Review(context.Context, authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error) {
	return authorizationv1.SubjectAccessReviewStatus{Allowed: true}, nil
}

func TestGrants(t *testing.T) {
	const resources = `"contextAwareResources": [{"apiVersion": "v1", "kind": "Namespace"}]`
	tests := []struct {
		name, id, policy string
		guests           policyserver.Guests
		want             string // A part of what the guest is told.
	}{
		{"what policies.yml grants", "clusterwide-p", `"settings": {"is": "mode-get"}, "hostCapabilities": ["*"], ` + resources, policyserver.Guests{}, `"name":"shop"`},
		{"a file of an older controller", "clusterwide-p", `"settings": {"is": "mode-get"}, ` + resources, policyserver.Guests{}, `"name":"shop"`},
		{"a file of an older controller, and more than lookups", "clusterwide-p", `"settings": {"is": "mode-net"}`, policyserver.Guests{}, "may not call net/v1/dns_lookup_host"},
		{"what policies without hostCapabilities have", "clusterwide-p", `"settings": {"is": "mode-net"}`,
			policyserver.Guests{DefaultCapabilities: []string{"*"}, Guest: policyserver.Guest{HostNames: []string{"*.example.org"}}}, "may not look up example.com"},
		{"lookups beside them", "clusterwide-p", `"settings": {"is": "mode-get"}, ` + resources, policyserver.Guests{DefaultCapabilities: []string{"net/*"}}, `"name":"shop"`},
		{"no hostCapabilities at all, though there is a default", "clusterwide-p", `"settings": {"is": "mode-net"}, "hostCapabilities": []`,
			policyserver.Guests{DefaultCapabilities: []string{"*"}}, "may not call net/v1/dns_lookup_host"},
		{"the default and a policy of a namespace", "namespaced-shop-p", `"settings": {"is": "mode-net"}`, policyserver.Guests{DefaultCapabilities: []string{"*"}}, "may not call net/v1/dns_lookup_host"},
		{"a kind that is not granted", "clusterwide-p", `"settings": {"is": "mode-get"}, "hostCapabilities": ["*"]`, policyserver.Guests{}, "the policy may not see v1 Namespace"},
		{"no lookup of what may be seen", "clusterwide-p", `"settings": {"is": "mode-get"}, "hostCapabilities": ["kubernetes/can_i"], ` + resources, policyserver.Guests{}, "contextAwareResources need one of"},
		{"an operation that is not granted", "clusterwide-p", `"settings": {"is": "mode-get"}, "hostCapabilities": ["kubernetes/list_resources_all"], ` + resources, policyserver.Guests{}, "may not call kubernetes/get_resource"},
		{"another operation that is not granted", "clusterwide-p", `"settings": {"is": "mode-can-i"}, "hostCapabilities": ["kubernetes/get_resource"], ` + resources, policyserver.Guests{}, "may not call kubernetes/can_i"},
		{"a list that is not granted", "clusterwide-p", `"settings": {"is": "mode-all"}, "hostCapabilities": ["kubernetes/list_resources_by_namespace"], ` + resources, policyserver.Guests{}, "may not call kubernetes/list_resources_all"},
		{"a policy of a namespace", "namespaced-shop-p", `"settings": {"is": "mode-net"}, "hostCapabilities": ["*"]`, policyserver.Guests{}, "may not call net/v1/dns_lookup_host"},
		{"a policy of a namespace that looks objects up", "namespaced-shop-p", `"settings": {"is": "mode-get"}, "hostCapabilities": ["*"], ` + resources, policyserver.Guests{}, "contextAwareResources need one of"},
		{"a policy of a namespace that the server grants something", "namespaced-shop-p", `"settings": {"is": "mode-get"}, "hostCapabilities": ["*"], ` + resources,
			policyserver.Guests{NamespacedCapabilities: []string{"kubernetes/get_resource"}}, `"name":"shop"`},
		{"a policy of a namespace by its name", "p", `"namespacedName": {"Namespace": "shop", "Name": "p"}, "settings": {"is": "mode-net"}, "hostCapabilities": ["*"]`, policyserver.Guests{}, "may not call net/v1/dns_lookup_host"},
		{"host names that the server does not grant", "clusterwide-p", `"settings": {"is": "mode-net"}, "hostCapabilities": ["net/*"]`,
			policyserver.Guests{Guest: policyserver.Guest{HostNames: []string{"*.example.org"}}}, "may not look up example.com"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			provider, err := capabilities.NewProvider(capabilities.Config{})
			if err != nil {
				t.Fatal(err)
			}
			s := newServer(t, func(c *policyserver.Config) { c.Cluster, c.Guests, c.Capabilities = cluster{}, test.guests, provider })
			if err := s.apply(`{"` + test.id + `": {"module": "registry://policy", ` + test.policy + `}}`); err != nil && !strings.Contains(err.Error(), test.want) {
				t.Fatal(err)
			}
			if got := s.review("/validate/" + test.id); got.Allowed || !strings.Contains(got.Result.Message, test.want) {
				t.Errorf("the guest is told %+v, want %s", got.Result, test.want)
			}
		})
	}
}

// gated is a cluster that answers when gate is closed.
type gated struct {
	cluster
	gate <-chan struct{}
}

func (c gated) Get(ctx context.Context, kind schema.GroupVersionKind, namespace, name string, fresh bool) ([]byte, error) {
	select {
	case <-c.gate:
		return c.cluster.Get(ctx, kind, namespace, name, fresh)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Requests do not wait for a policy that monitors and is slow: its verdicts come late, or are
// dropped if too many are under way. Audits, and policies that protect, are waited for.
func TestRequestsDoNotWaitForAPolicyThatMonitors(t *testing.T) {
	const requests, outlive = 20, 8
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	defer open()
	s := newServer(t, func(c *policyserver.Config) { c.Cluster = gated{gate: gate} })
	const asks = `"module": "registry://policy", "settings": {"is": "mode-get"}, "contextAwareResources": [{"apiVersion": "v1", "kind": "Namespace"}]`
	if err := s.apply(`{"trial": {` + asks + `, "policyMode": "monitor"}, "guard": {"module": "registry://policy", "settings": {"is": "mode-deny"}}}`); err != nil {
		t.Fatal(err)
	}
	count := func() (dropped, late, inTime int) {
		s.observer.mu.Lock()
		defer s.observer.mu.Unlock()
		for _, e := range s.observer.evaluated {
			switch {
			case e.Policy != "trial":
			case e.Dropped:
				dropped++
			case e.Late:
				late++
			default:
				inTime++
			}
		}
		return dropped, late, inTime
	}
	for range requests {
		if diff := cmp.Diff(allowed(), s.review("/validate/trial")); diff != "" {
			t.Fatalf("answer (-want +got):\n%s", diff)
		}
	}
	if got := s.review("/validate/guard"); got.Allowed {
		t.Errorf("the policy beside it answers %+v", got)
	}
	until(t, func() bool { dropped, _, _ := count(); return dropped == requests-outlive })
	if _, late, inTime := count(); late != 0 || inTime != 0 {
		t.Errorf("before the policy decides %d verdicts are late, and %d in time", late, inTime)
	}
	open()
	until(t, func() bool { _, late, _ := count(); return late == outlive })
	if got := s.review("/audit/trial"); got.Allowed {
		t.Errorf("an audit is answered %+v", got)
	}
	if dropped, late, inTime := count(); dropped != requests-outlive || late != outlive || inTime != 1 {
		t.Errorf("%d verdicts are dropped, %d late, %d in time", dropped, late, inTime)
	}
}

// A grant that is withdrawn in the file of guests counts without a restart, and so do limits.
func TestGuestsAreFollowed(t *testing.T) {
	provider, err := capabilities.NewProvider(capabilities.Config{})
	if err != nil {
		t.Fatal(err)
	}
	const open, closed, limited = "hostNames: [example.com]", "hostNames: [example.org]", "hostNames: [example.com]\nlimits: {fuel: 300000000}"
	guests, err := policyserver.ReadGuests([]byte(open))
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t, func(c *policyserver.Config) {
		c.Capabilities, c.Guests, c.Interval = provider, guests, time.Hour
	})
	if err := s.apply(`{"asks": {"module": "registry://policy", "settings": {"is": "mode-net"}, "hostCapabilities": ["net/*"]}, "quiet": {"module": "registry://policy"}}`); err != nil {
		t.Fatal(err)
	}
	dir, generation := t.TempDir(), 0
	change := func(text string) {
		generation++
		replace(t, dir, generation, map[string]string{"guests.yaml": text})
	}
	change(open)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s.FollowGuests(ctx, filepath.Join(dir, "guests.yaml"), nil)
	refused := func() bool {
		return strings.Contains(s.review("/validate/asks").Result.Message, "may not look up example.com")
	}
	since := func(id string) time.Time {
		return s.Policies()[slices.IndexFunc(s.Policies(), func(p policyserver.Status) bool { return p.ID == id })].Since
	}
	if refused() {
		t.Fatal("it may not look up what is granted")
	}
	change(closed)
	until(t, refused)
	for _, wrong := range []string{"hostnames: [example.com]", "", " \n"} {
		before := s.log.String()
		change(wrong)
		until(t, func() bool {
			return strings.Count(s.log.String(), "guests are refused") > strings.Count(before, "guests are refused")
		})
		if !refused() {
			t.Errorf("the file %q counts", wrong)
		}
	}
	change(open)
	until(t, func() bool { return !refused() })

	// What cannot be fetched serves on with other limits, and not with grants that it has no more.
	first := since("asks")
	s.modules.put("registry://policy", nil)
	change(limited)
	until(t, func() bool { return s.Policies()[0].Err != nil })
	if refused() || !since("asks").Equal(first) {
		t.Errorf("with other limits it is %+v", s.Policies())
	}
	change(closed)
	until(t, func() bool { return s.Policies()[0].Digest == "" })
	if got := s.review("/validate/asks"); got.Allowed {
		t.Errorf("without its grants it answers %+v", got)
	}
}

// A change of guests loads those policies that it is about, and no others.
func TestGuestsOfOnePolicyChangeItAlone(t *testing.T) {
	s := newServer(t, nil)
	if err := s.apply(`{"a": {"module": "registry://policy"}, "b": {"module": "registry://policy"}}`); err != nil {
		t.Fatal(err)
	}
	before := s.Policies()
	for _, step := range []struct {
		name   string
		guests policyserver.Guests
		want   []bool
	}{
		{"nothing", policyserver.Guests{}, []bool{false, false}},
		{"limits of one", policyserver.Guests{Policies: map[string]policyserver.Guest{"b": {Limits: host.Limits{Fuel: 1 << 28}}}}, []bool{false, true}},
		{"grants of policies of namespaces, and the limits are gone", policyserver.Guests{NamespacedCapabilities: []string{"net/*"}}, []bool{false, true}},
		{"grants of policies without hostCapabilities", policyserver.Guests{DefaultCapabilities: []string{"net/*"}}, []bool{true, true}},
		{"what is confidential", policyserver.Guests{Guest: policyserver.Guest{Confidential: confidential.Rule{Fields: []string{"pin"}}}}, []bool{true, true}},
	} {
		if err := s.SetGuests(t.Context(), step.guests); err != nil {
			t.Fatal(err)
		}
		after := s.Policies()
		for i, want := range step.want {
			if got := !after[i].Since.Equal(before[i].Since); got != want {
				t.Errorf("%s: policy %s is loaded anew: %t", step.name, after[i].ID, got)
			}
		}
		before = after
	}
	if err := s.SetGuests(t.Context(), policyserver.Guests{NamespacedCapabilities: []string{"nets/*"}}); err == nil {
		t.Error("a grant of nothing that there is counts")
	}
}

func TestLimits(t *testing.T) {
	guests, err := policyserver.ReadGuests([]byte("limits: {fuel: 50000000}\npolicies:\n  thin: {limits: {memoryBytes: 65536}}"))
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t, func(c *policyserver.Config) { c.Guests = guests })
	err = s.apply(`{"loop": {"module": "registry://policy", "settings": {"is": "mode-loop"}}, "thin": {"module": "registry://policy"}}`)
	if err == nil || !strings.Contains(err.Error(), "thin") {
		t.Errorf("a policy that needs more memory than it may have: %v", err)
	}
	// It has 20 s, and ends by its instructions.
	start := time.Now()
	if got := s.review("/validate/loop"); got.Result == nil || got.Result.Message != "Policy execution interrupted because it exceeded the allowed execution time" {
		t.Errorf("answer is %+v after %s", got.Result, time.Since(start))
	}
	if !strings.Contains(s.log.String(), "out of fuel") {
		t.Errorf("log is %s", s.log)
	}
}

// Policies of all dialects are asked again and again, with a memory that is reset.
func TestEvaluationsBeginAnew(t *testing.T) {
	for dialect, verdict := range map[string]string{"wapc": `{"accepted":true}`, "wasi": `{"accepted":true,"valid":true}`, "opa": `[{"result":{"response":{"allowed":true}}}]`} {
		t.Run(dialect, func(t *testing.T) {
			s := newServer(t, nil)
			module, err := os.ReadFile("../internal/policies/testdata/verdict/" + dialect + ".wasm")
			if err != nil {
				t.Fatal(err)
			}
			s.modules.put("registry://it", bytes.Replace(module, bytes.Repeat([]byte("@"), 600), []byte(verdict+strings.Repeat(" ", 600-len(verdict))), 1))
			if err := s.apply(`{"p": {"module": "registry://it", "hostCapabilities": ["*"]}}`); err != nil {
				t.Fatal(err)
			}
			for range 5 {
				if got := s.review("/validate/p"); !got.Allowed {
					t.Fatalf("answer is %+v", got.Result)
				}
				if _, text := s.send(http.MethodPost, "/validate_raw/p", "application/json", `{"request":{"uid":"r"}}`); !strings.Contains(text, `"allowed":true`) {
					t.Fatalf("raw answer is %s", text)
				}
			}
		})
	}
}

func TestWorkersBoundEvaluations(t *testing.T) {
	s := newServer(t, func(c *policyserver.Config) { c.Workers = 1 })
	if err := s.apply(`{"loop": {"module": "registry://policy", "settings": {"is": "mode-loop"}, "timeoutEvalSeconds": 30}, "good": {"module": "registry://policy"}}`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/validate/loop", strings.NewReader(pod))
		r.Header.Set("Content-Type", "application/json")
		s.handler.ServeHTTP(httptest.NewRecorder(), r)
	})
	// As soon as the loop has the only worker, another policy waits until its time is over.
	until(t, func() bool {
		_, text := s.send(http.MethodPost, "/validate/good?timeout=100ms", "application/json", pod)
		return strings.Contains(text, "exceeded the allowed execution time")
	})
	cancel()
	wg.Wait()
	if got := s.review("/validate/good"); !got.Allowed {
		t.Errorf("with a worker that is free the answer is %+v", got.Result)
	}
}

func TestRawRequestsThatAPolicyDoesNotTake(t *testing.T) {
	s := newServer(t, nil)
	module, err := os.ReadFile("../../testdata/verdict/stellar.wasm")
	if err != nil {
		t.Fatal(err)
	}
	const verdict = `{"allowed":true}`
	module = bytes.Replace(module, bytes.Repeat([]byte("@"), 600), []byte(verdict+strings.Repeat(" ", 600-len(verdict))), 1)
	s.modules.put("registry://stellar", bytes.Replace(module, []byte("@LEN@RC@"), []byte{byte(len(verdict)), 0, 0, 0, 0, 0, 0, 0}, 1))
	if err := s.apply(`{"p": {"module": "registry://stellar"}}`); err != nil {
		t.Fatal(err)
	}
	if got := s.review("/validate/p"); !got.Allowed {
		t.Errorf("a plugin of another ABI answers %+v", got.Result)
	}
	if _, text := s.send(http.MethodPost, "/validate_raw/p", "application/json", `{"request":{}}`); !strings.Contains(text, "takes no raw requests") {
		t.Errorf("answer is %s", text)
	}
}
