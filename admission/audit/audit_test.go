package audit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/audit"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/loading"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
	"github.com/kubewasm/kubewasm/internal/testkit/listserver"
)

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// script is what the annotations of a Pod make the guest of testdata/scripted do, by the
// number of the Pod.
type script map[int]string

// podsOf returns n Pods in namespaces of ten. A change of one changes its label, and each has
// a status that names the change as well.
func podsOf(n int, says script) *listserver.Resource {
	return &listserver.Resource{GroupVersionResource: pods, Kind: "Pod", Namespaced: true, Status: true, N: n, Object: func(dst []byte, i, changes int) []byte {
		annotations := says[i]
		if annotations != "" && changes > 0 {
			annotations = `"warn":"mended"`
		}
		return fmt.Appendf(dst, `{"metadata":{%%s,"name":"pod-%04d","namespace":"ns-%d","uid":"uid-%d","generation":%d,"managedFields":[{"manager":"%d"}],"labels":{"change":"%d"},"annotations":{%s}},"spec":{},"status":{"phase":"p%d"}}`,
			i, i/10, i, changes, changes, changes, annotations, changes)
	}}
}

func rules(operation admissionregistrationv1.OperationType, group, resource string) []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{operation},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{resource}},
	}}
}

var newRuntime = sync.OnceValues(func() (*host.Runtime, error) { return host.NewRuntime(compiled.Config()) })

// scripted returns a policy of testdata/scripted that is asked about Pods, after change.
func scripted(t testing.TB, name string, change func(*admission.PluginConfig)) admission.Policy {
	t.Helper()
	file, err := guestbuild.Build(t.Context(), "../testdata/scripted")
	if err != nil {
		t.Fatal(err)
	}
	rt, err := newRuntime()
	if err != nil {
		t.Fatal(err)
	}
	cfg := admission.PluginConfig{
		Config:          host.Config{Name: name, Module: host.ModuleConfig{Source: host.File(file)}, GuestConfig: []byte(`{}`)},
		PolicyRules:     admission.PolicyRules{Match: admission.Match{Rules: rules("CREATE", "", "pods")}},
		AllowedToMutate: true,
	}
	if change != nil {
		change(&cfg)
	}
	p, err := admission.Load(t.Context(), rt, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// cluster serves s until the test ends.
func cluster(t testing.TB, s *listserver.Server) *rest.Config {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL, QPS: -1} // Without a limit.
}

func auditor(t testing.TB, config *rest.Config, change func(*audit.Config), policies ...admission.Policy) *audit.Auditor {
	t.Helper()
	cfg := audit.Config{Engine: admission.NewEngine(policies...), Client: config, QPS: 1e6, Burst: 1e6, Parallel: 2}
	if change != nil {
		change(&cfg)
	}
	a, err := audit.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

func run(t testing.TB, a *audit.Auditor) *audit.Result {
	t.Helper()
	result, err := a.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// lines are the findings in short.
func lines(r *audit.Result) []string {
	all := []string{}
	for _, f := range r.Findings {
		message, _, _ := strings.Cut(f.Message, "\n")
		all = append(all, fmt.Sprintf("%s %s/%s %s: %s", f.Outcome, f.Namespace, f.Name, f.Policy, message))
	}
	return all
}

// TestPatchesAfterWhichNothingIsDecoded holds that a patch which makes an object that no API server
// can decode is a failure, also one that its parser would read for minutes.
func TestPatchesAfterWhichNothingIsDecoded(t *testing.T) {
	s := listserver.New(podsOf(3, script{
		0: `"set-object":"{\"spec\": 5}"`, 1: `"set-object":"{\"spec\": {\"overhead\": {\"cpu\": \"1e-2147483647\"}}}"`, 2: `"set-object":"{\"spec\": {\"nodeName\": \"n\"}}"`,
	}))
	result := run(t, auditor(t, cluster(t, s), nil, scripted(t, "p", nil)))
	got := lines(result)
	for i, want := range []string{"error ns-0/pod-0000 p: the policy would ", "error ns-0/pod-0001 p: the policy would ", "warn ns-0/pod-0002 p: the policy would "} {
		if i >= len(got) || !strings.HasPrefix(got[i], want) || strings.HasPrefix(want, "error") != strings.Contains(got[i], "the API server could not decode the object: ") {
			t.Errorf("finding %d: got %q, want %s", i, got, want)
		}
	}
	if p := result.Policies[0]; p.Patched != 1 || p.Failed != 2 {
		t.Errorf("policy is %+v", p)
	}
}

func TestFindings(t *testing.T) {
	s := listserver.New(podsOf(230, script{
		3: `"deny":"no team"`, 14: `"deny":"no limits","code":"422"`, 25: `"panic":"oops"`, 36: `"trail":"x"`, 47: `"error":"no answer"`,
	}))
	result := run(t, auditor(t, cluster(t, s), nil, scripted(t, "first", func(c *admission.PluginConfig) { c.GuestConfig = []byte(`{"mark":"y"}`) })))
	want := []string{
		"fail ns-0/pod-0003 first: no team",
		"fail ns-1/pod-0014 first: no limits",
		`error ns-2/pod-0025 first: plugin "first": validate trapped: oops`,
		`warn ns-3/pod-0036 first: the policy would replace /metadata/annotations/trail`,
		`error ns-4/pod-0047 first: plugin "first": could not decide: no answer`,
	}
	got := lines(result)
	got[2] = strings.Split(got[2], " (")[0]
	if diff := cmp.Diff(want[:2], got[:2]); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	if len(got) > 3 && got[3] != want[3] {
		t.Errorf("a patch is shown as %q", got[3])
	}
	for i := range want {
		if i >= len(got) || !strings.HasPrefix(got[i], want[i][:min(len(want[i]), 45)]) {
			t.Errorf("finding %d is %q, want %q", i, got, want[i])
		}
	}
	if p := result.Policies[0]; p.Passed != 225 || p.Denied != 2 || p.Patched != 1 || p.Failed != 2 || p.Error != "" {
		t.Errorf("policy is %+v", p)
	}
	// One for each of api, apis and v1, and pages of 100 and of 500.
	if result.Objects != 230 || result.Asked != 230 || result.Requests != 5 {
		t.Errorf("%d objects, %d asked, %d requests", result.Objects, result.Asked, result.Requests)
	}
	if f := result.Findings[1]; f.Code != 422 || f.UID != "uid-14" || f.Mode != host.Enforce {
		t.Errorf("finding is %+v", f)
	}
	if result.Complete() {
		t.Error("a result with errors is complete")
	}
}

// TestRequest holds what policies see of an object.
func TestRequest(t *testing.T) {
	s := listserver.New(podsOf(2, script{0: `"echo":"request"`, 1: `"echo":"object"`}))
	result := run(t, auditor(t, cluster(t, s), nil, scripted(t, "p", nil)))
	want := []string{
		"fail ns-0/pod-0000 p: uid-0,CREATE,,v1,Pod,,v1,pods,,,v1,Pod,,v1,pods,,pod-0000,ns-0,true,kubewasm:audit,,system:authenticated,,false",
		`fail ns-0/pod-0001 p: {"apiVersion":"v1","kind":"Pod","metadata":{"name":"pod-0001","namespace":"ns-0","uid":"uid-1","labels":{"change":"0"},"annotations":{"echo":"object"}},"spec":{}}`,
	}
	if diff := cmp.Diff(want, lines(result)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

func TestIncremental(t *testing.T) {
	s := listserver.New(podsOf(1200, script{3: `"deny":"no team"`, 14: `"deny":"no limits"`}))
	config := cluster(t, s)
	a := auditor(t, config, nil, scripted(t, "p", nil))
	first := run(t, a)
	if first.Asked != 1200 || len(first.Findings) != 2 {
		t.Fatalf("%d asked, %q", first.Asked, lines(first))
	}
	s.Requests()
	for _, step := range []struct {
		name     string
		change   func()
		asked    int
		listed   bool
		findings []string
	}{
		{"nothing has changed", func() {}, 0, false, []string{"no team", "no limits"}},
		{"an object has changed", func() { s.Change("pods", 700) }, 1, false, []string{"no team", "no limits"}},
		{"another version of the same", func() { s.Touch("pods", 3) }, 0, false, []string{"no team", "no limits"}},
		{"an object is mended", func() { s.Change("pods", 3) }, 1, false, []string{"no limits"}},
		{"an object changes twice", func() { s.Change("pods", 5); s.Change("pods", 5) }, 1, false, []string{"no limits"}},
		{"an object is gone", func() { s.Delete("pods", 14) }, 0, false, []string{}},
		{"the past is forgotten", func() { s.Change("pods", 900); s.Compact() }, 1, true, []string{}},
		{"nothing since then", func() {}, 0, false, []string{}},
		{"the watch does not say that it is over", func() { s.Silent = true; s.Change("pods", 901) }, 1, false, []string{}},
		{"the watch tells of it late", func() { s.Silent, s.Late = false, time.Second; s.Change("pods", 902) }, 1, false, []string{}},
		{"the watch ends before it tells of it", func() { s.Late = time.Hour; s.Change("pods", 903) }, 1, true, []string{}},
		{"all is as before", func() { s.Late = 0 }, 0, false, []string{}},
	} {
		step.change()
		result := run(t, a)
		messages := []string{}
		for _, f := range result.Findings {
			messages = append(messages, f.Message)
		}
		requests := s.Requests()
		if diff := cmp.Diff(step.findings, messages); diff != "" || result.Asked != step.asked {
			t.Errorf("%s: %d asked, want %d; findings (-want +got):\n%s", step.name, result.Asked, step.asked, diff)
		}
		if listed := requests["GET /api/v1/pods"] > 1; listed != step.listed {
			t.Errorf("%s: listed is %v, want %v: %v", step.name, listed, step.listed, requests)
		}
	}
}

// TestPolicyChanges holds that an object is asked about again by what has changed, and by
// nothing else.
func TestPolicyChanges(t *testing.T) {
	s := listserver.New(podsOf(30, script{3: `"deny":"no team"`}))
	engine := admission.NewEngine(scripted(t, "stays", nil), scripted(t, "changes", nil))
	a := auditor(t, cluster(t, s), func(c *audit.Config) { c.Engine = engine })
	if result := run(t, a); result.Asked != 60 || result.Count(audit.Denied) != 2 {
		t.Fatalf("%d asked, %q", result.Asked, lines(result))
	}
	engine.Replace(scripted(t, "stays", nil), scripted(t, "changes", func(c *admission.PluginConfig) { c.GuestConfig = []byte(`{"warning":"w"}`) }))
	if result := run(t, a); result.Asked != 30 || result.Reused != 30 || result.Count(audit.Denied) != 2 {
		t.Errorf("with another configuration: %d asked, %d reused, %q", result.Asked, result.Reused, lines(result))
	}
	engine.Replace(scripted(t, "stays", func(c *admission.PluginConfig) { c.Mode = host.Monitor }))
	if result := run(t, a); result.Asked != 0 || len(result.Findings) != 1 || result.Findings[0].Mode != host.Monitor {
		t.Errorf("without a policy, and with another mode: %d asked, %+v", result.Asked, result.Findings)
	}
	engine.Replace(scripted(t, "stays", func(c *admission.PluginConfig) { c.Grants = []string{host.GrantClock} }))
	for range 2 {
		if result := run(t, a); result.Asked != 30 || len(result.Findings) != 1 {
			t.Errorf("with a clock: %d asked, %+v", result.Asked, result.Findings)
		}
	}
}

// TestTrapsAreAskedAgain holds that an object on which a policy has failed is asked about again
// without a list.
func TestTrapsAreAskedAgain(t *testing.T) {
	s := listserver.New(podsOf(200, script{3: `"panic":"oops"`}))
	a := auditor(t, cluster(t, s), nil, scripted(t, "p", nil))
	run(t, a)
	s.Requests()
	result := run(t, a)
	if requests := s.Requests(); result.Asked != 1 || result.Count(audit.Failed) != 1 || requests["GET /api/v1/pods"] > 1 || requests["GET /api/v1/namespaces/ns-0/pods/pod-0003"] != 1 {
		t.Errorf("%d asked, %q, requests %v", result.Asked, lines(result), requests)
	}
}

// TestPolicyThatAlwaysFails holds that a policy which fails on everything is reported once, and
// does not cost the time of each object.
func TestPolicyThatAlwaysFails(t *testing.T) {
	all := script{}
	for i := range 300 {
		all[i] = `"panic":"oops"`
	}
	s := listserver.New(podsOf(300, all))
	a := auditor(t, cluster(t, s), func(c *audit.Config) { c.Parallel = 1 }, scripted(t, "broken", nil))
	for range 2 {
		result := run(t, a)
		if p := result.Policies[0]; !strings.HasPrefix(p.Error, "it failed on each of 20 objects and was not asked about 280 more: ") || !strings.Contains(p.Error, "oops") || p.Failed != 0 {
			t.Errorf("policy is %+v", p)
		}
		if len(result.Findings) != 0 || result.Asked != 20 {
			t.Errorf("%d asked, %q", result.Asked, lines(result))
		}
	}
}

// TestPolicyThatFailsOnOneKind holds that a policy which fails on all objects of a kind is asked about
// those of others, and left alone sooner if it fails on those, too.
func TestPolicyThatFailsOnOneKind(t *testing.T) {
	all := script{}
	for i := range 30 {
		all[i] = `"panic":"oops"`
	}
	kind := func(resource, name string, scripts script) *listserver.Resource {
		r := *podsOf(30, scripts)
		r.GroupVersionResource, r.Kind = schema.GroupVersionResource{Version: "v1", Resource: resource}, name
		return &r
	}
	s := listserver.New(podsOf(30, all), kind("configmaps", "ConfigMap", nil), kind("services", "Service", all))
	a := auditor(t, cluster(t, s), func(c *audit.Config) { c.Parallel = 1 }, scripted(t, "broken", func(c *admission.PluginConfig) {
		c.Match.Rules = rules("*", "*", "*")
	}))
	for n, asked := range []int{20 + 30 + 3, 20 + 3} {
		result := run(t, a)
		if p := result.Policies[0]; result.Asked != asked || p.Passed != 30 || !strings.HasPrefix(p.Error, "it was not asked about 37 objects: ") {
			t.Errorf("run %d: %d asked, policy is %+v", n, result.Asked, p)
		}
	}
}

// budget is an account for a number of questions whether a call may begin, of which each call has two.
type budget struct{ questions atomic.Int64 }

func (b *budget) AccountOf(string) loading.Account { return b }
func (b *budget) Charge(int64)                     {}

func (b *budget) Err() error {
	if b.questions.Add(-1) < 0 {
		return loading.ErrQuota
	}
	return nil
}

func (*budget) Called(context.Context, host.CallEvent) {}
func (*budget) Built(context.Context, host.BuildEvent) {}
func (*budget) CacheHits(string, string, uint64)       {}
func (*budget) Refused(context.Context, string, error) {}
func (*budget) Restarted(string, bool)                 {}

// TestPolicyOverItsQuota holds that a quota that is used up is no finding about an object, which is asked
// about again.
func TestPolicyOverItsQuota(t *testing.T) {
	b := new(budget)
	a := auditor(t, cluster(t, listserver.New(podsOf(30, nil))), func(c *audit.Config) { c.Parallel = 1 }, scripted(t, "p", func(c *admission.PluginConfig) {
		c.Config.Observer = b
	}))
	b.questions.Store(20)
	result := run(t, a)
	if p := result.Policies[0]; !strings.Contains(p.Error, loading.ErrQuota.Error()) || len(result.Findings) != 0 || p.Passed >= 30 {
		t.Errorf("policy is %+v, findings %q", p, lines(result))
	}
	b.questions.Store(1000)
	result = run(t, a)
	if p := result.Policies[0]; p.Error != "" || len(result.Findings) != 0 || p.Passed != 30 {
		t.Errorf("with fuel: policy is %+v, findings %q", p, lines(result))
	}
}

// TestNamespacesThatCannotBeListed holds that the right to list namespaces is needed by policies
// that select them alone.
func TestNamespacesThatCannotBeListed(t *testing.T) {
	s := listserver.New(podsOf(3, nil))
	s.Fault = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/namespaces") {
			return false
		}
		listserver.Fail(w, http.StatusForbidden, metav1.StatusReasonForbidden, "namespaces is forbidden")
		return true
	}
	config := cluster(t, s)
	labels, err := audit.NewNamespaces(config)
	if err != nil {
		t.Fatal(err)
	}
	with := func(c *audit.Config) { c.Namespaces = labels }
	if result := run(t, auditor(t, config, with, scripted(t, "p", nil))); result.Asked != 3 {
		t.Errorf("%d asked", result.Asked)
	}
	selecting := scripted(t, "p", func(c *admission.PluginConfig) {
		c.Namespaces = labels.Labels
		c.Match.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	})
	if _, err := auditor(t, config, with, selecting).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "namespaces is forbidden") {
		t.Errorf("got %v", err)
	}
}

func TestSkippedPolicies(t *testing.T) {
	match := func(operation admissionregistrationv1.OperationType, group, resource string) func(*admission.PluginConfig) {
		return func(c *admission.PluginConfig) { c.Match.Rules = rules(operation, group, resource) }
	}
	unavailable, err := standIns.Unavailable("lost", admission.PolicyRules{}, false, os.ErrNotExist)
	if err != nil {
		t.Fatal(err)
	}
	events := &listserver.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "events"}, Kind: "Event", Namespaced: true}
	twins := &listserver.Resource{GroupVersionResource: schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}, Kind: "Event", Namespaced: true}
	usage := &listserver.Resource{GroupVersionResource: schema.GroupVersionResource{Group: "metrics.k8s.io", Version: "v1", Resource: "pods"}, Kind: "PodMetrics", Verbs: []string{"get", "list"}}
	reports := &listserver.Resource{GroupVersionResource: schema.GroupVersionResource{Group: "openreports.io", Version: "v1alpha1", Resource: "reports"}, Kind: "Report", Namespaced: true}
	s := listserver.New(podsOf(1, nil), events, twins, usage, reports)
	a := auditor(t, cluster(t, s), nil,
		scripted(t, "all", match("*", "*", "*")), scripted(t, "updates", match("UPDATE", "", "pods")), scripted(t, "deletes", match("DELETE", "", "pods")),
		scripted(t, "subresource", match("CREATE", "", "pods/eviction")), scripted(t, "absent", match("CREATE", "apps", "deployments")),
		scripted(t, "nothing", func(c *admission.PluginConfig) { c.Match.Rules = nil }), standIns.Disabled(scripted(t, "disabled", nil)), unavailable)
	got := map[string]string{}
	for _, p := range run(t, a).Policies {
		got[p.Name] = p.Skipped + p.Error
	}
	want := map[string]string{
		"all": "", "updates": "its rules name no CREATE: it decides about changes, not about the state of objects",
		"deletes":     "its rules name no CREATE: it decides about changes, not about the state of objects",
		"subresource": "its rules name only subresources, which are not stored", "absent": "the cluster has no resource named by its rules",
		"nothing": "neither its match nor its module names resources", "disabled": "it is disabled", "lost": "file does not exist",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
	requests := s.Requests()
	for path, n := range map[string]int{"/api/v1/pods": 1, "/api/v1/events": 1, "/apis/events.k8s.io/v1/events": 0, "/apis/metrics.k8s.io/v1/pods": 0, "/apis/openreports.io/v1alpha1/reports": 0} {
		if requests["GET "+path] != n {
			t.Errorf("%d lists of %s, want %d", requests["GET "+path], path, n)
		}
	}
}

func TestNamespaceSelector(t *testing.T) {
	namespaces := &listserver.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, Kind: "Namespace", N: 3, Object: func(dst []byte, i, changes int) []byte {
		return fmt.Appendf(dst, `{"metadata":{%%s,"name":"ns-%d","labels":{"audited":"%v"}}}`, i, i == 0 || i == 1 && changes > 0)
	}}
	deny := script{}
	for i := range 30 {
		deny[i] = `"deny":"no"`
	}
	s := listserver.New(podsOf(30, deny), namespaces)
	config := cluster(t, s)
	labels, err := audit.NewNamespaces(config)
	if err != nil {
		t.Fatal(err)
	}
	a := auditor(t, config, func(c *audit.Config) { c.Namespaces = labels }, scripted(t, "p", func(c *admission.PluginConfig) {
		c.Namespaces = labels.Labels
		c.Match.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"audited": "true"}}
	}))
	if result := run(t, a); result.Count(audit.Denied) != 10 || result.Policies[0].Passed != 0 {
		t.Errorf("%q", lines(result))
	}
	s.Change("namespaces", 1)
	if result := run(t, a); result.Count(audit.Denied) != 20 || result.Asked != 10 {
		t.Errorf("%d asked, %q", result.Asked, lines(result))
	}
	if result := run(t, a); result.Count(audit.Denied) != 20 || result.Asked != 0 {
		t.Errorf("%d asked, %q", result.Asked, lines(result))
	}
}

func TestSkippedNamespaces(t *testing.T) {
	s := listserver.New(podsOf(30, script{3: `"deny":"a"`, 13: `"deny":"b"`, 23: `"deny":"c"`}))
	result := run(t, auditor(t, cluster(t, s), func(c *audit.Config) { c.SkipNamespaces = []string{"ns-1"} }, scripted(t, "p", nil)))
	if diff := cmp.Diff([]string{"fail ns-0/pod-0003 p: a", "fail ns-2/pod-0023 p: c"}, lines(result)); diff != "" || result.Objects != 20 {
		t.Errorf("%d objects, findings (-want +got):\n%s", result.Objects, diff)
	}
}

// TestServerTrouble holds that a list survives what an API server does to long ones and to
// clients in a hurry.
func TestServerTrouble(t *testing.T) {
	deny := script{150: `"deny":"far"`, 1100: `"deny":"further"`}
	for _, test := range []struct {
		name  string
		fault func(n int64, w http.ResponseWriter, r *http.Request) bool
		err   string
	}{
		{"the token has expired, and there is another", func(n int64, w http.ResponseWriter, r *http.Request) bool {
			if n != 3 {
				return false
			}
			listserver.FailOn(w, http.StatusGone, metav1.StatusReasonExpired, "too old", strings.Split(r.URL.Query().Get("continue"), "@")[0]+"@1001")
			return true
		}, ""},
		{"the token has expired, and there is none", func(n int64, w http.ResponseWriter, _ *http.Request) bool {
			if n != 3 {
				return false
			}
			listserver.Fail(w, http.StatusGone, metav1.StatusReasonExpired, "too old")
			return true
		}, ""},
		{"the token expires again and again", func(_ int64, w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("continue") == "" {
				return false
			}
			listserver.Fail(w, http.StatusGone, metav1.StatusReasonExpired, "too old")
			return true
		}, "pods: list: too old"},
		{"too many requests, with a time", func(n int64, w http.ResponseWriter, _ *http.Request) bool {
			if n != 2 {
				return false
			}
			w.Header().Set("Retry-After", "1")
			listserver.Fail(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "slow down")
			return true
		}, ""},
		{"too many requests, without a time", func(n int64, w http.ResponseWriter, _ *http.Request) bool {
			if n != 2 {
				return false
			}
			listserver.Fail(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "slow down")
			return true
		}, ""},
		{"no rights", func(_ int64, w http.ResponseWriter, _ *http.Request) bool {
			listserver.Fail(w, http.StatusForbidden, metav1.StatusReasonForbidden, "pods is forbidden")
			return true
		}, "pods: list: pods is forbidden"},
		{"no JSON", func(_ int64, w http.ResponseWriter, _ *http.Request) bool {
			_, _ = w.Write([]byte(`{"items":[{"metadata":`))
			return true
		}, "pods: list: the response of 22 bytes is not JSON"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := listserver.New(podsOf(1200, deny))
			var n atomic.Int64
			s.Fault = func(w http.ResponseWriter, r *http.Request) bool {
				return strings.HasSuffix(r.URL.Path, "/pods") && test.fault(n.Add(1), w, r)
			}
			result := run(t, auditor(t, cluster(t, s), nil, scripted(t, "p", nil)))
			if test.err != "" {
				if len(result.Errors) != 1 || result.Errors[0] != test.err || result.Complete() {
					t.Errorf("errors are %q, want %q", result.Errors, test.err)
				}
				return
			}
			if diff := cmp.Diff([]string{"fail ns-110/pod-1100 p: further", "fail ns-15/pod-0150 p: far"}, lines(result)); diff != "" || result.Objects != 1200 || len(result.Errors) != 0 {
				t.Errorf("%d objects, errors %q, findings (-want +got):\n%s", result.Objects, result.Errors, diff)
			}
		})
	}
}

// TestStateFile holds that another process goes on where one has ended, and that what a crash
// leaves of the file does.
func TestStateFile(t *testing.T) {
	s := listserver.New(podsOf(400, script{3: `"deny":"no team"`, 14: `"panic":"oops"`}))
	config := cluster(t, s)
	file := filepath.Join(t.TempDir(), "state")
	policy := scripted(t, "p", nil)
	with := func(file string) *audit.Result {
		t.Helper()
		a, err := audit.New(audit.Config{Engine: admission.NewEngine(policy), Client: config, QPS: 1e6, Burst: 1e6, StateFile: file})
		if err != nil {
			t.Fatal(err)
		}
		result := run(t, a)
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		return result
	}
	first := with(file)
	if second := with(file); second.Asked != 1 || !cmp.Equal(lines(first), lines(second)) || !second.Findings[0].Since.Equal(first.Findings[0].Since) {
		t.Errorf("%d asked, %q", second.Asked, lines(second))
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < len(whole); n += 1 + len(whole)/7 {
		for _, end := range []string{"", "\x00\x01\x02"} {
			cut := filepath.Join(t.TempDir(), "cut")
			if err := os.WriteFile(cut, append(slices.Clone(whole[:n]), end...), 0o600); err != nil {
				t.Fatal(err)
			}
			if n == 0 && end != "" {
				continue // It is a file of something else.
			}
			if got := with(cut); !cmp.Equal(lines(first), lines(got)) || got.Asked == 0 {
				t.Errorf("after %d of %d bytes: %d asked, %q", n, len(whole), got.Asked, lines(got))
			}
		}
	}
	// What has changed often does not make the file grow for ever.
	for range 12 {
		for i := range 400 {
			s.Change("pods", i)
		}
		with(file)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > 5*int64(len(whole)) {
		t.Errorf("the file has %d bytes after many changes, %d before", info.Size(), len(whole))
	}
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte("plugins: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := audit.New(audit.Config{Engine: admission.NewEngine(), StateFile: other}); err == nil || !strings.Contains(err.Error(), "is not the state of an audit") {
		t.Errorf("a file of something else: %v", err)
	}
}

func TestConfigMistakes(t *testing.T) {
	_, err := audit.New(audit.Config{QPS: -1, SkipNamespaces: []string{"Shop"}})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"engine is missing", "qps -1", `skipped namespace "Shop"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, without %q", err, want)
		}
	}
}

// TestCancel holds that a run that is ended is no result, and that the next one goes on.
func TestCancel(t *testing.T) {
	s := listserver.New(podsOf(1200, script{3: `"deny":"no team"`}))
	var stop atomic.Pointer[func()]
	s.Fault = func(_ http.ResponseWriter, r *http.Request) bool {
		if end := stop.Load(); end != nil && r.URL.Query().Get("continue") != "" {
			(*end)()
		}
		return false
	}
	a := auditor(t, cluster(t, s), nil, scripted(t, "p", nil))
	ctx, cancel := contextOf(t)
	stop.Store(&cancel)
	if _, err := a.Run(ctx); err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Errorf("error is %v", err)
	}
	stop.Store(nil)
	if result := run(t, a); result.Reused != 100 || result.Asked != 1100 || len(result.Findings) != 1 {
		t.Errorf("%d reused, %d asked, %q", result.Reused, result.Asked, lines(result))
	}
}

func contextOf(t *testing.T) (context.Context, func()) {
	return context.WithCancel(t.Context())
}
