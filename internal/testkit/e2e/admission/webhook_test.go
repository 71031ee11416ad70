package admission_test

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	arv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/webhook"
	"github.com/kubewasm/kubewasm/admission/webhook/admissionmetrics"
	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
	"github.com/kubewasm/kubewasm/internal/testkit/e2e/cluster"
	"github.com/kubewasm/kubewasm/internal/testkit/e2e/guests"
)

const (
	admissionDir = "../../../../admission/"
	examples     = "../../../../examples/"
	commands     = "../../../../cmd/"
)

// replace puts a new file into the place of an old one.
func replace(t *testing.T, file string, data []byte) {
	t.Helper()
	if err := os.WriteFile(file+".new", data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// fixture is a cluster whose API server calls kubewasm's webhook server.
type fixture struct {
	*cluster.Cluster
	t         *testing.T
	dir       string
	url       string
	authority *cluster.Authority
	manager   *manage.Manager
	engine    *admission.Engine
	decisions *decisions
	warnings  *warnings
	auditLog  string
}

// decisions counts what policies were asked.
type decisions struct {
	mu    sync.Mutex
	asked map[string]int
}

func (d *decisions) Decided(_ context.Context, decision admission.Decision) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked[decision.Policy]++
}

// take returns how often policies were asked since it was called last.
func (d *decisions) take() map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	asked := d.asked
	d.asked = map[string]int{}
	return asked
}

// warnings keeps what a client is warned of.
type warnings struct {
	mu    sync.Mutex
	texts []string
}

func (w *warnings) HandleWarningHeader(_ int, _ string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	texts := w.texts
	w.texts = nil
	return texts
}

// start runs a control plane and the webhook server, without policies and without
// webhook configurations.
func start(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, dir: t.TempDir(), decisions: &decisions{asked: map[string]int{}}, warnings: &warnings{}}
	f.auditLog = filepath.Join(f.dir, "audit.log")
	policy := filepath.Join(f.dir, "audit.yaml")
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.Cluster = cluster.Start(t, map[string][]string{
		"audit-policy-file": {policy}, "audit-log-path": {f.auditLog}, "audit-log-mode": {"blocking"},
	})
	config := rest.CopyConfig(f.Config)
	config.WarningHandler, config.QPS = f.warnings, -1
	var err error
	if f.Client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}

	rt, err := host.NewRuntime(compiled.Config())
	if err != nil {
		t.Fatal(err)
	}
	f.engine = admission.NewEngine()
	f.manager, err = manage.New(t.Context(), manage.Config{Runtime: rt, Engine: f.engine, Observer: f.decisions, Interval: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	f.authority = cluster.NewAuthority(t)
	f.authority.Issue(t, f.dir)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.url = "https://" + listener.Addr().String()
	server, err := webhook.New(webhook.Config{
		Listener: listener, CertFile: filepath.Join(f.dir, "tls.crt"), KeyFile: filepath.Join(f.dir, "tls.key"), Engine: f.engine,
		Ready: f.manager.Ready, Counter: admissionmetrics.New(), DrainDelay: time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := f.manager.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if err := rt.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if _, err := f.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return f
}

// guest returns the module of a guest of the repository.
func guest(t testing.TB, dir string) string {
	t.Helper()
	return guests.File(t, dir)
}

// policies makes the policies of the file those of the server.
func (f *fixture) policies(t *testing.T, yaml string) {
	t.Helper()
	file, err := manage.ParseFile([]byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.manager.Apply(t.Context(), file); err != nil {
		t.Fatal(err)
	}
}

// rules are all resources that the tests write.
var rules = []arv1.RuleWithOperations{{
	Operations: []arv1.OperationType{arv1.Create, arv1.Update, arv1.Delete},
	Rule:       arv1.Rule{APIGroups: []string{"", "stellar.org"}, APIVersions: []string{"*"}, Resources: []string{"pods", "configmaps", "stellarnodes"}},
}}

func (f *fixture) clientConfig(path string) arv1.WebhookClientConfig {
	url := f.url + path
	return arv1.WebhookClientConfig{URL: &url, CABundle: f.authority.PEM}
}

// inShop is the namespace of the tests.
var inShop = &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "shop"}}

// validating makes the API server ask for validation, until the test ends.
func (f *fixture) validating(t *testing.T, path string, change func(*arv1.ValidatingWebhook)) {
	t.Helper()
	none, fail, timeout := arv1.SideEffectClassNone, arv1.Fail, int32(5)
	hook := arv1.ValidatingWebhook{
		Name: "validate.kubewasm.dev", ClientConfig: f.clientConfig(path), Rules: rules, NamespaceSelector: inShop,
		SideEffects: &none, FailurePolicy: &fail, TimeoutSeconds: &timeout, AdmissionReviewVersions: []string{"v1"},
	}
	if change != nil {
		change(&hook)
	}
	client := f.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	config := &arv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "validate"}, Webhooks: []arv1.ValidatingWebhook{hook}}
	if _, err := client.Create(t.Context(), config, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Delete(context.Background(), "validate", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// mutating does the same for mutation, with a webhook for each path.
func (f *fixture) mutating(t *testing.T, paths ...string) {
	t.Helper()
	none, fail, again, timeout := arv1.SideEffectClassNone, arv1.Fail, arv1.IfNeededReinvocationPolicy, int32(5)
	config := &arv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "mutate"}}
	for _, path := range paths {
		config.Webhooks = append(config.Webhooks, arv1.MutatingWebhook{
			Name: "mutate" + filepath.Base(path) + ".kubewasm.dev", ClientConfig: f.clientConfig(path), Rules: rules, NamespaceSelector: inShop,
			SideEffects: &none, FailurePolicy: &fail, TimeoutSeconds: &timeout, AdmissionReviewVersions: []string{"v1"}, ReinvocationPolicy: &again,
		})
	}
	client := f.Client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	if _, err := client.Create(t.Context(), config, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Delete(context.Background(), "mutate", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// eventually runs f until it is true: the API server notices configurations a
// moment after they are made.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !f() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// pod is a Pod with annotations, given as key, value.
func pod(name string, annotations ...string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", Annotations: map[string]string{}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "registry.example.com/web:1"}}},
	}
	for i := 0; i < len(annotations); i += 2 {
		p.Annotations[annotations[i]] = annotations[i+1]
	}
	return p
}

// create creates a Pod and returns it as it was stored.
func (f *fixture) create(t *testing.T, p *corev1.Pod, dryRun ...string) (*corev1.Pod, error) {
	t.Helper()
	return f.Client.CoreV1().Pods("shop").Create(t.Context(), p, metav1.CreateOptions{DryRun: dryRun})
}
