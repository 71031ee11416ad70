package admission_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	arv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/json/jsonpatch"
)

// script returns a plugin that does what the annotations say.
func script(t testing.TB, name, guestConfig string, change func(*admission.PluginConfig)) *admission.Plugin {
	t.Helper()
	cfg := config(t, name, scripted)
	cfg.AllowedToMutate = true
	cfg.GuestConfig = []byte(guestConfig)
	if change != nil {
		change(&cfg)
	}
	return load(t, cfg)
}

// patched returns the object of a request after the patch of an answer.
func patched(t testing.TB, r *admissionv1.AdmissionRequest, response *admissionv1.AdmissionResponse) map[string]any {
	t.Helper()
	if !response.Allowed || response.PatchType == nil || *response.PatchType != admissionv1.PatchTypeJSONPatch {
		t.Fatalf("answer is %+v, %+v", response, response.Result)
	}
	out, err := jsonpatch.Apply(r.Object.Raw, response.Patch)
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(out, &object); err != nil {
		t.Fatal(err)
	}
	return object
}

func annotation(object map[string]any, key string) any {
	return object["metadata"].(map[string]any)["annotations"].(map[string]any)[key]
}

func TestMutatorsRunInOrderEachOnWhatTheOthersLeft(t *testing.T) {
	e := admission.NewEngine(
		script(t, "last", `{"mark":"c"}`, func(c *admission.PluginConfig) { c.Order = 7 }),
		script(t, "first", `{"mark":"a"}`, func(c *admission.PluginConfig) { c.Order = -1 }),
		script(t, "second", `{"mark":"b"}`, func(c *admission.PluginConfig) { c.Order = 7; c.Order = 0 }),
	)
	r := request(t, "trail", ">", "label", "team=shop")
	object := patched(t, r, e.Mutate(t.Context(), r))
	if got := annotation(object, "trail"); got != ">abc" {
		t.Errorf("trail is %v", got)
	}
	if diff := cmp.Diff(map[string]any{"team": "shop"}, object["metadata"].(map[string]any)["labels"]); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}

func TestMutation(t *testing.T) {
	tests := []struct {
		name   string
		script []string
		change func(*admission.PluginConfig)
		want   *admissionv1.AdmissionResponse // Without the patch.
		patch  string
	}{
		{"nothing to change", nil, nil, allowed(), ""},
		{"a patch", []string{"label", "a=b"}, nil, allowed(), `[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`},
		{"a whole object, of which the host finds what differs", []string{"set-object", `{"metadata":{"name":"db"}}`}, nil, allowed(), `[{"op":"remove","path":"/metadata/annotations"},{"op":"replace","path":"/metadata/name","value":"db"}]`},
		{"a patch counts only if the request is allowed", []string{"label", "a=b", "deny", "no"}, nil, denied(403, "Forbidden", "no"), ""},
		{"warnings of a mutator", []string{"warn", "careful"}, nil, &admissionv1.AdmissionResponse{UID: "uid-1", Allowed: true, Warnings: []string{"careful"}}, ""},
		{"a patch that cannot be made", []string{"bad-patch", ""}, nil, denied(500, "InternalError", `plugin "p": could not decide: patch: metadata.name: is string, want object`), ""},
		{"a plugin that may not mutate", []string{"label", "a=b"}, func(c *admission.PluginConfig) { c.AllowedToMutate = false }, denied(500, "InternalError", `plugin "p": changes the object, which allowedToMutate does not allow`), ""},
		{"a plugin that only monitors", []string{"label", "a=b", "deny", "no", "warn", "careful"}, func(c *admission.PluginConfig) { c.Mode = host.Monitor }, &admissionv1.AdmissionResponse{UID: "uid-1", Allowed: true, Warnings: []string{"careful"}}, ""},
		{"a failure that is ignored", []string{"panic", "oops"}, func(c *admission.PluginConfig) { c.FailurePolicy = host.Ignore }, allowed(), ""},
		{"an object as protobuf", []string{"proto", ""}, nil, allowed(), `[{"op":"replace","path":"/metadata/annotations/proto","value":"name web, old 0"}]`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			e := admission.NewEngine(script(t, "p", "", test.change))
			got := e.Mutate(t.Context(), request(t, test.script...))
			if string(got.Patch) != test.patch || (got.PatchType != nil) != (test.patch != "") {
				t.Errorf("patch is %s, want %s", got.Patch, test.patch)
			}
			got.Patch, got.PatchType = nil, nil
			if test.name == "a failure that is ignored" {
				if len(got.Warnings) != 1 || !strings.HasSuffix(got.Warnings[0], "(ignored)") {
					t.Errorf("warnings are %q", got.Warnings)
				}
				got.Warnings = nil
			}
			compare(t, test.want, got)
		})
	}
	t.Run("a request without an object", func(t *testing.T) {
		r := request(t)
		r.OldObject, r.Object.Raw, r.Operation = r.Object, nil, admissionv1.Delete
		compare(t, allowed(), admission.NewEngine(script(t, "p", "", nil)).Mutate(t.Context(), r))
	})
	t.Run("a patch is idempotent", func(t *testing.T) {
		e := admission.NewEngine(script(t, "p", "", nil))
		r := request(t, "label", "a=b")
		object, err := jsonpatch.Apply(r.Object.Raw, e.Mutate(t.Context(), r).Patch)
		if err != nil {
			t.Fatal(err)
		}
		compare(t, allowed(), e.Mutate(t.Context(), requestOf(string(object))))
	})
}

func TestGuestsThatMutateAgainstTheRules(t *testing.T) {
	cfg := config(t, "rulebreaker", mutant)
	cfg.AllowedToMutate = true
	e := admission.NewEngine(load(t, cfg))
	tests := []struct{ object, want string }{
		{`{"n":"0"}`, ""},
		{`{"n":"1"}`, "patch: patch is not valid JSON"},
		{`{"n":"2"}`, "patch: operations[0]: remove /nowhere: no such value"},
		{`{"n":"3"}`, "patch: leaves no object"},
		{`{"n":"4"}`, "the mutated object is not a JSON object"},
		{`{"n":"5"}`, "mutate trapped: call k8s.io/admission.patch: bytes [65530, 65630) are out of bounds of the guest's memory of 65536 bytes"},
	}
	for _, test := range tests {
		t.Run(test.object, func(t *testing.T) {
			want := allowed()
			if test.want != "" {
				want = denied(500, "InternalError", `plugin "rulebreaker": `+test.want)
			}
			compare(t, want, e.Mutate(t.Context(), requestOf(test.object)))
		})
	}
	t.Run("a change in validate", func(t *testing.T) {
		compare(t, denied(500, "InternalError", `plugin "rulebreaker": validate trapped: call k8s.io/admission.patch: only mutate and convert change the object`), e.Validate(t.Context(), requestOf(`{"n":"6"}`)))
	})
	t.Run("a change of nothing", func(t *testing.T) {
		r := requestOf("")
		r.Object.Raw = nil
		compare(t, denied(500, "InternalError", `plugin "rulebreaker": changes the object of a request without an object`), e.Mutate(t.Context(), r))
	})
}

// A request in a version that the rules of a policy do not name does not pass it unseen.
func TestMatchOfOtherVersions(t *testing.T) {
	request := func(resource, version, group string, change ...func(*admissionv1.AdmissionRequest)) *admissionv1.AdmissionRequest {
		r := requestOf(`{"metadata":{"labels":{"app":"web"}}}`)
		r.Resource = metav1.GroupVersionResource{Group: group, Version: version, Resource: resource}
		for _, c := range change {
			c(r)
		}
		return r
	}
	hpa := func(version string, change ...func(*admissionv1.AdmissionRequest)) *admissionv1.AdmissionRequest {
		return request("horizontalpodautoscalers", version, "autoscaling", change...)
	}
	rules := func(operations, group, versions, resources string) admission.Match {
		r := rule(operations, group, "", resources)
		r.APIVersions = strings.Split(versions, ",")
		return admission.Match{Rules: []arv1.RuleWithOperations{r}}
	}
	v2 := rules("CREATE,UPDATE", "autoscaling", "v2", "horizontalpodautoscalers")
	with := func(m admission.Match, change func(*admission.Match)) admission.Match {
		change(&m)
		return m
	}
	const refused = `policy "p": match: the request is for `
	const advice = ": name the same versions in the webhook configuration, and the API server converts"
	for _, test := range []struct {
		name    string
		match   admission.Match
		request *admissionv1.AdmissionRequest
		// want is the message of a failure, "asked" or "".
		want string
	}{
		{"the version that the rules name", v2, hpa("v2"), "asked"},
		{"another version", v2, hpa("v1"), refused + "horizontalpodautoscalers of autoscaling/v1, and the rules name autoscaling/v2" + advice},
		{"the version into which the API server has converted", v2, hpa("v2", func(r *admissionv1.AdmissionRequest) {
			r.RequestResource = &metav1.GroupVersionResource{Group: "autoscaling", Version: "v1", Resource: "horizontalpodautoscalers"}
		}), "asked"},
		{"another version, into which the API server has converted", v2, hpa("v1", func(r *admissionv1.AdmissionRequest) {
			r.RequestResource = &metav1.GroupVersionResource{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"}
		}), refused + "horizontalpodautoscalers of autoscaling/v1, and the rules name autoscaling/v2" + advice},
		{"another version, and both are named", rules("CREATE", "autoscaling", "v2,v1", "horizontalpodautoscalers"), hpa("v1"), "asked"},
		{"another version, and all are named", rules("CREATE", "autoscaling", "*", "horizontalpodautoscalers"), hpa("v1"), "asked"},
		{"another version, to match exactly", with(v2, func(m *admission.Match) { m.MatchPolicy = arv1.Exact }), hpa("v1"), ""},
		{"another version, to match equivalents", with(v2, func(m *admission.Match) { m.MatchPolicy = arv1.Equivalent }), hpa("v1"), refused + "horizontalpodautoscalers of autoscaling/v1, and the rules name autoscaling/v2" + advice},
		{"another version of another operation", v2, hpa("v1", func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Delete }), ""},
		{"another version of a subresource", rules("UPDATE", "apps", "v1,v1beta2", "deployments/scale"), request("deployments", "v2", "apps", func(r *admissionv1.AdmissionRequest) {
			r.SubResource, r.Operation = "scale", admissionv1.Update
		}), refused + "deployments/scale of apps/v2, and the rules name apps/v1, apps/v1beta2" + advice},
		{"another version of a subresource that is not named", v2, hpa("v1", func(r *admissionv1.AdmissionRequest) { r.SubResource = "status" }), ""},
		{"another version of an object that the selector leaves out", with(v2, func(m *admission.Match) {
			m.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}
		}), hpa("v1"), ""},
		{"another version of an object that the selector chooses", with(v2, func(m *admission.Match) {
			m.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
		}), hpa("v1"), refused + "horizontalpodautoscalers of autoscaling/v1, and the rules name autoscaling/v2" + advice},
		{"another group with the same objects", rules("*", "", "v1", "events"), request("events", "v1", "events.k8s.io"), refused + "events of events.k8s.io/v1, and the rules name v1" + advice},
		{"another group with the same objects, in the other direction", rules("*", "events.k8s.io", "*", "events"), request("events", "v1", ""), refused + "events of v1, and the rules name events.k8s.io/*" + advice},
		{"a group that served the same objects in old minors", rules("*", "extensions", "v1beta1", "ingresses"), request("ingresses", "v1", "networking.k8s.io"), refused + "ingresses of networking.k8s.io/v1, and the rules name extensions/v1beta1" + advice},
		{"another group with other objects of the same name", rules("*", "", "v1", "pods"), request("pods", "v1beta1", "metrics.k8s.io"), ""},
		{"one rule of two names the version", admission.Match{Rules: append(v2.Rules[:1:1], rules("*", "autoscaling", "v1", "*").Rules...)}, hpa("v1"), "asked"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := script(t, "p", `{"warning":"asked"}`, func(c *admission.PluginConfig) { c.Match = test.match })
			got := admission.NewEngine(p).Validate(t.Context(), test.request)
			switch test.want {
			case "asked", "":
				if asked := len(got.Warnings) == 1; asked != (test.want == "asked") || !got.Allowed {
					t.Errorf("asked is %t, answer %+v", asked, got)
				}
			default:
				compare(t, denied(500, "InternalError", test.want), got)
			}
			e := admission.Evaluate(t.Context(), p, test.request, false)
			if err := fmt.Sprint(e.Err); strings.HasPrefix(test.want, refused) != (err == test.want) || e.Unmatched != (test.want == "") {
				t.Errorf("evaluation is %+v", e)
			}
		})
	}
	t.Run("the failure policy decides", func(t *testing.T) {
		p := script(t, "p", "", func(c *admission.PluginConfig) { c.Match, c.FailurePolicy = v2, host.Ignore })
		got := admission.NewEngine(p).Validate(t.Context(), hpa("v1"))
		if !got.Allowed || len(got.Warnings) != 1 || !strings.HasPrefix(got.Warnings[0], refused) || !strings.HasSuffix(got.Warnings[0], "(ignored)") {
			t.Errorf("answer is %+v", got)
		}
	})
	t.Run("a policy that could not be loaded fails on other versions too", func(t *testing.T) {
		p, err := standIns.Unavailable("p", admission.PolicyRules{Match: v2}, false, errors.New("no module"))
		if err != nil {
			t.Fatal(err)
		}
		if got := admission.NewEngine(p).Validate(t.Context(), hpa("v1")); got.Allowed {
			t.Errorf("answer is %+v", got)
		}
	})
	t.Run("mistakes", func(t *testing.T) {
		m := admission.Match{MatchPolicy: "Similar", Rules: rules("*", "*", "v1", "pods").Rules}
		err := (&admission.PolicyRules{Match: m}).Check()
		want := `match.matchPolicy is "Similar", want Equivalent or Exact` + "\n" + `match.rules[0] has some versions of all groups: name the groups, or all versions, or set matchPolicy: Exact`
		if err == nil || err.Error() != want {
			t.Errorf("error is %v\nwant %s", err, want)
		}
		m.MatchPolicy = arv1.Exact
		if err := (&admission.PolicyRules{Match: m}).Check(); err != nil {
			t.Error(err)
		}
	})
}

func TestMatch(t *testing.T) {
	rule := func(ops []arv1.OperationType, groups, versions, resources string) arv1.RuleWithOperations {
		return arv1.RuleWithOperations{Operations: ops, Rule: arv1.Rule{
			APIGroups: strings.Split(groups, ","), APIVersions: strings.Split(versions, ","), Resources: strings.Split(resources, ","),
		}}
	}
	any := []arv1.OperationType{"*"}
	selector := func(s string) *metav1.LabelSelector {
		parsed, err := metav1.ParseToLabelSelector(s)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	object := func(labels string) *admissionv1.AdmissionRequest {
		return requestOf(`{"metadata":{"labels":` + labels + `}}`)
	}
	tests := []struct {
		name    string
		match   admission.Match
		request *admissionv1.AdmissionRequest
		want    bool
	}{
		{"no rules match everything", admission.Match{}, object(`{}`), true},
		{"a rule that fits", admission.Match{Rules: []arv1.RuleWithOperations{rule([]arv1.OperationType{"CREATE"}, "", "v1", "pods")}}, object(`{}`), true},
		{"another operation", admission.Match{Rules: []arv1.RuleWithOperations{rule([]arv1.OperationType{"UPDATE", "DELETE"}, "", "v1", "pods")}}, object(`{}`), false},
		{"one rule of two fits", admission.Match{Rules: []arv1.RuleWithOperations{rule(any, "apps", "*", "*"), rule(any, "*", "*", "pods")}}, object(`{}`), true},
		{"labels of the object", admission.Match{ObjectSelector: selector("app in (web,db)")}, object(`{"app":"db"}`), true},
		{"other labels", admission.Match{ObjectSelector: selector("app=web")}, object(`{"app":"db"}`), false},
		{"labels that must not be there", admission.Match{ObjectSelector: selector("!app")}, object(`{"app":"db"}`), false},
		{"no object has no labels", admission.Match{ObjectSelector: selector("!app")}, func() *admissionv1.AdmissionRequest { r := object(`{}`); r.Object.Raw = nil; return r }(), false},
		{"an object without metadata has no labels", admission.Match{ObjectSelector: selector("!app")}, requestOf(`{"kind":"PodExecOptions","command":["sh"]}`), false},
		{"an old object without metadata", admission.Match{ObjectSelector: selector("!app")}, func() *admissionv1.AdmissionRequest {
			r := requestOf(`{"command":["sh"]}`)
			r.OldObject.Raw = r.Object.Raw
			return r
		}(), false},
		{"an object with empty metadata", admission.Match{ObjectSelector: selector("!app")}, requestOf(`{"metadata":{}}`), true},
		{"labels of the old object", admission.Match{ObjectSelector: selector("app=web")}, func() *admissionv1.AdmissionRequest {
			r := object(`{}`)
			r.OldObject.Raw = object(`{"app":"web"}`).Object.Raw
			return r
		}(), true},
		{"labels of the namespace", admission.Match{NamespaceSelector: selector("env=shop")}, object(`{}`), true},
		{"other labels of the namespace", admission.Match{NamespaceSelector: selector("env notin (shop)")}, object(`{}`), false},
		{"objects without a namespace", admission.Match{NamespaceSelector: selector("env notin (shop)")}, func() *admissionv1.AdmissionRequest { r := object(`{}`); r.Namespace = ""; return r }(), true},
		{"a new namespace has its own labels", admission.Match{NamespaceSelector: selector("env=new")}, func() *admissionv1.AdmissionRequest {
			r := object(`{"env":"new"}`)
			r.Resource.Resource, r.Kind.Kind, r.Namespace = "namespaces", "Namespace", "web"
			return r
		}(), true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			e := admission.NewEngine(script(t, "p", `{"warning":"asked"}`, func(c *admission.PluginConfig) {
				c.Match = test.match
				c.Namespaces = func(_ context.Context, name string) (map[string]string, error) {
					return map[string]string{"env": name}, nil
				}
			}))
			got := e.Validate(t.Context(), test.request)
			if asked := len(got.Warnings) == 1; asked != test.want || !got.Allowed {
				t.Errorf("asked is %t, answer %+v", asked, got)
			}
		})
	}
	t.Run("labels that cannot be had are a failure", func(t *testing.T) {
		e := admission.NewEngine(script(t, "p", "", func(c *admission.PluginConfig) {
			c.Match.NamespaceSelector = selector("a=b")
			c.Namespaces = func(context.Context, string) (map[string]string, error) { return nil, errors.New("no cache") }
		}))
		compare(t, denied(500, "InternalError", `policy "p": match: labels of namespace "shop": no cache`), e.Validate(t.Context(), object(`{}`)))
	})
}

// decisions is an observer that keeps what it is told.
type decisions struct {
	mu   sync.Mutex
	list []admission.Decision
}

func (d *decisions) Decided(_ context.Context, decision admission.Decision) {
	d.mu.Lock()
	defer d.mu.Unlock()
	decision.Duration = 0
	if decision.Err != nil {
		decision.Err = nil
	}
	d.list = append(d.list, decision)
}

func TestMonitorAllowsAndTells(t *testing.T) {
	var log strings.Builder
	seen := &decisions{}
	e := admission.NewEngine(script(t, "trial", "", func(c *admission.PluginConfig) {
		c.Mode, c.PolicyRules.Observer, c.Logger = host.Monitor, seen, slog.New(slog.NewTextHandler(&log, nil))
	}))
	want := allowed()
	want.Warnings = []string{"w"}
	compare(t, want, e.Validate(t.Context(), request(t, "deny", "not yet", "warn", "w")))
	compare(t, allowed(), e.Validate(t.Context(), request(t, "error", "no data")))
	compare(t, allowed(), e.Mutate(t.Context(), request(t, "label", "a=b")))
	monitor := admission.Decision{Policy: "trial", Mode: host.Monitor}
	deny, fail, change := monitor, monitor, monitor
	deny.Verdict, fail.Verdict, change.Verdict = admission.Denied, admission.Failed, admission.Allowed
	change.Mutating, change.Patched = true, true
	if diff := cmp.Diff([]admission.Decision{deny, fail, change}, seen.list); diff != "" {
		t.Errorf("decisions (-want +got):\n%s", diff)
	}
	for _, want := range []string{"policy would have denied the request", `message="not yet"`, "policy would have failed", "policy would have changed the object"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log has no %s:\n%s", want, log.String())
		}
	}
	t.Run("a whole object is logged as what it changes", func(t *testing.T) {
		log.Reset()
		compare(t, allowed(), e.Mutate(t.Context(), request(t, "set-object", `{"metadata":{"name":"db"}}`)))
		if want := `patch="[{\"op\":\"remove\",\"path\":\"/metadata/annotations\"},`; !strings.Contains(log.String(), want) {
			t.Errorf("log has no %s:\n%s", want, log.String())
		}
	})
	t.Run("labels of a namespace that cannot be had", func(t *testing.T) {
		log.Reset()
		seen := &decisions{}
		e := admission.NewEngine(script(t, "trial", "", func(c *admission.PluginConfig) {
			c.Mode, c.PolicyRules.Observer, c.Logger = host.Monitor, seen, slog.New(slog.NewTextHandler(&log, nil))
			c.Match.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
			c.Namespaces = func(context.Context, string) (map[string]string, error) { return nil, errors.New("no cache") }
		}))
		compare(t, allowed(), e.Validate(t.Context(), request(t)))
		if diff := cmp.Diff([]admission.Decision{fail}, seen.list); diff != "" || !strings.Contains(log.String(), "no cache") {
			t.Errorf("decisions (-want +got):\n%s\nlog: %s", diff, log.String())
		}
	})
	t.Run("a group", func(t *testing.T) {
		log.Reset()
		member := config(t, "m", memberGuest)
		member.GuestConfig, member.Logger = []byte(`{"name":"m"}`), slog.New(slog.NewTextHandler(&log, nil))
		g, err := admission.NewGroup(admission.GroupConfig{
			Name: "release", Message: "not fit for release", Expression: "m()", Members: map[string]*admission.Plugin{"m": load(t, member)},
			PolicyRules: admission.PolicyRules{Mode: host.Monitor},
		})
		if err != nil {
			t.Fatal(err)
		}
		compare(t, allowed(), admission.NewEngine(g).Validate(t.Context(), request(t)))
		if want := `msg="policy would have denied the request" policy=release`; !strings.Contains(log.String(), want) {
			t.Errorf("log has no %s:\n%s", want, log.String())
		}
	})
}

// Each of three validators waits until all of them are being asked.
func TestValidatorsAreAskedAtTheSameTime(t *testing.T) {
	var asked sync.WaitGroup
	asked.Add(3)
	var list []admission.Policy
	for _, name := range []string{"a", "b", "c"} {
		list = append(list, script(t, name, "", func(c *admission.PluginConfig) {
			c.Match.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "x", Operator: metav1.LabelSelectorOpDoesNotExist}}}
			c.Namespaces = func(ctx context.Context, _ string) (map[string]string, error) {
				asked.Done()
				all := make(chan struct{})
				go func() {
					asked.Wait()
					close(all)
				}()
				select {
				case <-all:
					return nil, nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
		}))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	compare(t, denied(403, "Forbidden", "a: no; b: no; c: no"), admission.NewEngine(list...).Validate(ctx, request(t, "deny", "no")))
}

// panics is an observer with a fault.
type panics struct{}

func (panics) Decided(context.Context, admission.Decision) { panic("no disk") }

// What an embedder hands in may panic, on whatever goroutine: it is a failure of that
// policy, and the others have their say.
func TestPanicsAreFailuresOfTheirPolicy(t *testing.T) {
	var log syncBuilder
	logger := slog.New(slog.NewTextHandler(&log, nil))
	faulty := func(name string) admission.Policy {
		return script(t, name, "", func(c *admission.PluginConfig) { c.PolicyRules.Observer, c.Logger = panics{}, logger })
	}
	unmatched := script(t, "unmatched", "", func(c *admission.PluginConfig) {
		c.Match.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		c.Namespaces = func(context.Context, string) (map[string]string, error) { panic("no lister") }
	})
	e := admission.NewEngine(faulty("first"), unmatched, faulty("last"), script(t, "good", `{"warning":"good"}`, nil))
	want := denied(500, "InternalError", `policy "first": host panicked: no disk; policy "unmatched": host panicked: no lister; policy "last": host panicked: no disk`)
	want.Warnings = []string{"good"}
	compare(t, want, e.Validate(t.Context(), request(t)))
	compare(t, denied(500, "InternalError", `policy "first": host panicked: no disk`), e.Mutate(t.Context(), request(t)))
	if got := log.String(); !strings.Contains(got, `msg="host panicked" policy=first panic="no disk" stack=`) {
		t.Errorf("log is %s", got)
	}
}

// What cannot be loaded guards what it guarded, whatever it was.
func TestUnavailable(t *testing.T) {
	for _, mutates := range []bool{false, true} {
		rules := admission.PolicyRules{Match: admission.Match{ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"guarded": "yes"}}}}
		u, err := standIns.Unavailable("gone", rules, mutates, errors.New("no module"))
		if err != nil {
			t.Fatal(err)
		}
		e := admission.NewEngine(u)
		want := denied(500, "InternalError", `policy "gone" is not available: no module`)
		compare(t, want, e.Validate(t.Context(), requestOf(`{"metadata":{"labels":{"guarded":"yes"}}}`)))
		compare(t, allowed(), e.Validate(t.Context(), requestOf(`{}`)))
		if !mutates {
			want = allowed()
		}
		compare(t, want, e.Mutate(t.Context(), requestOf(`{"metadata":{"labels":{"guarded":"yes"}}}`)))
	}
	if _, err := standIns.Unavailable("gone", admission.PolicyRules{Mode: "Guess"}, false, errors.New("no module")); err == nil {
		t.Error("rules that are wrong are taken")
	}
}

func TestGroup(t *testing.T) {
	group := func(expression string, members ...string) *admission.Engine {
		cfg := admission.GroupConfig{Name: "release", Message: "not fit for release", Expression: expression, Members: map[string]*admission.Plugin{}}
		for _, name := range members {
			guest := config(t, name, memberGuest)
			guest.GuestConfig = []byte(`{"name":"` + name + `"}`)
			cfg.Members[name] = load(t, guest)
		}
		g, err := admission.NewGroup(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return admission.NewEngine(g)
	}
	cause := func(name string) metav1.StatusCause {
		return metav1.StatusCause{Field: "spec.policies." + name, Message: name + " says no"}
	}
	deny := func(names ...string) *admissionv1.AdmissionResponse {
		r := denied(403, "Forbidden", "")
		r.Result.Details = &metav1.StatusDetails{Name: "web", Kind: "Pod"}
		var members []string
		for _, name := range names {
			r.Result.Details.Causes = append(r.Result.Details.Causes, cause(name))
			members = append(members, name+": "+name+" says no")
		}
		r.Result.Message = "not fit for release (" + strings.Join(members, "; ") + ")"
		return r
	}
	e := group("signed() || (reviewed() && !experimental())", "signed", "reviewed", "experimental")
	tests := []struct {
		name   string
		labels string
		want   *admissionv1.AdmissionResponse
	}{
		{"the first is enough", `{"signed":"yes"}`, allowed()},
		{"the others are enough", `{"reviewed":"yes"}`, allowed()},
		{"one that must not agree", `{"reviewed":"yes","experimental":"yes"}`, deny("signed")},
		{"none agrees", `{}`, deny("reviewed", "signed")},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			compare(t, test.want, e.Validate(t.Context(), requestOf(`{"metadata":{"labels":`+test.labels+`}}`)))
		})
	}
	t.Run("a member that fails is a failure of the group", func(t *testing.T) {
		got := e.Validate(t.Context(), requestOf(`{"metadata":{"labels":{"panic":"signed"}}}`))
		if got.Allowed || got.Result.Code != 500 || !strings.HasPrefix(got.Result.Message, `group "release": plugin "signed": validate trapped`) {
			t.Errorf("answer is %+v", got.Result)
		}
	})
	t.Run("every mistake is named", func(t *testing.T) {
		_, err := admission.NewGroup(admission.GroupConfig{Expression: "a() &&", Members: map[string]*admission.Plugin{"a": nil}})
		want := `group "": name is empty` + "\nmessage is empty\n" + `expression: at "the end": want a member, true, false, ! or (` + "\nmember a has no plugin"
		if err == nil || err.Error() != want {
			t.Errorf("error is %v\nwant %s", err, want)
		}
	})
}

func TestReplaceIsBetweenTwoRequests(t *testing.T) {
	e := admission.NewEngine()
	plugins := func() []*admission.Plugin {
		return []*admission.Plugin{script(t, "a", `{"warning":"a"}`, nil), script(t, "b", `{"warning":"b"}`, nil)}
	}
	sets := plugins()
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
				got := e.Validate(t.Context(), request(t, "deny", "no"))
				if n := len(got.Warnings); n == 1 || !got.Allowed && got.Result.Message != "a: no; b: no" {
					t.Errorf("a request saw half a set: %+v, %+v", got, got.Result)
					return
				}
			}
		})
	}
	for range 20 {
		<-e.Replace(sets[0], sets[1])
		<-e.Replace()
	}
	close(done)
	wg.Wait()
}

func TestOneOfSeveralPolicies(t *testing.T) {
	e := admission.NewEngine(script(t, "a", `{"mark":"a"}`, nil), script(t, "b", `{"mark":"b"}`, nil))
	one, ok := e.ForPolicy("b")
	if !ok {
		t.Fatal("there is no b")
	}
	compare(t, denied(403, "Forbidden", "no"), one.Validate(t.Context(), request(t, "deny", "no")))
	r := request(t, "trail", "")
	if got := annotation(patched(t, r, one.Mutate(t.Context(), r)), "trail"); got != "b" {
		t.Errorf("trail is %v", got)
	}
	policies := e.Policies()
	<-e.Replace(policies[0], standIns.Disabled(policies[1]))
	compare(t, allowed(), one.Validate(t.Context(), request(t, "deny", "no")))
	compare(t, allowed(), one.Mutate(t.Context(), r))
	compare(t, denied(403, "Forbidden", "no"), e.Validate(t.Context(), request(t, "deny", "no"))) // Of a, alone.
	<-e.Replace()
	compare(t, denied(500, "InternalError", "there is no policy b"), one.Validate(t.Context(), request(t)))
	if _, ok := e.ForPolicy("b"); ok {
		t.Error("b is still there")
	}
}

func TestRulesThatAreWrong(t *testing.T) {
	cluster := arv1.ScopeType("Everywhere")
	cfg := config(t, "p", rulebreaker)
	cfg.Mode = "Guess"
	cfg.Match = admission.Match{
		Rules:             []arv1.RuleWithOperations{{Operations: []arv1.OperationType{"PATCH"}, Rule: arv1.Rule{Scope: &cluster}}},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
		ObjectSelector:    &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}},
	}
	_, err := admission.Load(t.Context(), shared, cfg)
	want := []string{
		`plugin "p": configuration: mode is "Guess", want Enforce or Monitor`,
		"match.rules[0].apiGroups is empty", "match.rules[0].apiVersions is empty", "match.rules[0].resources is empty",
		`match.rules[0].operations has "PATCH", want CREATE, UPDATE, DELETE, CONNECT or *`,
		`match.rules[0].scope is "Everywhere", want Cluster, Namespaced or *`,
		`match.objectSelector: "Near" is not a valid label selector operator`,
		"match.namespaceSelector needs the labels of namespaces, which the server does not have",
	}
	if err == nil {
		t.Fatal("no error")
	}
	if diff := cmp.Diff(want, strings.Split(err.Error(), "\n")); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

func TestEvaluateAStandIn(t *testing.T) {
	p, err := standIns.Unavailable("p", admission.PolicyRules{}, false, errors.New("gone"))
	if err != nil {
		t.Fatal(err)
	}
	request := &admissionv1.AdmissionRequest{UID: "1", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(`{}`)}}
	if got := admission.Evaluate(t.Context(), p, request, true); got.Err == nil || !strings.Contains(got.Err.Error(), "gone") {
		t.Errorf("evaluation is %+v", got)
	}
}
