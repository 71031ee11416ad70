package admission_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
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
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/guarded"
)

func TestStellar(t *testing.T) {
	log := guarded.NewLog()
	cfg := config(t, "stellar", buildC(t, "testdata/stellar/validator.c"))
	cfg.Logger = slog.New(log)
	p := load(t, cfg)
	if p.Dialect() != "stellar" {
		t.Fatalf("dialect is %q", p.Dialect())
	}
	e := admission.NewEngine(p)
	withWarning := allowed()
	withWarning.Warnings = []string{"fine"}
	withErrors := denied(409, "Conflict", `two mistakes; spec.replicas: Invalid value: 7: must be at most 5; spec.name: odd`)
	withErrors.Result.Code = 422
	withErrors.Warnings, withErrors.AuditAnnotations = []string{"careful"}, map[string]string{"stellar.checked": "yes"}
	withErrors.Result.Details = &metav1.StatusDetails{Name: "web", Kind: "Pod", Causes: []metav1.StatusCause{
		{Type: metav1.CauseTypeFieldValueInvalid, Field: "spec.replicas", Message: "Invalid value: 7: must be at most 5"},
		{Type: "Peculiar", Field: "spec.name", Message: "odd"},
	}}
	failed := func(message string) *admissionv1.AdmissionResponse {
		return denied(500, "InternalError", `plugin "stellar": `+message)
	}
	tests := []struct {
		name string
		want *admissionv1.AdmissionResponse
	}{
		{"mode-none", withWarning},
		{"mode-silent", allowed()},
		{"mode-code", denied(403, "Forbidden", "Plugin returned error code: -7")},
		{"mode-errors", withErrors},
		{"mode-bad", failed("read its output: allowed is missing")},
		{"mode-trap", failed("validate trapped: wasm error: unreachable")},
		{"mode-loop", failed("validate trapped: out of fuel: limit of 1000000")},
		{"mode-bounds", allowed()},
		{"mode-echo", denied(403, "Forbidden", `{"operation":"CREATE","object":{"metadata":{"name":"web","annotations":{"mode":"mode-echo"}}},"namespace":"shop","name":"web","userInfo":{"username":"alice","groups":[],"extra":{}},"context":{}}`)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := e.Validate(t.Context(), mode(test.name))
			if got.Result != nil && test.name == "mode-loop" && strings.Contains(got.Result.Message, "out of fuel") {
				got.Result.Message = test.want.Result.Message
			}
			compare(t, test.want, got)
		})
	}
	t.Run("mode-grow", func(t *testing.T) {
		// To grow costs fuel, so that much of it is not to be had for the usual.
		cfg := cfg
		cfg.Limits.Fuel = 10_000_000
		compare(t, allowed(), admission.NewEngine(load(t, cfg)).Validate(t.Context(), mode("mode-grow")))
	})
	if !strings.Contains(log.String(), "level=DEBUG msg=asked plugin=stellar") {
		t.Errorf("log is %s", log.String())
	}
	limits := host.Limits{MemoryBytes: 16 << 20}
	if inst, err := p.Guest().Acquire(t.Context()); err != nil {
		t.Error(err)
	} else {
		if got := inst.Limits(); got.MemoryBytes != limits.MemoryBytes || got.Fuel != 1_000_000 || got.Timeout.Seconds() != 1 {
			t.Errorf("limits are %+v", got)
		}
		inst.Release()
	}
}

// The webhook that Stellar plugins were written for has SIMD, and no threads.
func TestStellarFeatures(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plugin.c")
	const source = `typedef int lanes __attribute__((vector_size(16)));
__attribute__((import_module("env"), import_name("get_input_len"))) int get_input_len(void);
__attribute__((export_name("validate"))) int validate(void) {
  int n = get_input_len();
  lanes a = {n, n, n, n}, b = {1, 2, 3, 4};
  a *= b;
  return a[0] + a[1] + a[2] + a[3] - 10 * n;
}`
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	simd := buildC(t, file, "-msimd128")
	compare(t, allowed(), admission.NewEngine(load(t, config(t, "simd", simd))).Validate(t.Context(), requestOf(`{}`)))

	threads := buildC(t, file, "-matomics", "-mbulk-memory", "-Wl,--shared-memory,--max-memory=131072")
	if _, err := admission.Load(t.Context(), shared, config(t, "threads", threads)); err == nil || !strings.Contains(err.Error(), "unsupported feature: threads") {
		t.Errorf("error is %v", err)
	}
}

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
