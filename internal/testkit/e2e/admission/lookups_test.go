package admission_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/admission/kubewarden"
	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities"
	"github.com/kubewasm/kubewasm/admission/rego"
	"github.com/kubewasm/kubewasm/admission/webhook/clustercache"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
	"github.com/kubewasm/kubewasm/internal/testkit/e2e/cluster"
)

// watches counts the watches that a client has open, by the paths of their resources.
type watches struct {
	next http.RoundTripper

	mu   sync.Mutex
	open map[string]int
}

func (w *watches) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := w.next.RoundTrip(r)
	if err != nil || r.URL.Query().Get("watch") == "" {
		return resp, err
	}
	w.add(r.URL.Path, 1)
	resp.Body = &watchBody{resp.Body, sync.OnceFunc(func() { w.add(r.URL.Path, -1) })}
	return resp, nil
}

func (w *watches) add(path string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open[path] += n
}

func (w *watches) of(path string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open[path]
}

type watchBody struct {
	io.ReadCloser
	closed func()
}

func (b *watchBody) Close() error {
	b.closed()
	return b.ReadCloser.Close()
}

// hosts is a policy for Gatekeeper: no two Ingresses have one host.
const hosts = `package p
violation contains {"msg": msg} if {
	some ns, name
	other := data.inventory.namespace[ns]["networking.k8s.io/v1"]["Ingress"][name]
	not same(ns, name)
	other.spec.rules[_].host == input.review.object.spec.rules[_].host
	msg := sprintf("host is that of %s/%s", [ns, name])
}
same(ns, name) if { ns == input.review.namespace; name == input.review.name }
`

// images is a policy for OPA itself.
const images = `package p
main contains msg if {
	some d in data.kubernetes.deployments.shop
	msg := sprintf("%s has %s", [d.metadata.name, d.spec.template.spec.containers[_].image])
}
`

// lookups are policies that look objects up in a real API server.
type lookups struct {
	*cluster.Cluster
	rt      *host.Runtime
	objects *clustercache.Cluster
	watches *watches
	// kubewarden is the module of admission/kubewarden/internal/policies/testdata/kubewarden/policy.c.
	kubewarden string
}

func (l *lookups) load(t *testing.T, cfg admission.PluginConfig) *admission.Plugin {
	t.Helper()
	cfg.Name, cfg.Cluster = "p", l.objects
	p, err := admission.Load(t.Context(), l.rt, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// configured returns cfg with the configuration of a dialect.
func configured(t *testing.T, cfg admission.PluginConfig, member string, of any) admission.PluginConfig {
	t.Helper()
	text, err := json.Marshal(of)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Dialect = dialect.Config{member: text}
	return cfg
}

// asks returns the policy that asks what its settings say, for the kinds that it may see.
func (l *lookups) asks(t *testing.T, what string, kinds ...capabilities.Kind) *admission.Plugin {
	t.Helper()
	provider, err := capabilities.NewProvider(capabilities.Config{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := admission.PluginConfig{Config: host.Config{Module: host.ModuleConfig{File: l.kubewarden}, GuestConfig: []byte(`{"is":"` + what + `"}`)}}
	cfg.Dialects = kubewarden.New(kubewarden.Options{Cluster: l.objects, Capabilities: provider})
	return l.load(t, configured(t, cfg, kubewarden.Member, capabilities.Scope{HostCapabilities: []string{"kubernetes/*"}, ContextAwareResources: kinds}))
}

// rego returns a policy in Rego.
func (l *lookups) rego(t *testing.T, entrypoint, source string, kinds ...capabilities.Kind) *admission.Plugin {
	t.Helper()
	dir := t.TempDir()
	file, out := filepath.Join(dir, "policy.rego"), filepath.Join(dir, "policy.wasm")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", ".", "-e", entrypoint, "-o", out, file)
	cmd.Dir = "../../rego"
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	cfg := admission.PluginConfig{Config: host.Config{Module: host.ModuleConfig{File: out}}}
	cfg.Dialects = []*dialect.Dialect{rego.New(rego.Options{Cluster: l.objects})}
	return l.load(t, configured(t, cfg, rego.Member, rego.Config{ContextAwareResources: kinds}))
}

// said returns what a policy says to the creation of an object, empty if it allows it.
func said(t *testing.T, p *admission.Plugin, object any) string {
	t.Helper()
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	r := &admissionv1.AdmissionRequest{UID: "u", Operation: admissionv1.Create, Namespace: "shop", Name: "new"}
	r.Kind.Version, r.Kind.Kind, r.Resource.Version, r.Resource.Resource = "v1", "Ingress", "v1", "ingresses"
	r.Kind.Group, r.Resource.Group = "networking.k8s.io", "networking.k8s.io"
	r.Object.Raw = raw
	response := admission.NewEngine(p).Validate(t.Context(), r)
	if response.Allowed {
		return ""
	}
	return response.Result.Message
}

func ingressOf(namespace, name, host string) *networkingv1.Ingress {
	return &networkingv1.Ingress{
		TypeMeta: metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "Ingress"}, ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: host}}},
	}
}

func deploymentOf(namespace, name, image string) *appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}}},
	}}
}

// TestPoliciesLookObjectsUp asks a real API server: by the operations of Kubewarden, with field
// masks and fresh, and by the inventories of policies in Rego.
func TestPoliciesLookObjectsUp(t *testing.T) {
	c := cluster.Start(t, nil)
	create := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"shop", "bank"} {
		create(c.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))
	}
	create(c.Client.AppsV1().Deployments("shop").Create(t.Context(), deploymentOf("shop", "db", "db:1"), metav1.CreateOptions{}))
	create(c.Client.AppsV1().Deployments("bank").Create(t.Context(), deploymentOf("bank", "web", "web:1"), metav1.CreateOptions{}))
	create(c.Client.NetworkingV1().Ingresses("bank").Create(t.Context(), ingressOf("bank", "a", "a.example.com"), metav1.CreateOptions{}))
	create(c.Client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "makes-pods"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"create"}, APIGroups: []string{""}, Resources: []string{"pods"}}},
	}, metav1.CreateOptions{}))

	rt, err := host.NewRuntime(compiled.Config())
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.Background())
	l := &lookups{Cluster: c, rt: rt, watches: &watches{open: map[string]int{}}, kubewarden: kubewardenModule(t)}
	config := rest.CopyConfig(c.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		l.watches.next = next
		return l.watches
	})
	if l.objects, err = clustercache.NewForConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name string
		run  func(*testing.T, *lookups)
	}{
		{"by Kubewarden's operations", testOperations},
		{"in the inventory of Gatekeeper", testInventory},
		{"in data.kubernetes", testDataKubernetes},
		{"without the right to list", testWithoutRight},
		{"watches end with the policies", testWatchesEnd},
	} {
		t.Run(step.name, func(t *testing.T) { step.run(t, l) })
	}
}

var (
	namespaces  = capabilities.Kind{APIVersion: "v1", Kind: "Namespace"}
	deployments = capabilities.Kind{APIVersion: "apps/v1", Kind: "Deployment"}
	shopOnly    = capabilities.Kind{APIVersion: "apps/v1", Kind: "Deployment", Namespaces: []string{"shop"}}
	ingresses   = capabilities.Kind{APIVersion: "networking.k8s.io/v1", Kind: "Ingress"}
)

func testOperations(t *testing.T, l *lookups) {
	for _, tt := range []struct {
		name, what string
		kinds      []capabilities.Kind
		want       []string // Parts of the answer.
		not        string   // A part that it must not have.
	}{
		{"an object", "mode-get", []capabilities.Kind{namespaces}, []string{`"kind":"Namespace"`, `"name":"shop"`, `"phase":"Active"`}, "managedFields"},
		{"an object that is not there", "mode-absent", []capabilities.Kind{namespaces}, []string{"there is no Namespace none"}, `"kind"`},
		{"a fresh object by a field mask", "mode-part", []capabilities.Kind{deployments}, []string{`"kind":"Deployment"`}, "strategy"},
		{"objects of a namespace by a selector", "mode-list", []capabilities.Kind{shopOnly}, []string{`"name":"db"`, `"image":"db:1"`}, `"name":"web"`},
		{"objects of a namespace that it may not see", "mode-elsewhere", []capabilities.Kind{shopOnly}, []string{"may not see"}, `"name":"web"`},
		{"all objects where it may see one namespace", "mode-everywhere", []capabilities.Kind{shopOnly}, []string{"of some namespaces, not of all"}, `"name":"web"`},
		{"all objects", "mode-everywhere", []capabilities.Kind{deployments}, []string{`"name":"db"`, `"name":"web"`}, "managedFields"},
		{"a right that a user does not have", "mode-can-i", nil, []string{`"allowed":false`}, ""},
	} {
		p := l.asks(t, tt.what, tt.kinds...)
		got := said(t, p, ingressOf("shop", "new", "x"))
		for _, want := range tt.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: got %s, want %s", tt.name, got, want)
			}
		}
		if tt.not != "" && strings.Contains(got, tt.not) {
			t.Errorf("%s: got %s with %s", tt.name, got, tt.not)
		}
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	// The API server's answer changes with its rules. That of before is kept for 5 s.
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "alice"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "makes-pods"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "alice"}},
	}
	if _, err := l.Client.RbacV1().RoleBindings("shop").Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p := l.asks(t, "mode-can-i")
	defer p.Close(context.Background())
	eventually(t, "the right of alice", func() bool { return strings.Contains(said(t, p, ingressOf("shop", "new", "x")), `"allowed":true`) })
}

func testInventory(t *testing.T, l *lookups) {
	p := l.rego(t, "p/violation", hosts, ingresses)
	defer p.Close(context.Background())
	asked := ingressOf("shop", "new", "a.example.com")
	if got, want := said(t, p, asked), "p: host is that of bank/a"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	// An object that changes counts as soon as the API server tells of it.
	other, err := l.Client.NetworkingV1().Ingresses("bank").Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	other.Spec.Rules[0].Host = "b.example.com"
	if _, err := l.Client.NetworkingV1().Ingresses("bank").Update(t.Context(), other, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the changed host", func() bool { return said(t, p, asked) == "" })
	if got, want := said(t, p, ingressOf("shop", "new", "b.example.com")), "p: host is that of bank/a"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func testDataKubernetes(t *testing.T, l *lookups) {
	p := l.rego(t, "p/main", images, deployments)
	defer p.Close(context.Background())
	if got, want := said(t, p, ingressOf("shop", "new", "x")), "p: db has db:1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// testWithoutRight asks with a user that may see nothing: each policy fails, and
// says that it is for the rights of the server.
func testWithoutRight(t *testing.T, l *lookups) {
	config := rest.CopyConfig(l.Config)
	config.Impersonate.UserName = "nobody"
	objects, err := clustercache.NewForConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	without := &lookups{Cluster: l.Cluster, rt: l.rt, objects: objects, watches: l.watches, kubewarden: l.kubewarden}
	for name, p := range map[string]*admission.Plugin{
		"waPC": without.asks(t, "mode-everywhere", deployments), "fresh": without.asks(t, "mode-part", deployments), "Rego": without.rego(t, "p/violation", hosts, ingresses),
	} {
		if got := said(t, p, ingressOf("shop", "new", "x")); !strings.Contains(got, "the server's RBAC does not allow it") && !strings.Contains(got, "look up objects") {
			t.Errorf("%s: got %q, want the server's lack of rights", name, got)
		}
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func testWatchesEnd(t *testing.T, l *lookups) {
	const path = "/apis/apps/v1/deployments"
	open := func(want int) {
		t.Helper()
		eventually(t, "watches of Deployments", func() bool { return l.watches.of(path) == want })
	}
	open(0) // Those of the steps before have ended.
	first, second := l.asks(t, "mode-everywhere", deployments), l.asks(t, "mode-everywhere", deployments)
	for _, p := range []*admission.Plugin{first, second} {
		if got := said(t, p, ingressOf("shop", "new", "x")); !strings.Contains(got, `"name":"db"`) {
			t.Errorf("got %s", got)
		}
	}
	open(1)
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := said(t, second, ingressOf("shop", "new", "x")); !strings.Contains(got, `"name":"db"`) {
		t.Errorf("got %s", got)
	}
	open(1)
	if err := second.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	open(0)
}
