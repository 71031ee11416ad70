package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/internal/testkit/e2e/cluster"
)

// denier is a guest of ABI 1 that denies what it is asked about, with a word of four letters.
func denier(word string) string {
	return "\x00asm\x01\x00\x00\x00" +
		"\x01\x0a\x02\x60\x02\x7f\x7f\x00\x60\x00\x01\x7e" +
		"\x02\x1a\x01\x08kubewasm\x0dstatus_reason\x00\x00" +
		"\x03\x03\x02\x01\x01" +
		"\x05\x03\x01\x00\x01" +
		"\x07\x27\x03\x06memory\x02\x00\x0fkubewasm_abi_v1\x00\x01\x08validate\x00\x02" +
		"\x0a\x15\x02\x08\x00\x42\x80\x80\x80\x80\x10\x0b\x0a\x00\x41\x00\x41\x04\x10\x00\x42\x02\x0b" +
		"\x0b\x0a\x01\x00\x41\x00\x0b\x04" + word
}

// outerAddress returns an address of the machine that is none of loopback: the API server takes no
// other for an endpoint.
func outerAddress(t *testing.T) netip.Addr {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && p.Addr().IsGlobalUnicast() {
			return p.Addr()
		}
	}
	t.Skip("the machine has no address beside loopback")
	return netip.Addr{}
}

// certificate writes a certificate for the webhook's Service that is its own CA, and its key.
func certificate(t *testing.T, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"kubewasm-webhook." + namespace + ".svc"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWebhook declares policies to the built webhook, whose Service the API server asks.
func TestWebhook(t *testing.T) {
	ip := outerAddress(t)
	w := startWorld(t, map[string][]string{"enable-aggregator-routing": {"true"}})
	dir := t.TempDir()
	key := filepath.Join(dir, "tls.key")
	certificate(t, w.caFile, key)
	_, port, err := net.SplitHostPort(cluster.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	address := net.JoinHostPort(ip.String(), port)
	typed, err := kubernetes.NewForConfig(w.Config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = typed.CoreV1().Services(namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "kubewasm-webhook"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = typed.DiscoveryV1().EndpointSlices(namespace).Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "kubewasm-webhook-0", Labels: map[string]string{discoveryv1.LabelServiceName: "kubewasm-webhook"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To(int32(number))}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{ip.String()}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod := w.pod(t, "webhook", "webhook-0", "n")
	for name, value := range map[string]string{"POD_NAME": pod.Name, "POD_NAMESPACE": namespace, "POD_UID": string(pod.UID), "NODE_NAME": "n"} {
		t.Setenv(name, value)
	}
	cluster.Run(t, cluster.Build(t, "../kubewasm-webhook", ".", "webhook"), address,
		"-cluster", "-kubeconfig="+w.Kubeconfig, "-cert="+w.caFile, "-key="+key, "-addr="+address)
	w.run(t, w.options())

	says := func(word, more string) string {
		return `{"module":{"bytes":"` + base64.StdEncoding.EncodeToString([]byte(denier(word))) + `"}` + more + `}`
	}
	create := func(in string) string {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: in, GenerateName: "c"}}
		_, err := typed.CoreV1().ConfigMaps(in).Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			_, denied, _ := strings.Cut(err.Error(), "denied the request: ")
			return denied
		}
		return "allowed"
	}
	zone := policy("zone", says("zone", ""))
	begun := time.Now()
	w.create(t, zone)
	w.sent(t, "/validate/zone")
	w.status(t, zone, "1/1", "Ready=True/Serving", "Sent=True/Sent")
	t.Logf("the policy is ready after %v", time.Since(begun))
	// An API server reads its configurations a moment later.
	asked := func(in, want string) {
		t.Helper()
		eventually(t, "requests in "+in, func() error {
			if got := create(in); got != want {
				return errors.New("the answer is " + strconv.Quote(got) + ", want " + strconv.Quote(want))
			}
			return nil
		})
	}
	asked("team", "zone: zone")
	asked(namespace, "allowed")
	// One entry asks one policy alone: that of the namespace would deny, too.
	own := &v1alpha1.AdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "zone"}, Spec: spec(says("team", ""))}
	w.create(t, own)
	w.status(t, own, "1/1", "Ready=True/Serving", "Sent=True/Sent")
	w.delete(t, zone)
	asked("team", "team/zone: team")
	asked("default", "allowed")
	w.change(t, own, func() { own.Spec = spec(says("next", "")) })
	w.status(t, own, "1/1", "Ready=True/Serving", "Sent=True/Sent")
	asked("team", "team/zone: next")
	// A change that is not taken leaves the earlier version in service.
	w.change(t, own, func() { own.Spec = spec(says("wide", `,"limits":{"timeout":"1h"}`)) })
	w.status(t, own, "0/1", "Ready=False/Stale", "Sent=True/Sent")
	asked("team", "team/zone: next")
	w.change(t, own, func() { own.Spec = spec(says("mode", `,"mode":"Monitor"`)) })
	w.status(t, own, "1/1", "Ready=True/Serving", "Sent=True/Sent")
	asked("team", "allowed")
	w.delete(t, own)
	w.sent(t)
}
