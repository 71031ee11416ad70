package admission_test

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	arv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kubewasm/kubewasm/internal/e2e/cluster"
)

// installed is the namespace of the manifests.
const installed = "kubewasm-webhook"

// serviceAccount makes what rbac.yaml has, and returns a kubeconfig of it.
func (f *fixture) serviceAccount(t *testing.T) string {
	t.Helper()
	client, err := dynamic.NewForConfig(f.Config)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range documents(t, examples+"webhook/manifests/rbac.yaml") {
		gvk := object.GroupVersionKind()
		resource := client.Resource(schema.GroupVersionResource{Group: gvk.Group, Version: gvk.Version, Resource: strings.ToLower(gvk.Kind) + "s"})
		var target dynamic.ResourceInterface = resource
		if !strings.HasPrefix(gvk.Kind, "Cluster") {
			target = resource.Namespace(installed)
		}
		if gvk.Kind == "RoleBinding" { // kustomize puts the namespace there.
			subjects := object.Object["subjects"].([]any)
			subjects[0].(map[string]any)["namespace"] = installed
		}
		// The steps of README.md may have made it.
		if _, err := target.Create(t.Context(), object, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	token, err := f.Client.CoreV1().ServiceAccounts(installed).CreateToken(t.Context(), "webhook", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(f.dir, "kubeconfig")
	replace(t, file, fmt.Appendf(nil, `
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://%s", certificate-authority-data: %s}}]
users: [{name: u, user: {token: %s}}]
`, strings.TrimPrefix(f.Config.Host, "https://"), base64.StdEncoding.EncodeToString(f.Config.CAData), token.Status.Token))
	return file
}

// kubewarden builds the policy in C, if there is a compiler.
func kubewarden(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("clang"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("clang is not installed")
		}
		t.Skip("clang is not installed (Debian: clang, lld)")
	}
	out := filepath.Join(t.TempDir(), "policy.wasm")
	cmd := exec.CommandContext(t.Context(), "clang", "--target=wasm32", "-O2", "-nostdlib", "-Wl,--no-entry", "-o", out, admissionDir+"testdata/kubewarden/policy.c")
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("clang: %v\n%s", err, output)
	}
	return out
}

// testProgram: policies from a ConfigMap and a Secret, that choose by the labels of
// namespaces and look objects up, all of it from the API server.
func (f *fixture) testProgram(t *testing.T) {
	modules := func(word string) map[string][]byte { return map[string][]byte{"denier.wasm": denier(word)} }
	configMaps := f.Client.CoreV1().ConfigMaps(installed)
	configMap, err := configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "modules"}, BinaryData: modules("cmap")}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Client.CoreV1().Secrets(installed).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "modules"}, Data: modules("scrt")}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"guarded", "free"} {
		labels := map[string]string{"guard": name, "webhook": "yes"}
		if _, err := f.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	policies := filepath.Join(f.dir, "program.yaml")
	replace(t, policies, fmt.Appendf(nil, `
plugins:
- name: of-configmap
  source: {configMap: {namespace: %[1]s, name: modules, key: denier.wasm}}
  match: {namespaceSelector: {matchLabels: {guard: guarded}}, objectSelector: {matchLabels: {ask: configmap}}}
- name: of-secret
  source: {secret: {namespace: %[1]s, name: modules, key: denier.wasm}}
  match: {objectSelector: {matchLabels: {ask: secret}}}
- name: looks
  source: {file: %[2]q}
  contextAwareResources: [{apiVersion: v1, kind: Namespace}]
  match: {objectSelector: {matchLabels: {ask: lookup}}}
`, installed, kubewarden(t)))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	listener.Close()
	repository, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(cluster.Build(t, repository, "./examples/webhook", "webhook"), "-addr", addr, "-cert", filepath.Join(f.dir, "tls.crt"), "-key", filepath.Join(f.dir, "tls.key"),
		"-policies", policies, "-kubeconfig", f.serviceAccount(t), "-drain-delay", "1ms", "-interval", "100ms")
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	client := f.authority.client()
	defer client.CloseIdleConnections()
	eventually(t, "a server that is ready", func() bool {
		resp, err := client.Get("https://" + addr + "/readyz")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil && resp.StatusCode == http.StatusOK
	})
	url := "https://" + addr + "/validate"
	f.validating(t, "", func(w *arv1.ValidatingWebhook) {
		w.ClientConfig.URL, w.NamespaceSelector = &url, &metav1.LabelSelector{MatchLabels: map[string]string{"webhook": "yes"}}
	})
	create := func(namespace, ask, mode string) string {
		p := pod("x", "mode", mode)
		p.Namespace, p.Labels = namespace, map[string]string{"ask": ask}
		if _, err := f.Client.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
			return err.Error()
		}
		return ""
	}
	const denied = `admission webhook "validate.kubewasm.dev" denied the request: `
	eventually(t, "a denial", func() bool { return create("guarded", "configmap", "") == denied+"of-configmap: cmap" })
	tests := []struct{ name, namespace, ask, mode, want string }{
		{"a namespace that is not chosen", "free", "configmap", "", ""},
		{"a module from a Secret", "free", "secret", "", denied + "of-secret: scrt"},
		{"what a policy looks up", "free", "lookup", "mode-absent", denied + `looks: get_resource: there is no Namespace none in namespace ""`},
		{"what it may not see", "free", "lookup", "mode-secret", denied + "looks: get_resource: the policy may not see v1 Secret: its contextAwareResources do not have it"},
		{"what somebody may do", "free", "lookup", "mode-can-i", denied + `looks: {"allowed":false}`},
	}
	for _, test := range tests {
		if got := create(test.namespace, test.ask, test.mode); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
	if got := create("free", "lookup", "mode-get"); !strings.HasPrefix(got, denied+`looks: {"apiVersion":"v1","kind":"Namespace","metadata":`) || !strings.Contains(got, `"name":"shop"`) {
		t.Errorf("what it looks up: %q", got)
	}
	configMap.BinaryData = modules("next")
	if _, err := configMaps.Update(t.Context(), configMap, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new module", func() bool { return create("guarded", "configmap", "") == denied+"of-configmap: next" })
}
