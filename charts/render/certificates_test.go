package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
)

// stored answers lookups of Secrets.
type stored struct{ client *fake.FakeDynamicClient }

func (s stored) GetClientFor(apiVersion, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	if apiVersion != "v1" || kind != "Secret" {
		return nil, false, fmt.Errorf("a lookup of %s %s", apiVersion, kind)
	}
	return s.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}), true, nil
}

// chain is what an installation has of certificates.
type chain struct {
	ca, leaf *corev1.Secret
	bundle   []byte
}

// upgrade renders the chart in a cluster with the Secrets of the release before, nil for none.
func upgrade(t *testing.T, before *chain, settings map[string]any) *chain {
	t.Helper()
	values, err := readValues("all")
	if err != nil {
		t.Fatal(err)
	}
	if settings != nil {
		values["certificates"] = map[string]any{"selfManaged": settings}
	}
	c, err := load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	var secrets []runtime.Object
	if before != nil {
		for _, s := range []*corev1.Secret{before.ca, before.leaf} {
			if s == nil {
				continue
			}
			fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s)
			if err != nil {
				t.Fatal(err)
			}
			secrets = append(secrets, &unstructured.Unstructured{Object: fields})
		}
	}
	client := stored{fake.NewSimpleDynamicClient(types, secrets...)}
	r, err := release{name: "kubewasm", namespace: namespace, upgrade: before != nil, client: client}.render(c, values)
	if err != nil {
		t.Fatal(err)
	}
	i, now := &installed{}, new(chain)
	for _, d := range r.documents {
		object, err := decode(d.text)
		if err != nil {
			t.Fatal(err)
		}
		i.objects = append(i.objects, object)
	}
	for _, s := range all[*corev1.Secret](i) {
		switch s.Name {
		case "kubewasm-webhook-ca":
			now.ca = s
		case "kubewasm-webhook-tls":
			now.leaf = s
		}
	}
	for _, w := range i.webhooks() {
		if w.ClientConfig.Service.Name != "kubewasm-webhook" {
			continue
		}
		if now.bundle != nil && !bytes.Equal(now.bundle, w.ClientConfig.CABundle) {
			t.Error("the webhooks trust different CAs")
		}
		now.bundle = w.ClientConfig.CABundle
	}
	if now.ca == nil || now.leaf == nil || now.bundle == nil {
		t.Fatalf("the chain is %+v", now)
	}
	return now
}

// trusts returns an error unless API servers with a bundle trust the certificate of a Secret.
func trusts(bundle []byte, leaf *corev1.Secret) error {
	pair, err := tls.X509KeyPair(leaf.Data["tls.crt"], leaf.Data["tls.key"])
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return fmt.Errorf("no certificates in %q", bundle)
	}
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "kubewasm-webhook." + namespace + ".svc"})
	return err
}

// age returns the chain as it is when its certificate was made some days ago.
func (c *chain) age(days int) *chain {
	leaf := c.leaf.DeepCopy()
	leaf.Annotations["kubewasm.dev/issued"] = strconv.FormatInt(time.Now().Add(-time.Duration(days)*24*time.Hour).Unix(), 10)
	return &chain{ca: c.ca, leaf: leaf, bundle: c.bundle}
}

// TestCertificatesOfTheChart follows the CA and the certificate through upgrades. At each step API
// servers trust the certificate from before and the new one, by the old bundle while Pods have
// the new certificate already, and the other way around.
func TestCertificatesOfTheChart(t *testing.T) {
	type change struct{ ca, leaf bool }
	now := upgrade(t, nil, nil)
	if err := trusts(now.bundle, now.leaf); err != nil {
		t.Fatal(err)
	}
	second := map[string]any{"generation": 2}
	for _, step := range []struct {
		name     string
		days     int
		settings map[string]any
		want     change
		bundles  int
		// lost is set if the CA is gone, as when another program made the certificate.
		lost bool
	}{
		{"an upgrade keeps all", 1, nil, change{}, 1, false},
		{"a certificate is renewed after two months", 61, nil, change{leaf: true}, 1, false},
		{"earlier, if the values say so", 8, map[string]any{"renewAfterDays": 7}, change{leaf: true}, 1, false},
		{"a new generation makes a CA, and trusts both", 1, second, change{ca: true}, 2, false},
		{"then a certificate", 0, second, change{leaf: true}, 2, false},
		{"then the old CA goes", 0, second, change{}, 1, false},
		{"and all is kept again", 1, second, change{}, 1, false},
		{"an old certificate is renewed by the CA that is trusted, beside a new one", 100, map[string]any{"generation": 3}, change{ca: true, leaf: true}, 2, false},
		{"and then by the new one", 0, map[string]any{"generation": 3}, change{leaf: true}, 2, false},
		{"and the old CA goes again", 0, map[string]any{"generation": 3}, change{}, 1, false},
		{"a smaller generation changes nothing", 0, nil, change{}, 1, false},
		{"a CA that is lost is replaced, and trusted beside the new one", 1, nil, change{ca: true}, 2, true},
		{"then the certificate is, too", 0, nil, change{leaf: true}, 2, false},
		{"and the lost CA goes", 0, nil, change{}, 1, false},
	} {
		before := now.age(step.days)
		there := *before
		if step.lost {
			there.ca = nil
		}
		now = upgrade(t, &there, step.settings)
		got := change{!bytes.Equal(now.ca.Data["ca.crt"], before.ca.Data["ca.crt"]), !bytes.Equal(now.leaf.Data["tls.crt"], before.leaf.Data["tls.crt"])}
		if got != step.want {
			t.Errorf("%s: changed are %+v, want %+v", step.name, got, step.want)
		}
		if n := bytes.Count(now.bundle, []byte("BEGIN CERTIFICATE")); n != step.bundles {
			t.Errorf("%s: API servers trust %d CAs, want %d", step.name, n, step.bundles)
		}
		for what, err := range map[string]error{
			"the new certificate by the new bundle": trusts(now.bundle, now.leaf),
			"the old certificate by the new bundle": trusts(now.bundle, before.leaf),
			"the new certificate by the old bundle": trusts(before.bundle, now.leaf),
		} {
			if err != nil {
				t.Errorf("%s: %s: %v", step.name, what, err)
			}
		}
		if !bytes.Equal(now.leaf.Data["ca.crt"], now.bundle) {
			t.Errorf("%s: Prometheus and API servers trust different CAs", step.name)
		}
	}
}

// TestNamesOfTheCertificate holds that a certificate has the names of both Services, and that one
// of a chart with other names is renewed by the CA that is trusted.
func TestNamesOfTheCertificate(t *testing.T) {
	before := upgrade(t, nil, nil).age(1)
	before.leaf.Annotations["kubewasm.dev/names"] = "kubewasm-webhook." + namespace + ".svc"
	now := upgrade(t, before, nil)
	if !bytes.Equal(now.ca.Data["ca.crt"], before.ca.Data["ca.crt"]) || bytes.Equal(now.leaf.Data["tls.crt"], before.leaf.Data["tls.crt"]) {
		t.Error("the certificate is not another one of the same CA")
	}
	pair, err := tls.X509KeyPair(now.leaf.Data["tls.crt"], now.leaf.Data["tls.key"])
	if err != nil {
		t.Fatal(err)
	}
	for _, service := range []string{"kubewasm-webhook", "kubewasm-webhook-replicas"} {
		for _, suffix := range []string{".svc", ".svc.cluster.local"} {
			if err := pair.Leaf.VerifyHostname(service + "." + namespace + suffix); err != nil {
				t.Error(err)
			}
		}
	}
}
