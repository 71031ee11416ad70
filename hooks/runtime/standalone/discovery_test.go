package standalone_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/runtime/standalone"
)

// manifests are pods as the kubelet's endpoint has them.
const manifests = `
kind: PodList
apiVersion: v1
items:
- metadata: {namespace: shop, name: web, uid: u1, labels: {tier: front}, annotations: {a: b}}
  spec:
    initContainers: [{name: init}, {name: sidecar}]
    containers:
    - name: nginx
      env: [{name: A, value: "1"}, {name: SECRET, valueFrom: {secretKeyRef: {name: s, key: k}}}]
      resources: {requests: {cpu: 500m, memory: 1Gi}, limits: {cpu: 1500m, memory: 2Gi}}
    - name: waiting
    ephemeralContainers: [{name: debugger, image: busybox, env: [{name: B, value: "2"}]}, {name: over}]
  status:
    ephemeralContainerStatuses:
    - {name: debugger, containerID: "containerd://e1", state: {running: {}}}
    - {name: over, containerID: "containerd://e2", state: {terminated: {}}}
    initContainerStatuses:
    - {name: init, containerID: "containerd://i1", state: {terminated: {exitCode: 0}}}
    - {name: sidecar, containerID: "containerd://i2", state: {running: {}}}
    containerStatuses:
    - {name: nginx, containerID: "cri-o://c1", state: {running: {}}}
    - {name: waiting, containerID: "", state: {waiting: {}}}
- metadata: {namespace: kube-system, name: static, uid: 0123abcd, annotations: {kubernetes.io/config.hash: 0123abcd, kubernetes.io/config.source: file}}
  spec: {containers: [{name: c, resources: {limits: {cpu: "2", memory: 1Gi}}}]}
- metadata: {namespace: shop, name: done, uid: u3}
  spec: {containers: [{name: c}]}
  status: {phase: Succeeded}
- metadata: {namespace: shop, name: batch, uid: u4}
  spec: {containers: [{name: c}]}
  status: {qosClass: BestEffort}
`

func n(v int64) *int64 { return &v }

var wantPods = []standalone.Pod{
	{
		Namespace: "shop", Name: "web", UID: "u1", Labels: map[string]string{"tier": "front"}, Annotations: map[string]string{"a": "b"},
		QOSClass: abi.QOSBurstable, Derived: true, Resources: &hookmsg.Resources{CPUShares: n(512), CFSPeriodUS: n(100_000)},
		Containers: []standalone.Container{
			{Name: "sidecar", ID: "i2", Resources: &hookmsg.Resources{CPUShares: n(2), CFSPeriodUS: n(100_000)}},
			{Name: "nginx", ID: "c1", Envs: []hookmsg.Env{{Name: "A", Value: "1"}}, Resources: &hookmsg.Resources{CPUShares: n(512), CFSQuotaUS: n(150_000), CFSPeriodUS: n(100_000), MemoryLimitBytes: n(2 << 30)}, SwapRequest: 1 << 30},
			{Name: "debugger", ID: "e1", Envs: []hookmsg.Env{{Name: "B", Value: "2"}}, Resources: &hookmsg.Resources{CPUShares: n(2), CFSPeriodUS: n(100_000)}},
		},
	},
	{
		Namespace: "kube-system", Name: "static", UID: "0123abcd", Annotations: map[string]string{"kubernetes.io/config.hash": "0123abcd", "kubernetes.io/config.source": "file"},
		QOSClass: abi.QOSGuaranteed, Derived: true, Resources: &hookmsg.Resources{CPUShares: n(2048), CFSQuotaUS: n(200_000), CFSPeriodUS: n(100_000), MemoryLimitBytes: n(1 << 30)},
	},
	{Namespace: "shop", Name: "batch", UID: "u4", QOSClass: abi.QOSBestEffort, Derived: true, Resources: &hookmsg.Resources{CPUShares: n(2), CFSPeriodUS: n(100_000)}},
}

func write(t testing.TB, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFile(t *testing.T) {
	got, err := standalone.File(write(t, manifests)).Pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantPods, got); diff != "" {
		t.Error(diff)
	}
	for text, want := range map[string]string{
		"kind: Node":                      `kind is "Node", want PodList or Pod`,
		"{":                               "did not find expected",
		"":                                "found null, want an object",
		"a: [":                            "did not find expected",
		`{"kind": "PodList", "items": 5}`: "found 5, want a list",
		`{"kind": "PodList", "items": [{"metadata": 5}]}`:                                                            "cannot unmarshal number",
		`{"kind": "PodList", "items": [{"metadata": {}}, {`:                                                          "did not find expected",
		`{"kind": "PodList", "items": [{"spec": {"overhead": {"cpu": "1e-2147483647"}}}]}`:                           `spec.overhead.cpu: "1e-2147483647" is no quantity`,
		`{"kind": "Pod", "status": {"containerStatuses": [{"resources": {"limits": {"memory": "1e-2147483647"}}}]}}`: `containerStatuses[0].resources.limits.memory: "1e-2147483647" is no quantity`,
	} {
		if _, err := standalone.File(write(t, text)).Pods(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got error %v, want one with %s", text, err, want)
		}
	}
	// An annotation does not make it another pod.
	got, err = standalone.File(write(t, "kind: Pod\nmetadata: {uid: u1, annotations: {kubernetes.io/config.mirror: u2, kubernetes.io/config.hash: u2}}")).Pods(t.Context())
	if err != nil || len(got) != 1 || got[0].UID != "u1" {
		t.Errorf("got %v, error %v", got, err)
	}
	// Whatever the order, and whatever else there is.
	for text, want := range map[string]int{
		`{"items": [{"metadata": {"uid": "u"}, "spec": {"volumes": [{}]}}], "apiVersion": "v1", "other": {"a": [1]}, "kind": "List"}`: 1,
		`{"metadata": {"uid": "u"}, "status": {"conditions": null}, "spec": null, "kind": "Pod"}`:                                     1,
		`{"kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": null}`:                                                    0,
		`{"kind": "PodList"}`: 0,
	} {
		if got, err := standalone.File(write(t, text)).Pods(t.Context()); err != nil || len(got) != want {
			t.Errorf("%s: got %v, error %v", text, got, err)
		}
	}
	if _, err := standalone.File("/nowhere").Pods(t.Context()); err == nil {
		t.Error("a file that is not there is no error")
	}
}

func TestKubelet(t *testing.T) {
	answer := func(w http.ResponseWriter, _ *http.Request) {
		b, err := os.ReadFile(write(t, `{"kind": "PodList", "items": [{"metadata": {"namespace": "shop", "name": "batch", "uid": "u4"}, "spec": {"containers": [{"name": "c"}]}, "status": {"qosClass": "BestEffort"}}]}`))
		if err != nil {
			t.Error(err)
		}
		w.Write(b)
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Authorization") {
		case "Bearer secret":
			answer(w, r)
		case "Bearer cut":
			io.WriteString(w, `{"kind": "PodList", "items": [{"metadata": {"uid": "u"}}, {"meta`)
		default:
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
		}
	}))
	defer server.Close()
	server.Config.ErrorLog = nil
	ca := write(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	token, cut := write(t, "secret\n"), write(t, "cut\n")
	for _, c := range []struct {
		name string
		cfg  standalone.KubeletConfig
		err  string
	}{
		{"with its certificate", standalone.KubeletConfig{TokenFile: token, CAFile: ca}, ""},
		{"with another name in its certificate", standalone.KubeletConfig{TokenFile: token, CAFile: ca, ServerName: "example.com"}, ""},
		{"with a name that its certificate does not have", standalone.KubeletConfig{TokenFile: token, CAFile: ca, ServerName: "node-1"}, "not node-1: the CA file has to sign"},
		{"without a token", standalone.KubeletConfig{CAFile: ca}, "401 Unauthorized: Unauthorized"},
		{"with the system's certificates", standalone.KubeletConfig{TokenFile: token}, "certificate"},
		{"an answer that is cut off", standalone.KubeletConfig{TokenFile: cut, CAFile: ca}, "unexpected EOF"},
		{"without its token file", standalone.KubeletConfig{TokenFile: "/nowhere", CAFile: ca}, "/nowhere"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cfg.URL = server.URL + "/pods"
			k, err := standalone.Kubelet(c.cfg)
			if err != nil {
				t.Fatal(err)
			}
			got, err := k.Pods(t.Context())
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got error %v, want one with %s", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(wantPods[2:], got); diff != "" {
				t.Error(diff)
			}
		})
	}
	for _, cfg := range []standalone.KubeletConfig{{CAFile: "/nowhere"}, {CAFile: token}, {URL: "://"}} {
		if _, err := standalone.Kubelet(cfg); err == nil {
			t.Errorf("%+v is no mistake", cfg)
		}
	}
}

// TestKubeletIsSentNoTokenBeforeItsCertificateIsVerified holds that what listens at the
// kubelet's port gets nothing of an agent that does not know its certificate.
func TestKubeletIsSentNoTokenBeforeItsCertificateIsVerified(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	other := certificateOf(t, "node-1")
	ca := write(t, other)
	k, err := standalone.Kubelet(standalone.KubeletConfig{URL: server.URL, TokenFile: write(t, "secret"), CAFile: ca})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Pods(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") || asked.Load() != 0 {
		t.Errorf("got error %v, and the other was asked %d times", err, asked.Load())
	}
	// The kubelet has another certificate from now on, and the file follows.
	pem := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(ca, append([]byte(other), pem...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Pods(t.Context()); err == nil || asked.Load() != 1 {
		t.Errorf("got error %v, want one about the answer alone; the kubelet was asked %d times", err, asked.Load())
	}
}

// certificateOf returns a certificate of a name that signs itself, in PEM.
func certificateOf(t *testing.T, name string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func TestKubeletThatDoesNotEnd(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := io.WriteString(w, strings.Repeat(" ", 1<<20)); err != nil {
				return
			}
		}
	}))
	defer server.Close()
	// Time enough for 64 MB, on a busy machine and under the race detector.
	k, err := standalone.Kubelet(standalone.KubeletConfig{URL: server.URL, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Pods(t.Context()); err == nil || !strings.Contains(err.Error(), "the answer has more than") {
		t.Errorf("got error %v", err)
	}
}
