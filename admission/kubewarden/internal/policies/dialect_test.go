package policies_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/guarded"
)

// buildC compiles a guest in C.
func buildC(t testing.TB, file string, flags ...string) string {
	t.Helper()
	if _, err := exec.LookPath("clang"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("clang is not installed")
		}
		t.Skip("clang is not installed (Debian: clang, lld)")
	}
	out := filepath.Join(t.TempDir(), "guest.wasm")
	cmd := exec.CommandContext(t.Context(), "clang", "--target=wasm32", "-O2", "-nostdlib", "-Wl,--no-entry", "-o", out, file)
	cmd.Args = append(cmd.Args, flags...)
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("clang: %v\n%s", err, output)
	}
	return out
}

// buildGo compiles a guest in Go without the SDK, in a mode of go build: c-shared
// for a reactor, exe for a program.
func buildGo(t testing.TB, dir, mode string) string {
	t.Helper()
	if err := guestbuild.TrackSources(dir); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "guest.wasm")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildmode="+mode, "-trimpath", "-ldflags=-s -w", "-o", out, ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, output)
	}
	return out
}

// mode is the creation of a Pod whose annotation says what a guest is to do.
func mode(text string) *admissionv1.AdmissionRequest {
	return requestOf(`{"metadata":{"name":"web","annotations":{"mode":"` + text + `"}}}`)
}

// syncBuilder is a log that may be written to and read at the same time.
type syncBuilder struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *syncBuilder) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuilder) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// cluster is a cluster with a few objects.
type cluster map[string]string // "kind namespace/name" to an object.

func (c cluster) Get(_ context.Context, kind schema.GroupVersionKind, namespace, name string, _ bool) ([]byte, error) {
	if object, ok := c[kind.Kind+" "+namespace+"/"+name]; ok {
		return []byte(object), nil
	}
	return nil, nil
}

func (c cluster) List(_ context.Context, kind schema.GroupVersionKind, namespace string, l labels.Selector, f fields.Selector) ([][]byte, error) {
	if kind.Kind == "Deployment" && l.String() == "app=web" && f.Empty() && namespace == "shop" {
		return [][]byte{[]byte(c["Deployment shop/web"])}, nil
	}
	if kind.Kind == "Namespace" && namespace == "" {
		return nil, nil
	}
	return nil, errors.New("not this")
}

func (c cluster) Resource(_ context.Context, kind schema.GroupVersionKind) (schema.GroupVersionResource, error) {
	r, _ := meta.UnsafeGuessKindToResource(kind)
	return r, nil
}

func (c cluster) Hold(schema.GroupVersionKind) func() { return func() {} }

func (c cluster) Keep(schema.GroupVersionResource, string, host.ObjectQuery) host.Objects {
	return &objects{}
}

func (c cluster) Review(_ context.Context, spec authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error) {
	return authorizationv1.SubjectAccessReviewStatus{Allowed: spec.User == "alice" && spec.ResourceAttributes.Verb == "create"}, nil
}

func TestKubewarden(t *testing.T) {
	log := guarded.NewLog()
	file := buildC(t, "testdata/kubewarden/policy.c")
	policy := func(name string, change func(*pluginConfig)) *admission.Engine {
		cfg := config(t, name, file)
		cfg.GuestConfig = []byte(`{"labels":["team"]}`)
		cfg.Logger = slog.New(log)
		cfg.Cluster = cluster{
			"Namespace /shop": `{"kind":"Namespace"}`, "Deployment shop/web": `{"kind":"Deployment"}`,
			"Deployment shop/db": `{"kind":"Deployment","metadata":{"name":"db","labels":{}},"spec":{"replicas":1,"containers":[{"name":"a","image":"db:1"}]}}`,
		}
		cfg.HostCapabilities = []string{"kubernetes/*", "crypto/*"}
		cfg.ContextAwareResources = []capabilities.Kind{{APIVersion: "v1", Kind: "Namespace"}, {APIVersion: "apps/v1", Kind: "Deployment", Namespaces: []string{"shop"}}}
		if change != nil {
			change(&cfg)
		}
		p := load(t, cfg)
		if p.Dialect() != "kubewarden-wapc" {
			t.Fatalf("dialect is %q", p.Dialect())
		}
		return admission.NewEngine(p)
	}
	e := policy("policy", nil)
	says := func(message string) *admissionv1.AdmissionResponse { return denied(403, "Forbidden", message) }
	failed := func(message string) *admissionv1.AdmissionResponse {
		return denied(500, "InternalError", `plugin "policy": `+message)
	}
	echo := `{"request":{"uid":"uid-1","kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},"name":"web","namespace":"shop","operation":"CREATE","userInfo":{"username":"alice"},"object":{"metadata":{"name":"web","annotations":{"mode":"mode-echo"}}}},"settings":{"labels":["team"]}}`
	tests := []struct {
		name string
		want *admissionv1.AdmissionResponse
	}{
		{"mode-none", allowed()},
		{"mode-log", allowed()},
		{"mode-fail", failed("validate: guest call failed: cannot say")},
		{"mode-trap", failed("__guest_call trapped: wasm error: unreachable")},
		{"mode-get", says(`{"kind":"Namespace"}`)},
		{"mode-absent", says(`get_resource: there is no Namespace none in namespace ""`)},
		{"mode-secret", says(`get_resource: the policy may not see v1 Secret: it is not in its contextAwareResources`)},
		{"mode-elsewhere", says(`list_resources_by_namespace: the policy may not see apps/v1 Deployment of namespace "bank": it is not in its contextAwareResources`)},
		{"mode-everywhere", says(`list_resources_all: the policy may see apps/v1 Deployment of some namespaces, not of all: its contextAwareResources name them`)},
		{"mode-list", says(`{"kind":"DeploymentList","apiVersion":"apps/v1","metadata":{},"items":[{"kind":"Deployment"}]}`)},
		{"mode-all", says(`{"kind":"NamespaceList","apiVersion":"v1","metadata":{},"items":[]}`)},
		{"mode-part", says(`{"kind":"Deployment","metadata":{"name":"db"},"spec":{"containers":[{"image":"db:1"}]}}`)},
		{"mode-can-i", says(`{"allowed":true}`)},
		{"mode-may-i", says(`{"allowed":true}`)},
		{"mode-may-what", says(`can_i: the question has no resource attributes`)},
		{"mode-cert", says("is_certificate_trusted: certificate: it is no certificate in PEM")},
		{"mode-net", says("the policy may not call net/v1/dns_lookup_host: it is not in the hostCapabilities of its configuration")},
		{"mode-oci", says("the policy may not call oci/v2/verify: it is not in the hostCapabilities of its configuration")},
		{"mode-mutate", failed("changes the object, which allowedToMutate does not allow")},
		{"mode-echo", denied(418, "", echo)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { compare(t, test.want, e.Validate(t.Context(), mode(test.name))) })
	}
	for _, want := range []string{`level=INFO msg="to the console" plugin=policy`, "level=WARN msg=look plugin=policy data=map[extra:5]"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log has no %s:\n%s", want, log.String())
		}
	}
	t.Run("a mutator", func(t *testing.T) {
		e := policy("mutator", func(c *pluginConfig) { c.AllowedToMutate = true })
		r := mode("mode-mutate")
		got := e.Mutate(t.Context(), r)
		if want := `[{"op":"remove","path":"/metadata/annotations"},{"op":"add","path":"/metadata/labels","value":{"team":"shop"}}]`; string(got.Patch) != want {
			t.Errorf("patch is %s", got.Patch)
		}
		got.Patch, got.PatchType = nil, nil
		compare(t, &admissionv1.AdmissionResponse{UID: "uid-1", Allowed: true, Warnings: []string{"changed"}, AuditAnnotations: map[string]string{"mutator.changed": "labels"}}, got)
		compare(t, allowed(), e.Mutate(t.Context(), mode("mode-same")))
		compare(t, allowed(), e.Validate(t.Context(), mode("mode-fail"))) // A mutator does not validate.
		r.Object.Raw, r.OldObject.Raw = nil, r.Object.Raw
		got = e.Mutate(t.Context(), r)
		compare(t, denied(500, "InternalError", `plugin "mutator": changes the object of a request without an object`), &admissionv1.AdmissionResponse{UID: got.UID, Result: got.Result})
	})
	t.Run("settings that are wrong", func(t *testing.T) {
		cfg := config(t, "p", file)
		cfg.GuestConfig = []byte(`{"labels":[]}`)
		if _, err := loadPlugin(t.Context(), shared, cfg); err == nil || err.Error() != `plugin "p": probe: settings are not valid: labels is empty` {
			t.Errorf("error is %v", err)
		}
	})
	t.Run("no cluster and no kinds", func(t *testing.T) {
		e := policy("alone", func(c *pluginConfig) { c.Cluster = nil })
		compare(t, says("get_resource: the host has no cluster to look at"), e.Validate(t.Context(), mode("mode-get")))
		e = policy("blind", func(c *pluginConfig) { c.Scope = capabilities.Scope{} })
		compare(t, says("the policy may not call kubernetes/can_i: it is not in the hostCapabilities of its configuration"), e.Validate(t.Context(), mode("mode-can-i")))
	})
}

// A policy in Go is a reactor, and has a garbage collector.
func TestKubewardenInGo(t *testing.T) {
	cfg := config(t, "policy", buildGo(t, "testdata/kubewardengo", "c-shared"))
	cfg.GuestConfig = []byte(`{"labels":["team"]}`)
	e := admission.NewEngine(load(t, cfg))
	filler := strings.Repeat("x", 100<<10)
	for range 300 {
		if got := e.Validate(t.Context(), requestOf(`{"metadata":{"labels":{"team":"shop"}},"data":"`+filler+`"}`)); !got.Allowed {
			t.Fatalf("answer is %+v", got.Result)
		}
	}
	compare(t, denied(400, "BadRequest", "label team is missing"), e.Validate(t.Context(), requestOf(`{"metadata":{}}`)))
	compare(t, denied(500, "InternalError", `plugin "policy": validate: guest call failed: json: cannot unmarshal array into Go struct field .request.object.metadata of type struct { Labels map[string]string "json:\"labels\"" }`),
		e.Validate(t.Context(), requestOf(`{"metadata":[]}`)))
	cfg.GuestConfig = nil
	if _, err := loadPlugin(t.Context(), shared, cfg); err == nil || err.Error() != `plugin "policy": probe: settings are not valid` {
		t.Errorf("error is %v", err)
	}
}

func TestKubewardenWASI(t *testing.T) {
	built := buildGo(t, "testdata/kubewardenwasi", "exe")
	files := map[string]string{"as Go's linker leaves it": built}
	// As the Makefiles of Kubewarden's policies go on.
	for name, tool := range optimizers(t) {
		files["after "+name] = optimize(t, tool, built)
	}
	for name, file := range files {
		t.Run(name, func(t *testing.T) { testKubewardenWASI(t, file) })
	}
}

// optimizers are the versions of binaryen's wasm-opt that there are, with the flags for modules
// that guests may be. The one of Debian writes typed references in a form of before their
// standard. The one that comes with AssemblyScript runs on node, which takes minutes.
func optimizers(t *testing.T) map[string][]string {
	t.Helper()
	tools := map[string][]string{}
	if file, err := exec.LookPath("wasm-opt"); err == nil {
		tools["wasm-opt"] = []string{file, "--all-features", "--disable-gc", "--disable-typed-function-references"}
	} else if os.Getenv("CI") != "" {
		t.Error("wasm-opt is not installed")
	}
	if os.Getenv("KUBEWASM_LANGUAGES") != "" {
		file, err := filepath.Abs("../../../../guest/assemblyscript/node_modules/binaryen/bin/wasm-opt")
		if err != nil {
			t.Fatal(err)
		}
		tools["wasm-opt with typed references"] = []string{"node", file, "--all-features"}
	}
	return tools
}

// optimize has wasm-opt rewrite a module.
func optimize(t *testing.T, tool []string, file string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "optimized.wasm")
	cmd := exec.CommandContext(t.Context(), tool[0], append(slices.Clone(tool[1:]), "-Oz", "-o", out, file)...)
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%.2000s", cmd.Args, err, output)
	}
	return out
}

func testKubewardenWASI(t *testing.T, file string) {
	policy := func(settings string, mutate bool) (*admission.Plugin, error) {
		cfg := config(t, "program", file)
		cfg.GuestConfig, cfg.AllowedToMutate = []byte(settings), mutate
		return loadPlugin(t.Context(), shared, cfg)
	}
	p, err := policy(`{"deny":"no"}`, false)
	if err != nil {
		t.Fatal(err)
	}
	if p.Dialect() != "kubewarden-wasi" {
		t.Errorf("dialect is %q", p.Dialect())
	}
	for range 3 {
		compare(t, denied(403, "Forbidden", `no {"n":1}`), admission.NewEngine(p).Validate(t.Context(), requestOf(`{"n":1}`)))
	}
	if p, err = policy(`{"mutate":true}`, true); err != nil {
		t.Fatal(err)
	}
	r := requestOf(`{"uid":"other"}`)
	if got := admission.NewEngine(p).Mutate(t.Context(), r); string(got.Patch) != `[{"op":"replace","path":"/uid","value":"uid-1"}]` {
		t.Errorf("patch is %s, %+v", got.Patch, got.Result)
	}
	t.Run("asks the host", func(t *testing.T) {
		cfg := config(t, "program", file)
		cfg.GuestConfig = []byte(`{"ask":"get_resource"}`)
		cfg.Cluster = cluster{"Namespace /shop": `{"kind":"Namespace","data":"` + strings.Repeat("x", 100<<10) + `"}`}
		cfg.HostCapabilities = []string{"kubernetes/get_resource"}
		cfg.ContextAwareResources = []capabilities.Kind{{APIVersion: "v1", Kind: "Namespace"}}
		compare(t, denied(403, "Forbidden", `Namespace of 102430 bytes, then get_resource: there is no Namespace none in namespace ""`), admission.NewEngine(load(t, cfg)).Validate(t.Context(), requestOf(`{}`)))
		cfg.ContextAwareResources = nil
		const refused = "get_resource: the policy may not see v1 Namespace: it is not in its contextAwareResources"
		compare(t, denied(403, "Forbidden", refused+", then "+refused), admission.NewEngine(load(t, cfg)).Validate(t.Context(), requestOf(`{}`)))
		cfg.GuestConfig = []byte(`{"flood":true}`)
		cfg.Limits.KeptBytes = 4 << 20
		cfg.ContextAwareResources = []capabilities.Kind{{APIVersion: "v1", Kind: "Namespace"}}
		got := admission.NewEngine(load(t, cfg)).Validate(t.Context(), requestOf(`{}`))
		if got.Allowed || !strings.Contains(got.Result.Message, "call host.call: the call would make the host keep ") {
			t.Errorf("answer is %+v", got.Result)
		}
	})
	if _, err = policy(`{"dney":"no"}`, false); err == nil || err.Error() != `plugin "program": probe: settings are not valid: json: unknown field "dney"` {
		t.Errorf("error is %v", err)
	}
}

var regoCompiler = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "rego")
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "rego")
	cmd := exec.Command("go", "build", "-o", file, ".")
	cmd.Dir = "../../../../internal/testkit/rego"
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the compiler of Rego: %w\n%s", err, out)
	}
	return file, nil
})

// rego compiles a policy in Rego.
func rego(t testing.TB, entrypoint, file string) string {
	t.Helper()
	compiler, err := regoCompiler()
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "policy.wasm")
	if output, err := exec.CommandContext(t.Context(), compiler, "-e", entrypoint, "-o", out, "testdata/rego/"+file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return out
}

func TestRego(t *testing.T) {
	policy := func(name, entrypoint, settings string, mutate bool) *admission.Engine {
		cfg := config(t, name, rego(t, entrypoint, name+".rego"))
		cfg.GuestConfig, cfg.AllowedToMutate = []byte(settings), mutate
		p := load(t, cfg)
		if p.Dialect() != "opa" {
			t.Fatalf("dialect is %q", p.Dialect())
		}
		return admission.NewEngine(p)
	}
	pod := func(labels, containers string) *admissionv1.AdmissionRequest {
		return requestOf(`{"metadata":{"labels":` + labels + `},"spec":{"containers":` + containers + `}}`)
	}
	no := func(message string) *admissionv1.AdmissionResponse { return denied(403, "Forbidden", message) }
	t.Run("Gatekeeper, labels", func(t *testing.T) {
		e := policy("labels", "k8srequiredlabels/violation", `{"labels":[{"key":"team"},{"key":"tier","allowedRegex":"^(web|db)$"}]}`, false)
		compare(t, allowed(), e.Validate(t.Context(), pod(`{"team":"a","tier":"db"}`, `[]`)))
		compare(t, no(`you must provide labels: {"team", "tier"}`), e.Validate(t.Context(), pod(`{}`, `[]`)))
		compare(t, no(`you must provide labels: {"team"}, label <tier: x> does not satisfy allowed regex: ^(web|db)$`), e.Validate(t.Context(), pod(`{"tier":"x"}`, `[]`)))
	})
	t.Run("Gatekeeper, the object that is deleted", func(t *testing.T) {
		e := policy("labels", "k8srequiredlabels/violation", `{"labels":[{"key":"team"}]}`, false)
		r := pod(`{"team":"a"}`, `[]`)
		r.Operation, r.OldObject.Raw, r.Object.Raw = admissionv1.Delete, r.Object.Raw, nil
		compare(t, allowed(), e.Validate(t.Context(), r))
		r.OldObject.Raw = []byte(`{"metadata":{}}`)
		compare(t, no(`you must provide labels: {"team"}`), e.Validate(t.Context(), r))
		if r.Object.Raw != nil {
			t.Error("the request has another object now")
		}
		r.Object.Raw = []byte(`{"metadata":{"labels":{"team":"a"}}}`)
		compare(t, no(`you must provide labels: {"team"}`), e.Validate(t.Context(), r))
		r.Object.Raw, r.OldObject.Raw = nil, nil
		compare(t, denied(500, "InternalError", `plugin "labels": the request to delete an object does not have it: want oldObject`), e.Validate(t.Context(), r))
	})
	t.Run("Gatekeeper, limits", func(t *testing.T) {
		e := policy("limits", "k8scontainerlimits/violation", `{"cpu":"200m","memory":"1Gi"}`, false)
		compare(t, allowed(), e.Validate(t.Context(), pod(`{}`, `[{"name":"a","resources":{"limits":{"cpu":"100m","memory":"512Mi"}}}]`)))
		compare(t, no("container <a> cpu limit <1> is higher than the maximum allowed of <200m>, container <a> memory limit <2G> is higher than the maximum allowed of <1Gi>"),
			e.Validate(t.Context(), pod(`{}`, `[{"name":"a","resources":{"limits":{"cpu":"1","memory":"2G"}}}]`)))
	})
	t.Run("OPA, a review as decision and settings as data", func(t *testing.T) {
		e := policy("registries", "policy/main", `{"labels":["team"],"registries":["registry.example.com/"]}`, false)
		want := allowed()
		want.Warnings = []string{"container a: the tag latest may be another image tomorrow"}
		compare(t, want, e.Validate(t.Context(), pod(`{"team":"a"}`, `[{"name":"a","image":"registry.example.com/a:latest"}]`)))
		compare(t, denied(422, "", `container 0: image nginx comes from nowhere, missing label "team"`), e.Validate(t.Context(), pod(`{}`, `[{"image":"nginx"}]`)))
	})
	t.Run("OPA, a set of messages", func(t *testing.T) {
		e := policy("deny", "kubernetes/admission/deny", "", false)
		r := requestOf("")
		r.UserInfo.Groups = []string{"dev"}
		r.Operation, r.Object.Raw, r.OldObject.Raw = admissionv1.Delete, nil, []byte(`{"metadata":{"annotations":{"protected":"true"}}}`)
		compare(t, allowed(), e.Validate(t.Context(), pod(`{}`, `[]`)))
		compare(t, no("shop/web is protected, alice"), e.Validate(t.Context(), r))
	})
	t.Run("OPA, a patch", func(t *testing.T) {
		e := policy("patch", "mutation/main", "", true)
		if got := e.Mutate(t.Context(), requestOf(`{"metadata":{}}`)); string(got.Patch) != `[{"op":"add","path":"/metadata/labels","value":{"team":"none"}}]` {
			t.Errorf("patch is %s, %+v", got.Patch, got.Result)
		}
		compare(t, allowed(), e.Mutate(t.Context(), requestOf(`{"metadata":{"labels":{"team":"a"}}}`)))
	})
	t.Run("large objects", func(t *testing.T) {
		e := policy("labels", "k8srequiredlabels/violation", `{"labels":[{"key":"team"}]}`, false)
		for range 5 {
			compare(t, allowed(), e.Validate(t.Context(), requestOf(`{"metadata":{"labels":{"team":"a"}},"data":"`+strings.Repeat("x", 3<<20)+`"}`)))
		}
	})
}

// What Rego 1 makes of a rule "violation[x] if" is an object whose keys are the
// violations.
func TestRegoViolationsThatAreKeys(t *testing.T) {
	cfg := config(t, "p", regoSource(t, "p/violation", `package p
violation[{"msg": msg, "details": {"missing": key}}] if {
	some key in input.parameters.labels
	not input.review.object.metadata.labels[key]
	msg := sprintf("label \"%s\" is missing", [key])
}
`))
	cfg.GuestConfig = []byte(`{"labels":["team","tier"]}`)
	e := admission.NewEngine(load(t, cfg))
	compare(t, allowed(), e.Validate(t.Context(), requestOf(`{"metadata":{"labels":{"team":"a","tier":"b"}}}`)))
	compare(t, denied(403, "Forbidden", `label "team" is missing, label "tier" is missing`), e.Validate(t.Context(), requestOf(`{"metadata":{}}`)))
}

// What a policy prints and says as it gives up outlives its call, like its verdict.
func TestWhatAPolicyPrints(t *testing.T) {
	log := guarded.NewLog()
	cfg := config(t, "prints", "testdata/opa/prints.wasm")
	cfg.Logger = slog.New(log)
	e := admission.NewEngine(load(t, cfg))
	compare(t, denied(403, "Forbidden", "what it denies with"), e.Validate(t.Context(), requestOf(`{}`)))
	compare(t, denied(500, "InternalError", `plugin "prints": opa_eval trapped: call env.opa_abort: the policy gave up: what it gives up with`),
		e.Validate(t.Context(), requestOf(`{"a":"`+strings.Repeat("x", 2000)+`"}`)))
	_, got, _ := strings.Cut(log.String(), "\n") // The first line tells of the load.
	first, second, _ := strings.Cut(got, "\nlevel=INFO msg=\"policy denied the request\" ")
	_, second, _ = strings.Cut(second, "\n")
	if want := "level=INFO msg=\"what it prints\" plugin=prints"; first != want || !strings.HasPrefix(second, want+"\nlevel=ERROR msg=\"the guest trapped\" ") {
		t.Errorf("log is %s", got)
	}
}

// regoSource compiles a policy that a test has written down.
func regoSource(t testing.TB, entrypoint, source string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policy.rego")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	policies, err := filepath.Abs("testdata/rego")
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(policies, file)
	if err != nil {
		t.Fatal(err)
	}
	return rego(t, entrypoint, relative)
}

func TestRegoThatNeedsMoreThanThereIs(t *testing.T) {
	file := regoSource(t, "p/main", `package p
main contains x if { r := http.send({"method": "get", "url": "http://example.com"}); x := r.body }
main contains x if x := opa.runtime().env.HOME
main contains x if x := graphql.is_valid("a", "b")
main contains x if some x in net.lookup_ip_addr("localhost")
`)
	_, err := loadPlugin(t.Context(), shared, config(t, "p", file))
	if want := `plugin "p": probe: the policy needs builtins that this host does not have: graphql.is_valid, http.send, net.lookup_ip_addr, opa.runtime`; err == nil || err.Error() != want {
		t.Errorf("error is %v\nwant %s", err, want)
	}
}

// A policy is told of the time, and of what is random, if it is granted that: what it
// would decide by otherwise was never so.
func TestRegoIsGrantedTheClockAndRandomness(t *testing.T) {
	file := regoSource(t, "p/main", `package p
main contains "another time" if time.now_ns() != now
main contains "no time" if now < 1767225600000000000
main contains "another number" if rand.intn("a", 1000000000) != number
main contains "no number" if not number < 1000000000
main contains "the same number" if rand.intn("b", 1000000000) == number
main contains "another id" if uuid.rfc4122("a") != id
main contains sprintf("%d %v", [number, id]) if { uuid.parse(id).version == 4; input.request.object.show }
now := time.now_ns()
number := rand.intn("a", 1000000000)
id := uuid.rfc4122("a")
`)
	cfg := config(t, "p", file)
	for _, test := range []struct {
		grants []string
		want   string
	}{
		{nil, `rand.intn, by the grant "random"; time.now_ns, by the grant "clock"; uuid.rfc4122, by the grant "random"`},
		{[]string{host.GrantClock}, `rand.intn, by the grant "random"; uuid.rfc4122, by the grant "random"`},
		{[]string{host.GrantRandom}, `time.now_ns, by the grant "clock"`},
	} {
		cfg.Grants = test.grants
		_, err := loadPlugin(t.Context(), shared, cfg)
		if want := `plugin "p": probe: the policy needs builtins that grants of its configuration must allow: ` + test.want; err == nil || err.Error() != want {
			t.Errorf("error is %v\nwant %s", err, want)
		}
	}
	cfg.Grants = []string{host.GrantClock, host.GrantRandom}
	e := admission.NewEngine(load(t, cfg))
	said := map[string]bool{}
	for range 5 {
		compare(t, allowed(), e.Validate(t.Context(), requestOf(`{}`)))
		got := e.Validate(t.Context(), requestOf(`{"show":true}`))
		if got.Allowed || said[got.Result.Message] {
			t.Errorf("answer is %+v", got.Result)
		} else {
			said[got.Result.Message] = true
		}
	}
}

// Before ABI 1.2 there was no opa_eval.
func TestRegoOfAnOlderCompiler(t *testing.T) {
	module, err := os.ReadFile(rego(t, "k8srequiredlabels/violation", "labels.rego"))
	if err != nil {
		t.Fatal(err)
	}
	without := func(module []byte, export string) host.Source {
		name := string(rune(len(export))) + export
		if !bytes.Contains(module, []byte(name)) {
			t.Fatalf("the module has no %s", export)
		}
		return host.Bytes(bytes.ReplaceAll(module, []byte(name), []byte(name[:1]+strings.Repeat("x", len(export)))))
	}
	cfg := pluginConfig{Config: host.Config{Name: "labels", Module: host.ModuleConfig{Source: without(module, "opa_eval")}, GuestConfig: []byte(`{"labels":[{"key":"team"}]}`)}}
	e := admission.NewEngine(load(t, cfg))
	for range 50 {
		compare(t, denied(403, "Forbidden", `you must provide labels: {"team"}`), e.Validate(t.Context(), requestOf(`{"metadata":{"labels":{"x":"y"}}}`)))
		compare(t, allowed(), e.Validate(t.Context(), requestOf(`{"metadata":{"labels":{"team":"a"}},"data":"`+strings.Repeat("x", 1<<20)+`"}`)))
	}
	neither, err := without(module, "opa_eval").Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cfg.Module.Source = without(neither, "opa_eval_ctx_get_result")
	const want = `plugin "labels": probe: the module exports neither opa_eval nor opa_eval_ctx_get_result: it is of no ABI that this host knows`
	if _, err := loadPlugin(t.Context(), shared, cfg); err == nil || err.Error() != want {
		t.Errorf("error is %v\nwant %s", err, want)
	}
}

// A module for Gatekeeper is known by its configuration or by Kubewarden's
// metadata, if not by its entrypoint.
func TestRegoForGatekeeperUnderAnotherName(t *testing.T) {
	file := regoSource(t, "p/main", `package p
main contains {"msg": msg} if { msg := concat(" ", [input.parameters.greeting, input.review.name]) }
`)
	module, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const name, metadata = "io.kubewarden.metadata", `{"executionMode":"gatekeeper"}`
	section := string(rune(len(name))) + name + metadata
	described := string(module) + "\x00" + string(rune(len(section))) + section
	for what, cfg := range map[string]pluginConfig{
		"configured": {Config: host.Config{Module: host.ModuleConfig{File: file}}, Gatekeeper: true},
		"described":  {Config: host.Config{Module: host.ModuleConfig{Bytes: []byte(described)}}},
	} {
		cfg.Name, cfg.GuestConfig = "p", []byte(`{"greeting":"hello"}`)
		compare(t, denied(403, "Forbidden", "hello web"), admission.NewEngine(load(t, cfg)).Validate(t.Context(), requestOf(`{}`)))
		t.Log(what)
	}
}

// The form in which dialects get requests is that of Kubernetes.
func TestDialectsGetWholeRequests(t *testing.T) {
	cfg := config(t, "policy", buildC(t, "testdata/kubewarden/policy.c"))
	e := admission.NewEngine(load(t, cfg))
	yes := true
	r := mode("mode-echo")
	r.OldObject.Raw, r.Options.Raw, r.DryRun, r.SubResource = []byte(`{"old":1}`), []byte(`{"o":2}`), &yes, "status"
	r.RequestKind, r.RequestResource, r.RequestSubResource = &metav1.GroupVersionKind{Group: "g", Version: "v", Kind: "k"}, &metav1.GroupVersionResource{Group: "g", Version: "v", Resource: "r"}, "s"
	r.UserInfo.Groups, r.UserInfo.UID = []string{"a", "b"}, "u"
	var got struct {
		Request admissionv1.AdmissionRequest `json:"request"`
	}
	if err := json.Unmarshal([]byte(strings.TrimPrefix(e.Validate(t.Context(), r).Result.Message, "policy: ")), &got); err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	have, err := json.Marshal(got.Request)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != string(want) {
		t.Errorf("request is %s\nwant %s", have, want)
	}
}

// A policy that looks for objects that it is not given would find none, and allow.
func TestPoliciesThatLookObjectsUp(t *testing.T) {
	const unique = `package p
violation contains {"msg": msg} if {
	other := data.inventory.namespace[_][_].Ingress[name]
	other.spec.host == input.review.object.spec.host
	msg := sprintf("%s has that host", [name])
}
`
	tests := []struct {
		name, entrypoint, source, settings, want string
	}{
		{"Gatekeeper's inventory", "p/violation", unique, `{"inventory":{}}`, "data.inventory, and contextAwareResources of its configuration name no kinds of them"},
		{"the inventory as a whole", "p/violation", "package p\nviolation contains {\"msg\": \"no\"} if count(data.inventory) > 0\n", "", "data.inventory, and contextAwareResources"},
		{"the inventory, in a function", "p/main", "package p\nmain contains \"no\" if f(input.request.name)\nf(name) if data.inventory.cluster.v1.Namespace[name]\n", "", "data.inventory, which this host does not fill"},
		{"OPA's objects of Kubernetes", "p/main", "package p\nmain contains \"no\" if some ns in data.kubernetes.namespaces\n", "", "data.kubernetes, and contextAwareResources"},
		{"what the settings have", "p/main", "package p\nmain contains \"no\" if some ns in data.kubernetes.namespaces\n", `{"kubernetes":{"namespaces":[]}}`, ""},
		{"other data", "p/main", "package p\nmain contains \"no\" if data.labels\n", "", ""},
		{"the same names elsewhere", "kubernetes/inventory/main", `package kubernetes.inventory
main contains "no" if input.request.object.inventory.kubernetes
main contains "no" if other.inventory.kubernetes
other := {"inventory": {"kubernetes": input.request.object.labels.inventory}}
`, "", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cfg := config(t, "p", regoSource(t, test.entrypoint, test.source))
			cfg.GuestConfig = []byte(test.settings)
			_, err := loadPlugin(t.Context(), shared, cfg)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, want %s", err, test.want)
			}
		})
	}
}

// Metadata name the kinds that a policy of Kubewarden looks up.
func TestContextAwareResourcesOfMetadata(t *testing.T) {
	const name = "io.kubewarden.metadata"
	kinds := []capabilities.Kind{{APIVersion: "v1", Kind: "Namespace"}, {APIVersion: "apps/v1", Kind: "Deployment"}}
	both := `{"contextAwareResources":[{"apiVersion":"v1","kind":"Namespace"},{"apiVersion":"apps/v1","kind":"Deployment"}]}`
	tests := []struct {
		name, guest, metadata string
		granted               []capabilities.Kind
		cluster               admission.Cluster
		want                  string
	}{
		{"all granted", "wapc", both, kinds, cluster{}, ""},
		{"one is not", "wapc", both, kinds[:1], cluster{}, "contextAwareResources of its configuration does not grant: apps/v1 Deployment"},
		{"none is", "wapc", both, nil, nil, "contextAwareResources of its configuration does not grant: v1 Namespace, apps/v1 Deployment"},
		{"no cluster", "wapc", both, kinds, nil, "the host has no cluster to look at"},
		{"a program", "wasi", both, kinds[:1], cluster{}, "contextAwareResources of its configuration does not grant: apps/v1 Deployment"},
		{"Rego", "opa", both, kinds[:1], cluster{}, "contextAwareResources of its configuration does not grant: apps/v1 Deployment"},
		{"Rego without a cluster", "opa", both, kinds, nil, "dialect.rego: contextAwareResources need a cluster to look at, which the server does not have"},
		{"nothing to look up", "wapc", `{"contextAwareResources":[]}`, nil, nil, ""},
		{"two lists", "wapc", `{"contextAwareResources":[{"apiVersion":"v1","kind":"Namespace"}],"contextAwareResources":[]}`, nil, nil, `duplicate field "contextAwareResources"`},
		{"no metadata at all", "wapc", `metadata`, nil, nil, "read the custom section io.kubewarden.metadata"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			module := saying(t, test.guest, `{"valid":true}`)
			section := append([]byte{byte(len(name))}, name+test.metadata...)
			module = append(binary.AppendUvarint(append(module, 0), uint64(len(section))), section...)
			cfg := pluginConfig{Config: host.Config{Name: "p", Module: host.ModuleConfig{Bytes: module}}, Cluster: test.cluster, Scope: capabilities.Scope{ContextAwareResources: test.granted}}
			if test.granted != nil && test.guest != "opa" {
				cfg.HostCapabilities = []string{"kubernetes/get_resource"}
			}
			_, err := loadPlugin(t.Context(), shared, cfg)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, want %s", err, test.want)
			}
		})
	}
}
