package admission_test

import (
	"encoding/base64"
	"errors"
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
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kubewasm/kubewasm/internal/testkit/e2e/cluster"
)

// installed is the namespace of the manifests.
const installed = "kubewasm-webhook"

// charts are the manifests that are rendered from the chart.
const charts = "../../../../charts/manifests/"

// helm runs helm with arguments in the root of the repository, and returns its output.
func helm(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), cluster.Build(t, "../../../../charts", "helm.sh/helm/v4/cmd/helm", "helm"), args...)
	cmd.Dir = "../../../.."
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w\n%s", err, exit.Stderr)
		}
		t.Fatalf("helm %s: %v", args, err)
	}
	return string(out)
}

// rendered returns the objects of the chart for a file of values in its directory ci, with further
// values as helm's --set-json has them.
func rendered(t *testing.T, release, namespace, values string, set ...string) []*unstructured.Unstructured {
	t.Helper()
	args := []string{"template", release, "charts/kubewasm", "-n", namespace, "--kube-version", "1.37", "-f", "charts/kubewasm/ci/" + values + "-values.yaml"}
	for _, s := range set {
		args = append(args, "--set-json", s)
	}
	file := filepath.Join(t.TempDir(), "rendered.yaml")
	replace(t, file, []byte(helm(t, args...)))
	return documents(t, file)
}

// fromObjects are values with policies from a ConfigMap and a Secret, which look Ingresses up.
const fromObjects = `webhook.policies=[
	{"name": "a", "module": {"configMap": {"name": "my-policy", "key": "denier.wasm"}}, "objects": [{"resource": "networking.k8s.io/v1/ingresses"}],
	 "match": {"rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]}},
	{"name": "b", "module": {"secret": {"name": "my-policy", "key": "denier.wasm"}},
	 "match": {"rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]}}]`

// shippedPolicies returns the policy file of the manifests.
func shippedPolicies(t *testing.T) (file string) {
	t.Helper()
	for _, object := range documents(t, charts+"webhook/webhook.yaml") {
		text, _, _ := unstructured.NestedString(object.Object, "data", "policies.yaml")
		file += text
	}
	return file
}

// serviceAccount makes the account of the manifests with its rights, and those that further values
// of the chart give, and returns a kubeconfig of it.
func (f *fixture) serviceAccount(t *testing.T, more ...string) string {
	t.Helper()
	client, err := dynamic.NewForConfig(f.Config)
	if err != nil {
		t.Fatal(err)
	}
	objects := documents(t, charts+"webhook/webhook.yaml")
	if len(more) != 0 {
		objects = rendered(t, "kubewasm-webhook", installed, "webhook", more...)
	}
	for _, object := range objects {
		gvk := object.GroupVersionKind()
		if gvk.Kind != "ServiceAccount" && gvk.Group != "rbac.authorization.k8s.io" {
			continue
		}
		resource := client.Resource(schema.GroupVersionResource{Group: gvk.Group, Version: gvk.Version, Resource: strings.ToLower(gvk.Kind) + "s"})
		var target dynamic.ResourceInterface = resource
		if !strings.HasPrefix(gvk.Kind, "Cluster") {
			target = resource.Namespace(installed)
		}
		// The steps of README.md may have made it.
		if _, err := target.Create(t.Context(), object, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	token, err := f.Client.CoreV1().ServiceAccounts(installed).CreateToken(t.Context(), "kubewasm-webhook", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
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

// kubewardenModule builds the policy in C, if there is a compiler.
func kubewardenModule(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("clang"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("clang is not installed")
		}
		t.Skip("clang is not installed (Debian: clang, lld)")
	}
	out := filepath.Join(t.TempDir(), "policy.wasm")
	cmd := exec.CommandContext(t.Context(), "clang", "--target=wasm32", "-O2", "-nostdlib", "-Wl,--no-entry", "-o", out, admissionDir+"kubewarden/internal/policies/testdata/kubewarden/policy.c")
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("clang: %v\n%s", err, output)
	}
	return out
}

// program runs the program of the example with the rights of its manifests until the test
// ends, and returns the URL by which it validates.
func (f *fixture) program(t *testing.T, policies string) (url string) {
	t.Helper()
	return "https://" + f.programWith(t, "-config", policies, "-kubeconfig", f.serviceAccount(t, fromObjects), "-interval", "100ms") + "/validate"
}

// programWith runs the program with arguments until the test ends, and returns its address.
func (f *fixture) programWith(t *testing.T, args ...string) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr = listener.Addr().String()
	listener.Close()
	repository, err := filepath.Abs("../../../..")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(cluster.Build(t, filepath.Join(repository, "cmd/kubewasm-webhook"), ".", "webhook"), append(args, "-addr", addr,
		"-cert", filepath.Join(f.dir, "tls.crt"), "-key", filepath.Join(f.dir, "tls.key"), "-drain-delay", "1ms")...)
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
	client := f.authority.HTTP()
	defer client.CloseIdleConnections()
	eventually(t, "a server that is ready", func() bool {
		resp, err := client.Get("https://" + addr + "/readyz")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil && resp.StatusCode == http.StatusOK
	})
	return addr
}

// testProgram: policies from a ConfigMap and a Secret, that choose by the labels of
// namespaces and look objects up, all of it from the API server.
func (f *fixture) testProgram(t *testing.T) {
	modules := func(word string) map[string][]byte { return map[string][]byte{"denier.wasm": denier(word)} }
	configMaps := f.Client.CoreV1().ConfigMaps(installed)
	configMap, err := configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "my-policy"}, BinaryData: modules("cmap")}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Client.CoreV1().Secrets(installed).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "my-policy"}, Data: modules("scrt")}, metav1.CreateOptions{}); err != nil {
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
  module: {configMap: {namespace: %[1]s, name: my-policy, key: denier.wasm}, follow: true}
  match: {namespaceSelector: {matchLabels: {guard: guarded}}, objectSelector: {matchLabels: {ask: configmap}}}
- name: of-secret
  module: {secret: {namespace: %[1]s, name: my-policy, key: denier.wasm}, follow: true}
  match: {objectSelector: {matchLabels: {ask: secret}}}
- name: looks
  module: {file: %[2]q, follow: true}
  dialect: {kubewarden: {contextAwareResources: [{apiVersion: v1, kind: Namespace}], hostCapabilities: [kubernetes/*]}}
  match: {objectSelector: {matchLabels: {ask: lookup}}}
`, installed, kubewardenModule(t)))
	url := f.program(t, policies)
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
		{"what it may not see", "free", "lookup", "mode-secret", denied + "looks: get_resource: the policy may not see v1 Secret: it is not in its contextAwareResources"},
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

// testShippedPolicies: the policies of the manifests, asked by the rules of the manifests
// and with the rights of the manifests.
func (f *fixture) testShippedPolicies(t *testing.T) {
	file := shippedPolicies(t)
	for _, name := range []string{"required-labels", "resource-defaults", "stellar-node", "unique-hosts"} {
		file = strings.Replace(file, "/plugins/"+name+".wasm", guest(t, examples+"admission/"+name), 1)
	}
	policies := filepath.Join(f.dir, "shipped.yaml")
	replace(t, policies, []byte(file))
	if _, err := f.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shipped"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ingress := func(name, host string) error {
		i := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: host}}}}
		_, err := f.Client.NetworkingV1().Ingresses("shipped").Create(t.Context(), i, metav1.CreateOptions{})
		return err
	}
	// It is there before the server is.
	if err := ingress("first", "shop.example.com"); err != nil {
		t.Fatal(err)
	}
	url := f.program(t, policies)
	var shipped arv1.ValidatingWebhookConfiguration
	for _, object := range documents(t, charts+"webhook/webhooks.yaml") {
		if object.GetKind() != "ValidatingWebhookConfiguration" {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &shipped); err != nil {
			t.Fatal(err)
		}
	}
	f.validating(t, "", func(w *arv1.ValidatingWebhook) {
		w.ClientConfig.URL, w.Rules, w.MatchConditions = &url, shipped.Webhooks[0].Rules, shipped.Webhooks[0].MatchConditions
		w.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "shipped"}}
	})
	labels := map[string]string{"team": "shop"}
	pods := f.Client.CoreV1().Pods("shipped")
	bad := pod("bad")
	bad.Namespace, bad.Labels, bad.Spec.InitContainers = "shipped", labels, []corev1.Container{{Name: "init", Image: "busybox"}}
	const wrong = `.image: Invalid value: "busybox": must come from registry.example.com/`
	eventually(t, "a denial of an init container", func() bool {
		_, err := pods.Create(t.Context(), bad, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.HasSuffix(err.Error(), "required-labels: spec.initContainers[0]"+wrong)
	})
	good := pod("good")
	good.Namespace, good.Labels = "shipped", labels
	stored, err := pods.Create(t.Context(), good, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stored.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "busybox"}}}
	if _, err := pods.UpdateEphemeralContainers(t.Context(), "good", stored, metav1.UpdateOptions{}); err == nil || !strings.HasSuffix(err.Error(), "required-labels: spec.ephemeralContainers[0]"+wrong) {
		t.Errorf("an ephemeral container: %v", err)
	}
	if kubectl, err := exec.LookPath("kubectl"); err == nil {
		cmd := exec.CommandContext(t.Context(), kubectl, "debug", "-n", "shipped", "good", "--image=busybox")
		cmd.Env = append(os.Environ(), "KUBECONFIG="+f.Kubeconfig)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "spec.ephemeralContainers[0]"+wrong) {
			t.Errorf("kubectl debug: %v\n%s", err, out)
		}
	}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: bad.Spec},
	}}
	if _, err := f.Client.AppsV1().Deployments("shipped").Create(t.Context(), deployment, metav1.CreateOptions{}); err == nil || !strings.HasSuffix(err.Error(), "required-labels: spec.template.spec.initContainers[0]"+wrong) {
		t.Errorf("a Deployment: %v", err)
	}

	if err := ingress("second", "shop.example.com"); err == nil || !strings.HasSuffix(err.Error(), `unique-hosts: spec.rules[0].host: Invalid value: "shop.example.com": the Ingress shipped/first has it`) {
		t.Errorf("a host that is taken: %v", err)
	}
	if err := ingress("third", "www.example.com"); err != nil {
		t.Errorf("a host of its own: %v", err)
	}
	if err := f.Client.NetworkingV1().Ingresses("shipped").Delete(t.Context(), "first", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the host free again", func() bool { return ingress("second", "shop.example.com") == nil })
}
