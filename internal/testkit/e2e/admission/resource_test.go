package admission_test

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
)

// documents reads the objects of a file.
func documents(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var objects []*unstructured.Unstructured
	d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		u := &unstructured.Unstructured{}
		if err := d.Decode(u); errors.Is(err, io.EOF) {
			return objects
		} else if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		objects = append(objects, u)
	}
}

// testCustomResource: a CRD, and the guest whose views come from it.
func (f *fixture) testCustomResource(t *testing.T) {
	client, err := dynamic.NewForConfig(f.Config)
	if err != nil {
		t.Fatal(err)
	}
	crds := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	crd := documents(t, examples+"admission/stellar-node/stellarnodes.yaml")[0]
	if _, err := crds.Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.policies(t, "plugins: [{name: stellar-node, guestConfig: {registries: [docker.io/stellar/]}, module: {file: "+guest(t, examples+"admission/stellar-node")+", follow: true}}]")
	f.validating(t, "/validate/stellar-node", nil)
	nodes := client.Resource(schema.GroupVersionResource{Group: "stellar.org", Version: "v1alpha1", Resource: "stellarnodes"}).Namespace("shop")
	node := func(name string, replicas int64, seed string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "stellar.org/v1alpha1", "kind": "StellarNode", "metadata": map[string]any{"name": name},
			"spec": map[string]any{
				"nodeType": "Validator", "network": "Testnet", "version": "v21", "replicas": replicas,
				"validatorConfig": map[string]any{"seedSecretRef": seed},
			},
		}}
	}
	eventually(t, "a denial", func() bool {
		_, err = nodes.Create(t.Context(), node("two", 2, ""), metav1.CreateOptions{})
		return apierrors.IsInvalid(err)
	})
	want := `admission webhook "validate.kubewasm.dev" denied the request: stellar-node: spec.validatorConfig.seedSecretRef: Required value; ` +
		"spec.replicas: Invalid value: 2: two Pods with one seed vote against each other"
	if err.Error() != want {
		t.Errorf("error is %v\nwant %s", err, want)
	}
	stored, err := nodes.Create(t.Context(), node("one", 1, "seed"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := unstructured.SetNestedField(stored.Object, "Mainnet", "spec", "network"); err != nil {
		t.Fatal(err)
	}
	if _, err := nodes.Update(t.Context(), stored, metav1.UpdateOptions{}); err == nil || !strings.HasSuffix(err.Error(), "spec.network: Forbidden: is immutable") {
		t.Errorf("error is %v", err)
	}
}

// testManifests: an API server takes what installs the example.
func (f *fixture) testManifests(t *testing.T) {
	client, err := dynamic.NewForConfig(f.Config)
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(f.Client.Discovery()))
	files, err := filepath.Glob(commands + "kubewasm-webhook/manifests/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	var objects []*unstructured.Unstructured
	for _, file := range files {
		objects = append(objects, documents(t, file)...)
	}
	// The namespace comes first.
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int {
		if (a.GetKind() == "Namespace") != (b.GetKind() == "Namespace") && a.GetKind() == "Namespace" {
			return -1
		}
		return 0
	})
	for _, object := range objects {
		gvk := object.GroupVersionKind()
		if gvk.Group == "cert-manager.io" || strings.HasPrefix(gvk.Group, "kustomize") {
			continue // Not of the API server.
		}
		mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			t.Error(err)
			continue
		}
		namespace := ""
		options := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict, DryRun: []string{metav1.DryRunAll}}
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			namespace = "kubewasm-webhook" // kustomize puts it there.
		}
		if gvk.Kind == "Namespace" {
			options.DryRun = nil
		}
		if _, err := client.Resource(mapping.Resource).Namespace(namespace).Create(t.Context(), object, options); err != nil {
			t.Errorf("%s %s: %v", gvk.Kind, object.GetName(), err)
		}
	}
}

// testInstall: the steps of the example's README.md for a cluster without
// cert-manager, and a certificate that is renewed.
func (f *fixture) testInstall(t *testing.T) {
	for _, tool := range []string{"kubectl", "openssl", "awk"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(tool + " is not installed")
		}
	}
	const manifests = "cmd/kubewasm-webhook/manifests"
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir, cmd.Env = "../../../..", append(os.Environ(), "KUBECONFIG="+f.Kubeconfig)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", args, err, out)
		}
		return string(out)
	}
	// bundles returns how many certificates the webhooks trust.
	bundles := func() (counts [2]int) {
		for i, kind := range []string{"mutatingwebhookconfiguration", "validatingwebhookconfiguration"} {
			bundle := run("kubectl", "get", kind, "kubewasm-webhook", "-o", "jsonpath={.webhooks[0].clientConfig.caBundle}")
			decoded, err := base64.StdEncoding.DecodeString(bundle)
			if err != nil {
				t.Fatal(err)
			}
			counts[i] = bytes.Count(decoded, []byte("BEGIN CERTIFICATE"))
		}
		return counts
	}
	t.Cleanup(func() {
		// No server answers them here. The rest may stay.
		cmd := exec.Command("kubectl", "delete", "--ignore-not-found", "-f", manifests+"/webhooks.yaml")
		cmd.Dir, cmd.Env = "../../../..", append(os.Environ(), "KUBECONFIG="+f.Kubeconfig)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	run("kubectl", "apply", "-k", manifests)
	run(manifests + "/self-signed.sh")
	run(manifests+"/self-signed.sh", manifests+"/webhooks.yaml")
	if got := bundles(); got != [2]int{1, 1} {
		t.Errorf("the webhooks trust %d certificates, want 1", got)
	}
	secret, err := f.Client.CoreV1().Secrets("kubewasm-webhook").Get(t.Context(), "webhook-tls", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])
	if err != nil {
		t.Fatal(err)
	}
	if err := pair.Leaf.VerifyHostname("webhook.kubewasm-webhook.svc"); err != nil {
		t.Error(err)
	}
	for range 2 {
		run(manifests + "/self-signed.sh")
		if got := bundles(); got != [2]int{2, 2} {
			t.Errorf("while the certificate changes, the webhooks trust %d, want 2", got)
		}
		run(manifests+"/self-signed.sh", manifests+"/webhooks.yaml")
		if got := bundles(); got != [2]int{2, 2} {
			t.Errorf("afterwards, the webhooks trust %d, want 2", got)
		}
	}
}
