package admission_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
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

// testManifests: an API server takes the manifests of all programs.
func (f *fixture) testManifests(t *testing.T) {
	client, err := dynamic.NewForConfig(f.Config)
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(f.Client.Discovery()))
	files, err := filepath.Glob(charts + "*/*.yaml")
	if err != nil || len(files) < 9 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		for _, object := range documents(t, file) {
			gvk := object.GroupVersionKind()
			if slices.Contains([]string{"cert-manager.io", "policies.kubewarden.io", "kustomize.config.k8s.io"}, gvk.Group) {
				continue // Not of the API server.
			}
			mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
			if err != nil {
				t.Error(err)
				continue
			}
			namespace := object.GetNamespace()
			if (namespace == "") != (mapping.Scope.Name() != meta.RESTScopeNameNamespace) {
				t.Errorf("%s: %s %s has the namespace %q", file, gvk.Kind, object.GetName(), namespace)
			}
			if gvk.Kind == "Namespace" {
				namespace = object.GetName()
			}
			if namespace != "" {
				_, err := f.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
				if err != nil && !apierrors.IsAlreadyExists(err) {
					t.Fatal(err)
				}
			}
			options := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict, DryRun: []string{metav1.DryRunAll}}
			if _, err := client.Resource(mapping.Resource).Namespace(object.GetNamespace()).Create(t.Context(), object, options); err != nil && !apierrors.IsAlreadyExists(err) {
				t.Errorf("%s: %s %s: %v", file, gvk.Kind, object.GetName(), err)
			}
		}
	}
}

// testInstall: helm installs the chart, keeps its certificate in upgrades, and replaces its CA.
func (f *fixture) testInstall(t *testing.T) {
	run := func(command string, set ...string) {
		t.Helper()
		args := []string{command, "kubewasm-webhook", "charts/kubewasm", "-n", installed, "--kubeconfig", f.Kubeconfig, "-f", "charts/kubewasm/ci/webhook-values.yaml", "--set", "certificates.mode=SelfManaged"}
		if command == "install" {
			// Other tests have made some of it.
			args = append(args, "--create-namespace", "--take-ownership")
		}
		helm(t, append(args, set...)...)
	}
	// state returns the certificates that webhooks trust, and the server's.
	state := func() (bundle, leaf []byte) {
		client := f.Client.AdmissionregistrationV1()
		m, errM := client.MutatingWebhookConfigurations().Get(t.Context(), "kubewasm-webhook", metav1.GetOptions{})
		v, errV := client.ValidatingWebhookConfigurations().Get(t.Context(), "kubewasm-webhook", metav1.GetOptions{})
		secret, err := f.Client.CoreV1().Secrets(installed).Get(t.Context(), "kubewasm-webhook-tls", metav1.GetOptions{})
		if err := errors.Join(errM, errV, err); err != nil {
			t.Fatal(err)
		}
		bundle = v.Webhooks[0].ClientConfig.CABundle
		if !bytes.Equal(bundle, m.Webhooks[0].ClientConfig.CABundle) {
			t.Error("the webhooks trust different certificates")
		}
		pair, err := tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(bundle)
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "kubewasm-webhook." + installed + ".svc"}); err != nil {
			t.Error(err)
		}
		return bundle, secret.Data["tls.crt"]
	}
	t.Cleanup(func() {
		// No server answers them here. The rest may stay.
		client := f.Client.AdmissionregistrationV1()
		errM := client.MutatingWebhookConfigurations().Delete(context.WithoutCancel(t.Context()), "kubewasm-webhook", metav1.DeleteOptions{})
		errV := client.ValidatingWebhookConfigurations().Delete(context.WithoutCancel(t.Context()), "kubewasm-webhook", metav1.DeleteOptions{})
		if err := errors.Join(errM, errV); err != nil {
			t.Error(err)
		}
	})
	run("install")
	bundle, leaf := state()
	// The last line of the file has its end: a server refuses one without.
	policies, err := f.Client.CoreV1().ConfigMaps(installed).Get(t.Context(), "kubewasm-webhook-policies", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(shippedPolicies(t), policies.Data["policies.yaml"]); diff != "" || !strings.HasSuffix(policies.Data["policies.yaml"], "\n") {
		t.Errorf("the installed policies (-manifests +installed):\n%s", diff)
	}
	run("upgrade")
	if b, l := state(); !bytes.Equal(b, bundle) || !bytes.Equal(l, leaf) {
		t.Error("an upgrade has exchanged the CA or the certificate")
	}
	for i, want := range []int{2, 2, 1} {
		before := leaf
		run("upgrade", "--set", "certificates.selfManaged.generation=2")
		bundle, leaf = state()
		if n := bytes.Count(bundle, []byte("BEGIN CERTIFICATE")); n != want || bytes.Equal(before, leaf) != (i != 1) {
			t.Errorf("upgrade %d: the webhooks trust %d certificates, want %d; the certificate has changed: %t", i+1, n, want, !bytes.Equal(before, leaf))
		}
	}
}
