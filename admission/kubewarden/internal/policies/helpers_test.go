package policies_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	arv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/shadow"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
)

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

// load loads a plugin and closes it with the test.
func load(t testing.TB, cfg pluginConfig) *admission.Plugin {
	t.Helper()
	p, err := loadPlugin(t.Context(), shared, cfg)
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

// objects are what a plugin may look up in a test. Without any they are not known.
type objects struct {
	mu        sync.Mutex
	list      []*host.Object
	err       error
	snapshots int
	open      int
}

func (o *objects) Snapshot() ([]*host.Object, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.snapshots++
	return o.list, o.err
}

func (o *objects) set(err error, list ...*host.Object) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list, o.err = list, err
}

func (o *objects) Wait(context.Context) error { return o.err }

func (o *objects) Close() { o.open-- }

// keeper is a cluster that keeps objects by resource and namespace: "v1/pods" and
// "v1/pods shop".
type keeper struct {
	cluster
	kept map[string]*objects
}

func (k *keeper) Keep(resource schema.GroupVersionResource, namespace string, _ host.ObjectQuery) host.Objects {
	key := strings.TrimSpace(strings.TrimPrefix(resource.GroupVersion().String()+"/"+resource.Resource, "/") + " " + namespace)
	if k.kept[key] == nil {
		k.kept[key] = &objects{}
	}
	k.kept[key].open++
	return k.kept[key]
}

func ingress(namespace, name, hostName string) *host.Object {
	return &host.Object{Namespace: namespace, Name: name, JSON: fmt.Appendf(nil,
		`{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","metadata":{"name":%q,"namespace":%q},"spec":{"rules":[{"host":%q}]}}`, name, namespace, hostName)}
}

// hostRequest is the creation of an Ingress.
func hostRequest(host string) *admissionv1.AdmissionRequest {
	r := requestOf(string(ingress("shop", "new", host).JSON))
	r.Kind.Group, r.Kind.Kind, r.Name = "networking.k8s.io", "Ingress", "new"
	return r
}

func fetched(t testing.TB, source host.Source) []byte {
	t.Helper()
	module, err := source.Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// verdicts are what guests of other ABIs always answer.
var verdicts = map[string]string{
	"opa":     `[{"result":["no"]}]`,
	"stellar": `{"allowed":false,"message":"no"}`,
	"wapc":    `{"accepted":false,"message":"no"}`,
	"wasi":    `{"valid":true,"accepted":false,"message":"no"}`,
}

func TestShadowOfAPolicyThatAsksItsHost(t *testing.T) {
	resolver := &counting{}
	provider, err := capabilities.NewProvider(capabilities.Config{Resolver: resolver})
	if err != nil {
		t.Fatal(err)
	}
	cfg := config(t, "asks", buildC(t, "testdata/kubewarden/asks.c"))
	cfg.Capabilities, cfg.Scope = provider, capabilities.Scope{HostCapabilities: []string{"net/*"}, HostNames: []string{"*.example.com"}}
	cfg.Shadow = shadowing("")
	cfg.Shadow.Module.Source = cfg.Module.Source
	p := load(t, cfg)
	await(t, p.Shadow(), "running", running)
	engine := admission.NewEngine(p)
	const calls = 3
	for n := range calls {
		engine.Validate(t.Context(), asked("net/v1/dns_lookup_host", fmt.Sprintf(`"%d.example.com"`, n)))
	}
	engine.Validate(t.Context(), asked("net/v1/dns_lookup_host", `"example.org"`)) // Is refused, and so is the candidate.
	got := await(t, p.Shadow(), "all calls", func(s shadow.Status) bool { return s.Compared+s.Failed+s.Uncompared+s.Asked == calls+1 })
	if got.Same != calls+1 {
		t.Errorf("got %+v", got)
	}
	stats := provider.Stats()
	var counted uint64
	for _, c := range stats.Calls {
		counted += c.Count
	}
	if resolver.n.Load() != calls || stats.Hits != 0 || counted != calls+1 {
		t.Errorf("%d questions are asked, %d had an answer in the cache, %d are counted", resolver.n.Load(), stats.Hits, counted)
	}
}

// shadowing is a shadow that takes every call, and all of a processor.
func shadowing(guestConfig string) *shadow.Config {
	return &shadow.Config{Rate: 1, CPU: 1, GuestConfig: host.GuestConfig(guestConfig)}
}

// await waits until a shadow is as a test wants it.
func await(t testing.TB, s *shadow.Shadow, what string, is func(shadow.Status) bool) shadow.Status {
	t.Helper()
	for {
		status := s.Status()
		if is(status) {
			return status
		}
		if status.State == shadow.Stopped && what != "stopped" {
			t.Fatalf("want %s, the shadow has stopped: %s", what, status.Reason)
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("want %s, have %+v", what, status)
		case <-time.After(time.Millisecond):
		}
	}
}

func running(s shadow.Status) bool { return s.State == shadow.Running }

// withSection returns a module with a custom section at its end.
func withSection(module []byte, name, contents string) []byte {
	body := append(binary.AppendUvarint(nil, uint64(len(name))), name+contents...)
	return append(binary.AppendUvarint(append(module[:len(module):len(module)], 0), uint64(len(body))), body...)
}

// rule is a rule of a configuration, of operations and resources with commas.
func rule(operations, group, version, resources string) arv1.RuleWithOperations {
	r := arv1.RuleWithOperations{Rule: arv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: strings.Split(resources, ",")}}
	for _, o := range strings.Split(operations, ",") {
		r.Operations = append(r.Operations, arv1.OperationType(o))
	}
	return r
}

// review returns an AdmissionReview of the object, as an API server writes it.
func review(uid, object string) string {
	return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"` + uid +
		`","kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},` +
		`"name":"web","namespace":"shop","operation":"CREATE","userInfo":{"username":"alice","groups":["dev"]},` +
		`"object":` + object + `,"oldObject":null,"dryRun":false,"options":{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}}}`
}

// post sends a body and returns the answer's status and body.
func post(t testing.TB, url, contentType string, body io.Reader) (int, string) {
	t.Helper()
	resp, err := http.Post(url, contentType, body)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(out)
}

// postReview sends a review and returns the response in the answer.
func postReview(t testing.TB, url, body string) *admissionv1.AdmissionResponse {
	t.Helper()
	code, out := post(t, url, "application/json", strings.NewReader(body))
	if code != http.StatusOK {
		t.Fatalf("status %d: %s", code, out)
	}
	var r admissionv1.AdmissionReview
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if r.APIVersion != "admission.k8s.io/v1" || r.Kind != "AdmissionReview" || r.Request != nil || r.Response == nil {
		t.Fatalf("answer is %s", out)
	}
	return r.Response
}

func serve(t testing.TB, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}
