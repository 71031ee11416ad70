package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/dialect"
	regodialect "github.com/kubewasm/kubewasm/admission/rego"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
	"github.com/kubewasm/kubewasm/internal/testkit/rego/compile"
)

const policies = "../../../admission/kubewarden/internal/policies/testdata/rego/"

// dialects returns the dialect of the tests.
func dialects() []*dialect.Dialect {
	return []*dialect.Dialect{regodialect.New(regodialect.Options{})}
}

// policy is a policy in both worlds.
type policy struct {
	engine *admission.Engine
	opa    rego.PreparedEvalQuery
	// input is what OPA evaluates.
	input func(r *admissionv1.AdmissionRequest) map[string]any
}

func load(t testing.TB, file, entrypoint, settings string) *policy {
	t.Helper()
	ctx := t.Context()
	module, err := compile.File(ctx, entrypoint, policies+file)
	if err != nil {
		t.Fatal(err)
	}
	rt, err := host.NewRuntime(compiled.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rt.Close(context.Background()) })
	plugin, err := admission.Load(ctx, rt, admission.PluginConfig{Dialects: dialects(), Config: host.Config{Name: "p", Module: host.ModuleConfig{Bytes: module}, GuestConfig: []byte(settings)}})
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(policies + file)
	if err != nil {
		t.Fatal(err)
	}
	var data map[string]any
	if err := json.Unmarshal([]byte(settings), &data); err != nil {
		t.Fatal(err)
	}
	p := &policy{engine: admission.NewEngine(plugin)}
	gatekeeper := filepath.Base(entrypoint) == "violation"
	p.input = func(r *admissionv1.AdmissionRequest) map[string]any {
		raw, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var request map[string]any
		if err := json.Unmarshal(raw, &request); err != nil {
			t.Fatal(err)
		}
		if gatekeeper {
			return map[string]any{"parameters": data, "review": request}
		}
		return map[string]any{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
	}
	stored := data
	if gatekeeper {
		stored = map[string]any{}
	}
	p.opa, err = rego.New(
		rego.Query("data."+strings.ReplaceAll(entrypoint, "/", ".")),
		rego.Module(file, string(source)),
		rego.Store(inmem.NewFromObject(stored)),
	).PrepareForEval(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// expected is what OPA's own evaluator says: the messages of the denial.
func (p *policy) expected(t testing.TB, r *admissionv1.AdmissionRequest) []string {
	t.Helper()
	results, err := p.opa.Eval(t.Context(), rego.EvalInput(p.input(r)))
	if err != nil {
		t.Fatal(err)
	}
	if len(results) == 0 {
		return nil
	}
	var messages []string
	switch value := results[0].Expressions[0].Value.(type) {
	case []any:
		for _, v := range value {
			switch v := v.(type) {
			case string:
				messages = append(messages, v)
			case map[string]any:
				messages = append(messages, v["msg"].(string))
			}
		}
	case map[string]any:
		response := value["response"].(map[string]any)
		if !response["allowed"].(bool) {
			messages = strings.Split(response["status"].(map[string]any)["message"].(string), ", ")
		}
	default:
		t.Fatalf("decision is %T", value)
	}
	return messages
}

func (p *policy) compare(t testing.TB, r *admissionv1.AdmissionRequest) (denied bool) {
	t.Helper()
	want := p.expected(t, r)
	got := p.engine.Validate(t.Context(), r)
	if got.Allowed != (len(want) == 0) {
		t.Fatalf("allowed is %t, OPA says %q, object %s, %+v", got.Allowed, want, r.Object.Raw, got.Result)
	}
	if got.Allowed {
		return false
	}
	// The order of a set is another in WebAssembly.
	have := strings.TrimPrefix(got.Result.Message, "p: ")
	total := 0
	for _, message := range want {
		if !strings.Contains(have, message) {
			t.Fatalf("message is %q, OPA says %q, object %s", have, want, r.Object.Raw)
		}
		total += len(message)
	}
	if total += 2 * (len(want) - 1); total != len(have) {
		t.Fatalf("message is %q, OPA says %q", have, want)
	}
	return true
}

func request(object map[string]any) *admissionv1.AdmissionRequest {
	raw, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	r := &admissionv1.AdmissionRequest{UID: "u", Operation: admissionv1.Create, Namespace: "shop", Name: "web"}
	r.Kind.Kind, r.Kind.Version = "Pod", "v1"
	r.UserInfo.Username, r.UserInfo.Groups = "alice", []string{"dev"}
	r.Object.Raw = raw
	return r
}

// pod makes a Pod of the values that the policies look at.
func pod(r *rand.Rand) map[string]any {
	pick := func(list ...any) any { return list[r.IntN(len(list))] }
	labels := map[string]any{}
	for _, key := range []string{"team", "tier", "app", "ä\"x"} {
		if r.IntN(2) == 0 {
			labels[key] = pick("web", "db", "x", "", "ü<&>")
		}
	}
	var containers []any
	for i := range r.IntN(4) {
		c := map[string]any{"name": fmt.Sprintf("c%d", i), "image": pick("nginx", "registry.example.com/a:latest", "registry.example.com/b:1", "")}
		limits := map[string]any{}
		if r.IntN(3) > 0 {
			limits["memory"] = pick("1Gi", "512Mi", "2G", "100", "1.5Gi", "odd", 5, "1025Mi")
		}
		if r.IntN(3) > 0 {
			limits["cpu"] = pick("1", "100m", "250m", "0.2", "x", 1)
		}
		if r.IntN(4) > 0 {
			c["resources"] = map[string]any{"limits": limits}
		}
		containers = append(containers, c)
	}
	object := map[string]any{"metadata": map[string]any{"name": "web"}, "spec": map[string]any{"containers": containers}}
	if r.IntN(5) > 0 {
		object["metadata"].(map[string]any)["labels"] = labels
	}
	return object
}

// Policies decide in WebAssembly what OPA's own evaluator decides.
func TestPoliciesDecideAsInOPA(t *testing.T) {
	tests := []struct{ file, entrypoint, settings string }{
		{"labels.rego", "k8srequiredlabels/violation", `{"labels":[{"key":"team"},{"key":"tier","allowedRegex":"^(web|db)$"},{"key":"ä\"x"}]}`},
		{"labels.rego", "k8srequiredlabels/violation", `{"message":"no","labels":[{"key":"team"}]}`},
		{"limits.rego", "k8scontainerlimits/violation", `{"cpu":"200m","memory":"1Gi"}`},
		{"registries.rego", "policy/main", `{"labels":["team","app"],"registries":["registry.example.com/"]}`},
	}
	for _, test := range tests {
		t.Run(test.file+" "+test.settings, func(t *testing.T) {
			p := load(t, test.file, test.entrypoint, test.settings)
			r, denials := rand.New(rand.NewPCG(1, 2)), 0
			const requests = 2000
			for range requests {
				if p.compare(t, request(pod(r))) {
					denials++
				}
			}
			t.Logf("%d of %d denied", denials, requests)
			if denials == 0 || denials == requests {
				t.Error("the inputs show nothing")
			}
		})
	}
}

// Every builtin that the host has returns what OPA's own does.
func TestBuiltins(t *testing.T) {
	p := load(t, "builtins.rego", "builtins/main", `{}`)
	r := rand.New(rand.NewPCG(3, 4))
	texts := []string{"text", "tëxt & <b>", "", "a/b?c=d", "1", "\x00\n\"", "1.2.3"}
	for range 200 {
		object := map[string]any{
			"text": texts[r.IntN(len(texts))], "int": r.IntN(1000) - 500, "float": float64(r.IntN(1000)) / 8,
			"big":  json.Number("123456789012345678901234567890"),
			"list": []any{1, "a", nil, []any{true}, map[string]any{"z": 1, "a": 2.5}},
			"doc":  map[string]any{"a": 1, "b": []any{"x", map[string]any{"c": nil}}},
			"ns":   r.Int64N(4e18),
		}
		req := request(object)
		got := p.engine.Validate(t.Context(), req)
		if got.Allowed || got.Result.Code != 403 {
			t.Fatalf("answer is %+v", got.Result)
		}
		want := p.expectedNumbers(t, req)
		have := strings.TrimPrefix(got.Result.Message, "p: ")
		for _, message := range want {
			if !strings.Contains(have, message) {
				name, _, _ := strings.Cut(message, ":")
				i := max(strings.Index(have, name+":"), 0)
				t.Errorf("OPA says %s\n     here %.300s", message, have[i:])
			}
		}
		if len(want) < 16 || strings.Contains(have, "undefined:") || t.Failed() {
			t.Fatalf("%d results: %s", len(want), slices.Sorted(slices.Values(want)))
		}
	}
}

// expectedNumbers is expected with the numbers as they were written.
func (p *policy) expectedNumbers(t testing.TB, r *admissionv1.AdmissionRequest) []string {
	raw, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	var request map[string]any
	if err := d.Decode(&request); err != nil {
		t.Fatal(err)
	}
	results, err := p.opa.Eval(t.Context(), rego.EvalInput(map[string]any{"request": request}))
	if err != nil {
		t.Fatal(err)
	}
	var messages []string
	for _, v := range results[0].Expressions[0].Value.([]any) {
		messages = append(messages, v.(string))
	}
	return messages
}
