package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/json/jsonpatch"
	_ "github.com/kubewasm/kubewasm/internal/testkit/guarded"
)

// policies returns the policies of the manifests, with guests that were just built.
func policies(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("../../charts/manifests/webhook/webhook.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := ""
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		var object struct{ Data map[string]string }
		if err := yaml.Unmarshal([]byte(document+"\n"), &object); err != nil {
			t.Fatal(err)
		}
		file += object.Data["policies.yaml"]
	}
	for _, name := range []string{"required-labels", "resource-defaults", "stellar-node", "unique-hosts"} {
		guest, err := guestbuild.Build(t.Context(), "../../examples/admission/"+name)
		if err != nil {
			t.Fatal(err)
		}
		file = strings.Replace(file, "/plugins/"+name+".wasm", guest, 1)
	}
	return file
}

// certificate writes a certificate for 127.0.0.1 and returns who trusts it.
func certificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for name, data := range map[string][]byte{"tls.crt": cert, "tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), "token": []byte("secret\n"), "policies.yaml": []byte(policies(t))} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	return pool
}

// freeAddress is one that no process listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start runs the command until the test ends, and waits until client finds it ready.
func start(t *testing.T, client *http.Client, addr string, args ...string) {
	t.Helper()
	startWith(t, client, addr, prometheus.NewRegistry(), args...)
}

// startWith is start with the registry of /metrics.
func startWith(t *testing.T, client *http.Client, addr string, registry *prometheus.Registry, args ...string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, append(args, "-addr", addr, "-drain-delay", "1ms"), registry) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	// Under the race detector, modules take a minute to compile.
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if resp, err := client.Get("https://" + addr + "/readyz"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case err := <-ended:
			ended <- nil
			t.Fatal(err)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatal("the server does not become ready")
		}
	}
}

// The management API, opened by a certificate and by nothing else.
func TestClientCertificates(t *testing.T) {
	dir, addr := t.TempDir(), freeAddress(t)
	server := certificate(t, dir)
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := func(name string, ca bool) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			IsCA: ca, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
	}
	ca := template("clients", true)
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	client := func(name string) *http.Client {
		config := &tls.Config{RootCAs: server}
		if name != "" {
			key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			own, err := x509.CreateCertificate(rand.Reader, template(name, false), ca, key.Public(), caKey)
			if err != nil {
				t.Fatal(err)
			}
			config.Certificates = []tls.Certificate{{Certificate: [][]byte{own}, PrivateKey: key}}
		}
		return &http.Client{Transport: &http.Transport{TLSClientConfig: config}, Timeout: 10 * time.Second}
	}
	flags := []string{"-cert", filepath.Join(dir, "tls.crt"), "-key", filepath.Join(dir, "tls.key"), "-api-clients", "admin,root"}
	if err := run(t.Context(), flags); err == nil || err.Error() != "-api-clients needs -client-ca" {
		t.Errorf("error is %v", err)
	}
	start(t, client(""), addr, append(flags, "-client-ca", filepath.Join(dir, "ca.crt"))...)
	const review = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u"}}`
	for name, want := range map[string][2]int{"": {401, 401}, "apiserver": {401, 200}, "admin": {200, 200}, "root": {200, 200}} {
		c := client(name)
		listed, err := c.Get("https://" + addr + "/plugins")
		if err != nil {
			t.Fatal(err)
		}
		listed.Body.Close()
		asked, err := c.Post("https://"+addr+"/validate", "application/json", strings.NewReader(review))
		if err != nil {
			t.Fatal(err)
		}
		asked.Body.Close()
		if got := [2]int{listed.StatusCode, asked.StatusCode}; got != want {
			t.Errorf("%q gets %v from the API and the webhook, want %v", name, got, want)
		}
		c.CloseIdleConnections()
	}
}

func TestWebhook(t *testing.T) {
	dir, addr := t.TempDir(), freeAddress(t)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: certificate(t, dir)}}, Timeout: 30 * time.Second}
	start(t, client, addr,
		"-cert", filepath.Join(dir, "tls.crt"), "-key", filepath.Join(dir, "tls.key"), "-config", filepath.Join(dir, "policies.yaml"),
		"-api-token-file", filepath.Join(dir, "token"), "-state-dir", filepath.Join(dir, "state"))
	do := func(method, path, token string, body []byte) (int, []byte) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "https://"+addr+path, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := client.Do(r)
		if err != nil {
			return 0, nil
		}
		defer resp.Body.Close()
		out, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, out
	}
	review := func(path, resource, object string) *admissionv1.AdmissionResponse {
		t.Helper()
		group, version, kind := "", "v1", "Pod"
		switch resource {
		case "stellarnodes":
			group, version, kind = "stellar.org", "v1alpha1", "StellarNode"
		case "ingresses":
			group, kind = "networking.k8s.io", "Ingress"
		}
		code, out := do("POST", path, "", []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE",`+
			`"kind":{"group":"`+group+`","version":"`+version+`","kind":"`+kind+`"},"resource":{"group":"`+group+`","version":"`+version+`","resource":"`+resource+`"},"namespace":"shop","object":`+object+`}}`))
		var answer admissionv1.AdmissionReview
		if err := json.Unmarshal(out, &answer); err != nil || code != 200 || answer.Response == nil {
			t.Fatalf("%d %s", code, out)
		}
		return answer.Response
	}
	const pod = `{"metadata":{"labels":{"team":"shop"}},"spec":{"containers":[{"name":"web","image":"registry.example.com/web:1"}]}}`
	mutated := review("/mutate", "pods", pod)
	object, err := jsonpatch.Apply([]byte(pod), mutated.Patch)
	if err != nil || !strings.Contains(string(object), `"resources":{"requests":{"cpu":"100m","memory":"128Mi"}}`) {
		t.Errorf("object is %s, %v", object, err)
	}
	if got := review("/validate", "pods", string(object)); !got.Allowed {
		t.Errorf("answer is %+v", got.Result)
	}
	if got := review("/validate", "pods", `{"spec":{"containers":[{"image":"nginx"}]}}`); got.Allowed || !strings.HasPrefix(got.Result.Message, "required-labels: ") {
		t.Errorf("answer is %+v", got.Result)
	}
	if got := review("/validate", "stellarnodes", `{"spec":{"nodeType":"Validator","network":"Mainnet","version":"1"}}`); got.Allowed || got.Result.Message != "stellar-node: spec.validatorConfig.seedSecretRef: Required value" {
		t.Errorf("answer is %+v", got.Result)
	}
	// What it may look up is not there without a cluster: what it guards is denied.
	if got := review("/validate", "ingresses", `{"spec":{"rules":[{"host":"a.example.com"}]}}`); got.Allowed || !strings.Contains(got.Result.Message, "objects need a cluster") {
		t.Errorf("answer is %+v", got.Result)
	}

	guest, err := guestbuild.Build(t.Context(), "../../examples/admission/required-labels")
	if err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile(guest)
	if err != nil {
		t.Fatal(err)
	}
	load, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"name": "owner", "version": "1.0.0"}, "wasm_binary": base64.StdEncoding.EncodeToString(module),
		"operations": []string{"CREATE"}, "guestConfig": map[string]any{"labels": []string{"owner"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if code, out := do("POST", "/plugins", "guess", load); code != 401 {
		t.Errorf("another token gets %d %s", code, out)
	}
	if code, out := do("POST", "/plugins", "secret", load); code != 201 {
		t.Errorf("the API answers %d %s", code, out)
	}
	if got := review("/validate", "pods", string(object)); got.Allowed || !strings.HasPrefix(got.Result.Message, "owner: metadata.labels[owner]: Required value") {
		t.Errorf("answer is %+v", got.Result)
	}
	if code, out := do("GET", "/metrics", "", nil); code != 200 || !strings.Contains(string(out), `kubewasm_admission_verdicts_total{mode="Enforce",policy="owner",verdict="deny",webhook="validate"} 1`) {
		t.Errorf("metrics answer %d %s", code, out)
	}
}

// A server whose file lost its policies admits nothing and reports why it is not ready,
// until the file has policies again.
func TestAServerWithoutItsPoliciesAdmitsNothing(t *testing.T) {
	dir, addr := t.TempDir(), freeAddress(t)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: certificate(t, dir)}}, Timeout: 30 * time.Second}
	file := filepath.Join(dir, "policies.yaml")
	put := func(content string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	put("")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{"-cert", filepath.Join(dir, "tls.crt"), "-key", filepath.Join(dir, "tls.key"), "-config", file, "-interval", "20ms", "-addr", addr, "-drain-delay", "1ms", "-ready-timeout", "1s"})
	}()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	until := func(path string, code int, want string) {
		t.Helper()
		got := ""
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			resp, err := client.Post("https://"+addr+path, "application/json", strings.NewReader(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE"}}`))
			if path == "/readyz" {
				resp, err = client.Get("https://" + addr + path)
			}
			if err == nil {
				body, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if got = resp.Status + " " + string(body); resp.StatusCode == code && strings.Contains(got, want) {
					return
				}
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s answers %s, want %d %s", path, got, code, want)
			}
		}
	}
	const lost = "policies are not in service: "
	until("/readyz", 503, lost+"read configuration: it declares no policies")
	until("/validate", 503, lost)
	put("plugins:\n- name: p\n  module: {file: none.wasm, follow: true}\n  match: {rules: [{operations: [CREAT], apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}]}\n")
	until("/readyz", 503, `plugin "p": match.rules[0].operations has "CREAT"`)
	until("/mutate", 503, `\"CREAT\"`)
	put("plugins:\n- name: p\n  module: {file: none.wasm, follow: true}\n  match: {namespaceSelector: {matchLabels: {a: b}}}\n")
	until("/readyz", 503, `plugin "p": match.namespaceSelector needs the labels of namespaces`)
	put("plugins:\n- name: p\n  module: {file: none.wasm, follow: true}\n")
	until("/readyz", 200, "ok")
	until("/validate", 200, `policy \"p\" is not available: `)
}

func TestFlagsThatLetEverythingPass(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"-cert", "tls.crt", "-key", "tls.key"}, "are all missing: every request would pass"},
		{[]string{"-config", "", "-state-dir", "state"}, "are all missing: every request would pass"},
		{[]string{"-config", "policies.yaml", "-body-memory", "1000"}, "-body-memory is 1000, less than twice -review-bytes"},
	} {
		if err := run(t.Context(), test.args); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: error is %v, want %s", test.args, err, test.want)
		}
	}
}

// What keeps a server from serving is found before it is put into a cluster, all of it at once.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	certificate(t, dir)
	path := func(name string) string { return filepath.Join(dir, name) }
	put := func(name, text string) string {
		t.Helper()
		if err := os.WriteFile(path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path(name)
	}
	for name, test := range map[string]struct {
		args []string
		want []string
	}{
		"all is well": {[]string{"-cert", path("tls.crt"), "-key", path("tls.key"), "-config", put("good.yaml", "plugins: []\n"), "-api-token-file", path("token"), "-state-dir", path("state")}, nil},
		"nothing is": {
			[]string{"-cert", path("none.crt"), "-key", path("tls.key"), "-client-ca", put("empty.crt", ""), "-config", put("missing.yaml", "plugins:\n- {name: a, module: {file: /none.wasm}}\n- {name: b, module: {file: /nor.wasm}}\n"), "-api-token-file", put("no-token", "\n")},
			[]string{"none.crt", "empty.crt has no certificate", "/none.wasm", "/nor.wasm", "no-token is empty"},
		},
		"no certificate is named": {[]string{"-config", put("no-certificate.yaml", "plugins: []\n")}, []string{"-cert and -key are missing"}},
		"the form": {
			[]string{"-cert", path("tls.crt"), "-key", path("tls.key"), "-config", put("form.yaml", "plugins:\n- {name: a, modul: {}, versoin: x}\nlogLevel: loud\n")},
			[]string{`unknown field "plugins[0].modul"`, "versoin", "logLevel"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := run(t.Context(), append(test.args, "-check"))
			if (err == nil) != (test.want == nil) {
				t.Fatalf("error is %v", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error is %v, want %s", err, want)
				}
			}
		})
	}
}

// The longest review is a flag, which must fit twice into the memory for reviews.
func TestReviewBytes(t *testing.T) {
	for args, want := range map[string]string{
		"":                                     "",
		"-review-bytes=67108864":               "",
		"-review-bytes=1000 -body-memory=2000": "",
		"-review-bytes=0":                      "-review-bytes is 0, want more than 0",
		"-review-bytes=9223372036854775807":    "-body-memory is 268435456, less than twice -review-bytes of 9223372036854775807",
		"-body-memory=52428799":                "-body-memory is 52428799, less than twice -review-bytes of 26214400",
		"-body-memory=52428800 -review-bytes=26214400": "",
	} {
		o, err := parse(append([]string{"-config", "p.yaml"}, strings.Fields(args)...))
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%s: error is %v, want %q", args, err, want)
		}
		if args == "" && o.server.MaxBodyBytes != 26214400 {
			t.Errorf("the default is %d", o.server.MaxBodyBytes)
		}
	}

	dir, addr := t.TempDir(), freeAddress(t)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: certificate(t, dir)}}}
	t.Cleanup(client.CloseIdleConnections)
	if err := os.WriteFile(filepath.Join(dir, "policies.yaml"), []byte("plugins: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, client, addr, "-cert", filepath.Join(dir, "tls.crt"), "-key", filepath.Join(dir, "tls.key"), "-config", filepath.Join(dir, "policies.yaml"), "-review-bytes=300")
	for bytes, want := range map[int]int{100: http.StatusOK, 400: http.StatusRequestEntityTooLarge} {
		body := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE","object":"` + strings.Repeat("x", bytes) + `"}}`
		resp, err := client.Post("https://"+addr+"/validate", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("a review with %d bytes gets %s, want %d", len(body), resp.Status, want)
		}
	}
}
