package bindgen_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/cmd/kubewasm/internal/bindgen"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/crontab"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
	"github.com/kubewasm/kubewasm/internal/testkit/hostile"
	"github.com/kubewasm/kubewasm/internal/testkit/languages"
)

// readTab returns what the guests in testdata/readers write of a CronTab, by the views in Go.
func readTab(raw []byte) string {
	var b strings.Builder
	line := func(name string, value any) { fmt.Fprintf(&b, "%s=%v\n", name, value) }
	optional := func(name string, has bool, value any) {
		if !has {
			value = "-"
		}
		line(name, value)
	}
	tab := crontab.CronTabFromJSON(raw)
	s := tab.Spec()
	line("name", tab.Metadata().Name())
	line("app", tab.Metadata().Labels().Get("app"))
	line("schedule", s.Schedule())
	line("replicas", s.Replicas())
	optional("deadline", s.HasDeadline(), s.Deadline())
	optional("threshold", s.HasThreshold(), int64(s.Threshold()*1000))
	suspend := 0
	if s.Suspend() {
		suspend = 1
	}
	optional("suspend", s.HasSuspend(), suspend)
	optional("policy", s.HasPolicy(), s.Policy())
	if s.Policy() == crontab.CronTabSpecPolicyForbid {
		line("forbid", "yes")
	}
	optional("since", s.HasSince(), s.Since().Unix())
	optional("nanos", s.HasSince(), s.Since().Nanosecond())
	line("secret", string(s.Secret()))
	optional("port", s.HasPort(), s.Port().String())
	optional("memory", s.HasMemory(), s.Memory().MilliValue())
	for _, arg := range s.Args() {
		line("arg", arg)
	}
	for _, code := range s.Codes() {
		line("code", code)
	}
	for _, row := range s.Matrix() {
		line("row", string(row))
	}
	for _, key := range []string{"a", "é\"", "none"} {
		line("label", s.Labels().Get(key))
		limit, ok := s.Limits().Lookup(key)
		optional("limit", ok, limit.String())
		queue := s.Queues().Get(key)
		optional("queue", queue.HasLength(), queue.Length())
	}
	for _, c := range s.Containers() {
		line("image", c.Image())
		for _, e := range c.Env() {
			line("env", e.Name())
			optional("value", e.HasValue(), e.Value())
		}
	}
	line("template", string(s.Template()))
	line("anything", string(s.Anything()))
	optional("active", tab.Status().HasActive(), tab.Status().Active())
	return b.String()
}

// randomTab returns a CronTab in JSON that the API server would accept.
func randomTab(r *rand.Rand) []byte {
	pick := func(of ...any) any { return of[r.IntN(len(of))] }
	word := func() string { return pick("", "a", "é\"", "b c\n", "日本\u2028<&>", "\\").(string) }
	spec := map[string]any{"schedule": word(), "replicas": int32(r.Uint32()), "containers": []any{}}
	some := func(name string, value any) {
		switch r.IntN(8) {
		case 0, 1:
		case 2:
			spec[name] = nil
		default:
			spec[name] = value
		}
	}
	list := func(element func() any) []any {
		all := []any{}
		for range r.IntN(4) {
			all = append(all, element())
		}
		return all
	}
	entries := func(value func() any) map[string]any {
		all := map[string]any{}
		for range r.IntN(5) {
			all[word()] = value()
		}
		return all
	}
	some("deadline", r.Int64()>>r.IntN(63)-(1<<20))
	some("threshold", pick(0, 0.5, -1.25, 1e3, 7))
	some("suspend", r.IntN(2) == 0)
	some("policy", pick("Allow", "Forbid", ""))
	some("since", pick("2026-11-21T03:00:00Z", "2026-11-21T03:00:00.5+01:00", "1969-02-28T23:59:59.000001-11:30", "2024-02-29T00:00:00Z"))
	some("secret", base64.StdEncoding.EncodeToString([]byte(word())))
	some("port", pick(80, "http", "90%", 0, ""))
	some("memory", pick("1.5Gi", "100m", 3, "1e3", "-2Ki", "0.1n", "-1.0005", "-0.1u", "-9223372036854775807", "12345678901234567890", 1.5))
	some("args", list(func() any { return word() }))
	some("codes", list(func() any { return r.Int64() >> r.IntN(63) }))
	some("matrix", list(func() any { return list(func() any { return r.IntN(9) }) }))
	some("labels", entries(func() any { return word() }))
	some("limits", entries(func() any { return pick(1, -5, "90%", "") }))
	some("queues", entries(func() any { return pick(map[string]any{"length": r.IntN(99)}, map[string]any{}) }))
	some("containers", list(func() any {
		return map[string]any{"image": word(), "env": list(func() any {
			return pick(map[string]any{"name": word(), "value": word()}, map[string]any{"name": word()}, map[string]any{"value": word()})
		})}
	}))
	some("template", pick(map[string]any{"kind": "Pod", "metadata": map[string]any{"name": "x"}}, map[string]any{}))
	some("anything", pick(7, "text", true, []any{}, map[string]any{"a": nil}))
	some("unknown", pick(map[string]any{"schedule": "not this one"}, []any{[]any{}}))
	tab := map[string]any{
		"apiVersion": "stable.example.com/v1", "kind": "CronTab",
		"metadata": map[string]any{"name": word(), "labels": map[string]any{"app": word()}}, "spec": spec,
	}
	if r.IntN(2) == 0 {
		tab["status"] = pick(map[string]any{}, map[string]any{"active": r.IntN(5)})
	}
	raw, err := json.Marshal(tab)
	if err != nil {
		panic(err)
	}
	return raw
}

// stellarNodes has what the guests write of a StellarNode, the resource of
// examples/admission/stellar-node.
var stellarNodes = map[string]string{
	`{"apiVersion":"stellar.org/v1alpha1","kind":"StellarNode","metadata":{"name":"alice"},"spec":{
		"nodeType":"Validator","network":"Mainnet","version":"v21","image":"docker.io/stellar/core","replicas":2,"suspended":false,
		"resources":{"limits":{"cpu":4},"requests":{"memory":"8Gi","cpu":"500m"}},
		"storage":{"size":"100Gi","retentionPolicy":"Delete"},
		"validatorConfig":{"seedSecretRef":"seed","enableHistoryArchive":true,"historyArchiveUrls":["https://a.example.com","https://b.example.com"]}
	},"status":{"phase":"Running","readyReplicas":1}}`: `
name=alice
validates=yes
network=Mainnet
version=v21
image=docker.io/stellar/core
replicas=2
suspended=0
cpu=500m
size=100Gi
deletes=yes
seed=seed
archives=1
url=https://a.example.com
url=https://b.example.com
workers=-
events=-
phase=Running
ready=1`,
	`{"kind":"StellarNode","metadata":{"name":"bob"},"spec":{
		"nodeType":"Horizon","network":"Testnet","version":"v2","resources":{"requests":{"cpu":2}},
		"horizonConfig":{"ingestWorkers":65},"sorobanConfig":{"maxEventsPerRequest":10},"storage":{"retentionPolicy":"Retain"}}}`: `
name=bob
network=Testnet
version=v2
image=-
replicas=-
suspended=-
cpu=2
size=
seed=
archives=-
workers=65
events=10
phase=
ready=-`,
}

// TestReadersOfACustomResource holds that guests in each language, with the views that are
// generated for it, read of random CronTabs what the views in Go read, and survive text that is
// no object. They read StellarNodes, too, by views of a second definition.
func TestReadersOfACustomResource(t *testing.T) {
	languages.Slow(t)
	for language, views := range map[*guestbuild.Language]string{guestbuild.C: ".", guestbuild.Rust: "%s", guestbuild.AssemblyScript: "assembly/%s"} {
		t.Run(language.Title, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS("testdata/readers/"+language.Name)); err != nil {
				t.Fatal(err)
			}
			for name, definition := range map[string]string{"crontab": "../../../../internal/crontab/crontabs.yaml", "stellarnode": "../../../../examples/admission/stellar-node/stellarnodes.yaml"} {
				writeViews(t, language.Name, name, definition, filepath.Join(dir, strings.ReplaceAll(views, "%s", name)))
			}
			rt, err := host.NewRuntime(compiled.Config())
			if err != nil {
				t.Fatal(err)
			}
			defer rt.Close(context.Background())
			file, _ := languages.Compile(t, guestbuild.Config{Dir: dir})
			p, err := admission.Load(t.Context(), rt, admission.PluginConfig{Config: host.Config{Name: "reader", Module: host.ModuleConfig{File: file}}})
			if err != nil {
				t.Fatal(err)
			}
			engine := admission.NewEngine(p)
			defer engine.Close(context.Background())
			compare := func(raw []byte, want string) {
				t.Helper()
				request := &admissionv1.AdmissionRequest{UID: "1", Operation: admissionv1.Create, Kind: metav1.GroupVersionKind{Group: "stable.example.com", Version: "v1", Kind: "CronTab"}}
				request.Object.Raw = raw
				response := engine.Validate(t.Context(), request)
				if response.Allowed || response.Result.Code != 403 {
					t.Fatalf("of %s: %v", raw, response)
				}
				got := strings.TrimPrefix(response.Result.Message, "reader: ")
				if diff := cmp.Diff(strings.TrimSpace(want), strings.TrimSpace(got)); diff != "" {
					t.Fatalf("of %s (-want +%s):\n%s", raw, language.Title, diff)
				}
			}
			for object, want := range stellarNodes {
				compare([]byte(object), want)
			}
			r := rand.New(rand.NewPCG(3, 5))
			for range 2000 {
				raw := randomTab(r)
				compare(raw, readTab(raw))
			}
			hostile.Try(t, file, "validate", "", 1000, func(n int) []byte {
				switch n {
				case 0:
					return append(bytes.Repeat([]byte(`{"spec":[`), 20_000), '"')
				case 1:
					return []byte(`{"metadata":{"labels":{"a":"\`)
				}
				return hostile.Mutated(r, randomTab(r))
			})
		})
	}
}

// writeViews writes the views of a CustomResourceDefinition in a file, in a language and a package
// of that name, into a directory.
func writeViews(t *testing.T, language, name, definition, dir string) {
	t.Helper()
	text, err := os.ReadFile(definition)
	if err != nil {
		t.Fatal(err)
	}
	l, err := bindgen.LanguageNamed(language)
	if err != nil {
		t.Fatal(err)
	}
	p, err := bindgen.CRD(bindgen.CRDConfig{Source: filepath.Base(definition), Text: text, Package: name})
	if err != nil {
		t.Fatal(err)
	}
	files, err := l.Write(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, f.Name), f.Text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
