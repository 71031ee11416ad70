//go:build !kube135 && !kube136

// API servers before 1.37 have neither tokens for webhooks nor webhooks in files.

package admission_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	arv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/webhook"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
	"github.com/kubewasm/kubewasm/internal/testkit/e2e/cluster"
)

// callers is an API server that is told by files, and not by objects, which webhooks there
// are and how to authenticate to them, and a server that requires the tokens of KEP-6060.
type callers struct {
	*cluster.Cluster
	authority  *cluster.Authority
	url, token string
}

// TestCallers has a real API server authenticate itself by a token that it has issued for
// webhooks, and call a webhook that a manifest file configures.
func TestCallers(t *testing.T) {
	c := startCallers(t)
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"a token that the API server has bound to the webhook configuration", c.testBound},
		{"a webhook that a manifest file configures", c.testManifest},
		{"tokens that do not count", c.testOthers},
	} {
		t.Run(step.name, step.run)
	}
}

func startCallers(t *testing.T) *callers {
	t.Helper()
	dir := t.TempDir()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &callers{authority: cluster.NewAuthority(t), url: "https://" + listener.Addr().String() + "/validate", token: filepath.Join(dir, "token")}
	c.authority.Issue(t, dir)
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		replace(t, file, []byte(text))
		return file
	}
	write("token", "none yet")
	kubeconfig := write("webhooks.kubeconfig", fmt.Sprintf("apiVersion: v1\nkind: Config\nusers:\n- {name: %q, user: {tokenFile: %q}}\n", listener.Addr(), c.token))
	manifest := write("manifests/kubewasm.yaml", fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: kubewasm.static.k8s.io}
webhooks:
- name: static.kubewasm.dev
  clientConfig: {url: %q, caBundle: %s}
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}
  rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [configmaps]}]
  sideEffects: None
  failurePolicy: Fail
  admissionReviewVersions: [v1]
`, c.url, base64.StdEncoding.EncodeToString(c.authority.PEM)))
	config := write("admission.yaml", fmt.Sprintf(`
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ValidatingAdmissionWebhook
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    kubeConfigFile: %q
    staticManifestsDir: %q
`, kubeconfig, filepath.Dir(manifest)))
	c.Cluster = cluster.Start(t, map[string][]string{
		"admission-control-config-file": {config},
		"feature-gates":                 {"APIServerWebhookAuthenticationToken=true,ManifestBasedAdmissionControlConfig=true"},
	})

	rt, err := host.NewRuntime(compiled.Config())
	if err != nil {
		t.Fatal(err)
	}
	policy, err := admission.Load(t.Context(), rt, admission.PluginConfig{Config: host.Config{Name: "denier", Module: host.ModuleConfig{Bytes: denier("nope")}}})
	if err != nil {
		t.Fatal(err)
	}
	api := c.Client.Discovery().RESTClient()
	server, err := webhook.New(webhook.Config{
		Listener: listener, CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key"), Engine: admission.NewEngine(policy), DrainDelay: time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		Tokens: &webhook.TokenConfig{
			Required: true, Issuer: c.issuer(t), Audiences: []string{c.url}, Configurations: []string{"tokens"},
			Keys: func(ctx context.Context) ([]byte, error) { return api.Get().AbsPath("/openid/v1/jwks").DoRaw(ctx) },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-ended, policy.Close(context.Background()), rt.Close(context.Background())); err != nil {
			t.Error(err)
		}
	})

	if _, err := c.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "webhook-auth", Namespace: metav1.NamespaceSystem}}
	if _, err := c.Client.CoreV1().ServiceAccounts(account.Namespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: account.Name}, Rules: []rbacv1.PolicyRule{{
		Verbs: []string{"attest"}, APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"admissionReviewAPIGroups"}, ResourceNames: []string{"*", "apps"},
	}}}
	if _, err := c.Client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account.Name, Namespace: account.Namespace}},
	}
	if _, err := c.Client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tokens", "others"} {
		none, fail := arv1.SideEffectClassNone, arv1.Fail
		hook := arv1.ValidatingWebhook{
			Name: name + ".kubewasm.dev", ClientConfig: arv1.WebhookClientConfig{URL: &c.url, CABundle: c.authority.PEM}, NamespaceSelector: inShop,
			Rules: []arv1.RuleWithOperations{{
				Operations: []arv1.OperationType{arv1.Create}, Rule: arv1.Rule{APIGroups: []string{"", "apps"}, APIVersions: []string{"*"}, Resources: []string{"pods"}},
			}},
			SideEffects: &none, FailurePolicy: &fail, AdmissionReviewVersions: []string{"v1"},
		}
		config := &arv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: []arv1.ValidatingWebhook{hook}}
		if _, err := c.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), config, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// issuer returns the issuer of the tokens of the API server.
func (c *callers) issuer(t *testing.T) string {
	t.Helper()
	token := c.request(t, metav1.NamespaceDefault, &authenticationv1.TokenRequestSpec{})
	_, payload, _ := strings.Cut(token, ".")
	payload, _, _ = strings.Cut(payload, ".")
	claims, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		t.Fatal(err)
	}
	_, issuer, _ := strings.Cut(string(claims), `"iss":"`)
	issuer, _, _ = strings.Cut(issuer, `"`)
	return issuer
}

// request returns a token of the account webhook-auth, or of the account default of a
// namespace, which is made if it is missing.
func (c *callers) request(t *testing.T, namespace string, spec *authenticationv1.TokenRequestSpec) string {
	t.Helper()
	name := "webhook-auth"
	if namespace != metav1.NamespaceSystem {
		name = "default"
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_, _ = c.Client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{}) // It may be there.
	}
	answer, err := c.Client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{Spec: *spec}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status.Token
}

// bound is the request of a token for a webhook configuration and an API group.
func (c *callers) bound(configuration, group string) *authenticationv1.TokenRequestSpec {
	return &authenticationv1.TokenRequestSpec{
		Audiences:      []string{c.url},
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: arv1.SchemeGroupVersion.String(), Kind: "ValidatingWebhookConfiguration", Name: configuration},
		Attestations:   map[string]authenticationv1.AttestationValue{"admissionReviewAPIGroups": {group}},
	}
}

func (c *callers) testBound(t *testing.T) {
	// What the API server of this minor does not do by itself: it issues the token, and takes
	// it from the file of its configuration.
	replace(t, c.token, []byte(c.request(t, metav1.NamespaceSystem, c.bound("tokens", "*"))))
	var err error
	eventually(t, "the answer of the policy", func() bool {
		_, err = c.Client.CoreV1().Pods("shop").Create(t.Context(), pod("web"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), `kubewasm.dev" denied the request: denier: nope`)
	})
}

func (c *callers) testManifest(t *testing.T) {
	_, err := c.Client.CoreV1().ConfigMaps("shop").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	if want := `admission webhook "static.kubewasm.dev" denied the request: denier: nope`; err == nil || err.Error() != want {
		t.Errorf("error is %v, want %s", err, want)
	}
}

func (c *callers) testOthers(t *testing.T) {
	for _, test := range []struct{ name, token, want string }{
		{"none", "", "401 a bearer token is required"},
		{"one that a Pod could have", c.request(t, "shop", &authenticationv1.TokenRequestSpec{Audiences: []string{c.url}}), "401 the bearer token is refused: it is not bound to a ValidatingWebhookConfiguration, and its subject is not exempt"},
		{"one for the API server", c.request(t, "shop", &authenticationv1.TokenRequestSpec{}), "401 the bearer token is refused: it has a different audience"},
		{"one that is bound to another configuration", c.request(t, metav1.NamespaceSystem, c.bound("others", "*")), `401 the bearer token is refused: it is bound to the ValidatingWebhookConfiguration "others"`},
		{"one for another API group", c.request(t, metav1.NamespaceSystem, c.bound("tokens", "apps")), `200 the bearer token of the request is not for reviews of the API group ""`},
		{"the right one", c.request(t, metav1.NamespaceSystem, c.bound("tokens", "*")), "200 denier: nope"},
	} {
		t.Run(test.name, func(t *testing.T) {
			const review = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","resource":{"group":"","version":"v1","resource":"pods"},"operation":"CREATE","object":{}}}`
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.url, strings.NewReader(review))
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Content-Type", "application/json")
			if test.token != "" {
				request.Header.Set("Authorization", "Bearer "+test.token)
			}
			response, err := c.authority.HTTP().Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			if err != nil {
				t.Fatal(err)
			}
			code, message, _ := strings.Cut(test.want, " ")
			if fmt.Sprint(response.StatusCode) != code || !strings.Contains(strings.ReplaceAll(string(body), `\"`, `"`), message) {
				t.Errorf("answer is %s %s, want %s", response.Status, body, test.want)
			}
		})
	}
}
