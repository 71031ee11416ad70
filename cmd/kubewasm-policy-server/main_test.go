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
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"

	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/oci"
	_ "github.com/kubewasm/kubewasm/internal/testkit/guarded"
)

// certificate is a certificate with its key.
type certificate struct {
	der  []byte
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// issue returns a certificate for 127.0.0.1 that a CA has signed, or a CA if that is nil.
func issue(t *testing.T, name string, by *certificate) *certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := template, key
	if by == nil {
		template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	} else {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &certificate{der, cert, key}
}

func (c *certificate) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.der}))
}

func (c *certificate) keyPEM(t *testing.T) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(c.key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// mount makes a directory what kubelet makes of a mount: links to files in a directory that a
// link leads to, which is exchanged.
type mount struct {
	t          *testing.T
	dir        string
	generation int
}

func newMount(t *testing.T, files map[string]string) *mount {
	m := &mount{t: t, dir: t.TempDir()}
	m.replace(files)
	return m
}

func (m *mount) path(name string) string { return filepath.Join(m.dir, name) }

func (m *mount) replace(files map[string]string) {
	m.t.Helper()
	m.generation++
	fail := func(err error) {
		m.t.Helper()
		if err != nil {
			m.t.Fatal(err)
		}
	}
	name := fmt.Sprintf("..%d", m.generation)
	fail(os.Mkdir(m.path(name), 0o755))
	for file, text := range files {
		fail(os.WriteFile(filepath.Join(m.dir, name, file), []byte(text), 0o600))
		if _, err := os.Lstat(m.path(file)); err != nil {
			fail(os.Symlink(filepath.Join("..data", file), m.path(file)))
		}
	}
	fail(os.Symlink(name, m.path("..data_tmp")))
	fail(os.Rename(m.path("..data_tmp"), m.path("..data")))
}

// output is what a server logs.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// saying returns the module of a policy that speaks waPC and has a verdict.
func saying(t *testing.T, verdict string) []byte {
	t.Helper()
	module, err := os.ReadFile("../../admission/kubewarden/internal/policies/testdata/verdict/wapc.wasm")
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Replace(module, bytes.Repeat([]byte("@"), 600), []byte(verdict+strings.Repeat(" ", 600-len(verdict))), 1)
}

// newRegistry returns the host of a registry that asks for a user and a password.
func newRegistry(t *testing.T) (host, dockerConfig string) {
	t.Helper()
	store := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "kubelet" || password != "secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		store.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	host = strings.TrimPrefix(server.URL, "http://")
	auth := base64.StdEncoding.EncodeToString([]byte("kubelet:secret"))
	return host, fmt.Sprintf(`{"auths": {%q: {"auth": %q}}}`, host, auth)
}

// push puts a module into a registry, and signs it if there is a key.
func push(t *testing.T, host, dockerConfig, name string, module []byte, key *ecdsa.PrivateKey) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(file, []byte(dockerConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	client, err := oci.New(oci.Config{DockerConfig: file, Registries: []oci.Registry{{Host: host, PlainHTTP: true}}})
	if err != nil {
		t.Fatal(err)
	}
	ref, err := oci.ParseReference(host + "/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Push(t.Context(), ref, module, oci.PushOptions{}); err != nil {
		t.Fatal(err)
	}
	if key != nil {
		if _, err := client.Sign(t.Context(), ref, key, oci.SignOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// freePort returns a port that was free a moment ago.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(90 * time.Second)
	for !f() {
		if time.Now().After(deadline) {
			t.Fatalf("it does not happen: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// start runs the server with an environment, waits until it is ready, and ends it with the test.
func start(t *testing.T, env map[string]string) *output {
	t.Helper()
	return startWith(t, env, prometheus.NewRegistry())
}

// startWith is start with the registry of /metrics.
func startWith(t *testing.T, env map[string]string, registry *prometheus.Registry) *output {
	t.Helper()
	out := new(output)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, nil, func(name string) string { return env[name] }, out, registry) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the server ends with %v", err)
		}
	})
	until(t, "readiness", func() bool {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the server ends with %v\n%s", err, out)
		default:
		}
		resp, err := http.Get("http://127.0.0.1:" + env["KUBEWARDEN_READINESS_PROBE_PORT"] + "/readiness")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return out
}

const review = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u1",` +
	`"kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},` +
	`"requestKind":{"group":"","version":"v1","kind":"Pod"},"requestResource":{"group":"","version":"v1","resource":"pods"},` +
	`"name":"web","namespace":"shop","operation":"CREATE","userInfo":{"username":"alice","groups":["devs"]},` +
	`"object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"}},"oldObject":null,"dryRun":false,"options":null}}`

// post sends a review as an API server does, and returns the message of the answer, "allowed"
// if it allows.
func post(client *http.Client, url string) (string, error) {
	resp, err := client.Post(url+"?timeout=10s", "application/json", strings.NewReader(review))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	var answer struct {
		Response struct {
			UID     string
			Allowed bool
			Status  struct{ Message string }
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil || resp.StatusCode != http.StatusOK || answer.Response.UID != "u1" {
		return "", fmt.Errorf("%s: %s, %w", resp.Status, body, errors.Join(err, errors.New("it is no review")))
	}
	if answer.Response.Allowed {
		return "allowed", nil
	}
	return answer.Response.Status.Message, nil
}

// The server is started as the controller's Deployment does: by the environment and mounts, with
// policies from a registry that needs the pull secret, signatures, and mTLS.
func TestAsTheControllerDeploysIt(t *testing.T) {
	host, dockerConfig := newRegistry(t)
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	push(t, host, dockerConfig, "policies/allow:v1", saying(t, `{"accepted":true}`), signer)
	push(t, host, dockerConfig, "policies/deny:latest", saying(t, `{"accepted":false,"message":"not here"}`), signer)
	push(t, host, dockerConfig, "policies/unsigned:v1", saying(t, `{"accepted":true}`), nil)
	der, err := x509.MarshalPKIXPublicKey(&signer.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	key, err := json.Marshal(string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})))
	if err != nil {
		t.Fatal(err)
	}
	policy := func(id, module, more string) string {
		return fmt.Sprintf(`"clusterwide-%s":{"namespacedName":{"Namespace":"","Name":%q},"module":%q,"policyMode":"protect","allowedToMutate":false,%s"hostCapabilities":["*"]}`, id, id, module, more)
	}
	first := "{" + strings.Join([]string{
		policy("allow", "registry://"+host+"/policies/allow:v1", `"settings":{},`),
		policy("deny", host+"/policies/deny", `"message":"ask the platform team",`),
		policy("unsigned", "registry://"+host+"/policies/unsigned:v1", ""),
		policy("absent", "registry://"+host+"/policies/absent:v1", ""),
		policy("file", "file:///policy.wasm", ""),
		fmt.Sprintf(`"clusterwide-group-g":{"namespacedName":{"Namespace":"","Name":"g"},"policyMode":"protect","policies":{"a":{"module":"registry://%[1]s/policies/allow:v1","hostCapabilities":["*"]},"d":{"module":"registry://%[1]s/policies/deny:latest","hostCapabilities":["*"]}},"expression":"a() && !d()","message":"no"}`, host),
	}, ",") + "}"

	ca := issue(t, "the server's CA", nil)
	clientCA := issue(t, "the cluster's CA", nil)
	pki := newMount(t, map[string]string{"tls.crt": issue(t, "first", ca).pem(), "tls.key": ""})
	install := func(name string) {
		c := issue(t, name, ca)
		pki.replace(map[string]string{"tls.crt": c.pem(), "tls.key": c.keyPEM(t)})
	}
	install("first")
	config := newMount(t, map[string]string{"policies.yml": first, "sources.yml": fmt.Sprintf(`{"insecure_sources":[%q],"source_authorities":{}}`, host)})
	verification := newMount(t, map[string]string{"verification.yml": fmt.Sprintf("apiVersion: v1\nanyOf:\n  minimumMatches: 1\n  signatures:\n  - kind: pubKey\n    owner: platform\n    key: %s\n", key)})
	docker := newMount(t, map[string]string{"config.json": dockerConfig})
	cas := newMount(t, map[string]string{"ca.crt": ca.pem(), "client-ca.crt": clientCA.pem()})
	store := t.TempDir()
	env := map[string]string{
		"KUBEWARDEN_BIND_ADDRESS": "127.0.0.1", "KUBEWASM_DRAIN_DELAY": "0s", "HOSTNAME": "policy-server-default-0",
		// What the controller's Deployment has.
		"KUBEWARDEN_CERT_FILE": pki.path("tls.crt"), "KUBEWARDEN_KEY_FILE": pki.path("tls.key"),
		"KUBEWARDEN_PORT": freePort(t), "KUBEWARDEN_READINESS_PROBE_PORT": freePort(t), "KUBEWASM_READY_TIMEOUT": "100ms",
		"KUBEWARDEN_POLICIES_DOWNLOAD_DIR": store, "KUBEWARDEN_SIGSTORE_CACHE_DIR": filepath.Join(store, "sigstore-data"),
		"KUBEWARDEN_POLICIES": config.path("policies.yml"), "KUBEWARDEN_SOURCES_PATH": config.path("sources.yml"),
		"KUBEWARDEN_VERIFICATION_CONFIG_PATH": verification.path("verification.yml"), "KUBEWARDEN_DOCKER_CONFIG_JSON_PATH": docker.dir,
		"KUBEWARDEN_CLIENT_CA_FILE":                               cas.path("ca.crt") + "," + cas.path("client-ca.crt"),
		"KUBEWARDEN_ALWAYS_ACCEPT_ADMISSION_REVIEWS_ON_NAMESPACE": "kubewarden", "KUBEWARDEN_LOG_LEVEL": "debug", "KUBEWARDEN_LOG_FMT": "json",
		"KUBEWARDEN_CONTINUE_ON_ERRORS": "true",
	}
	t.Setenv("KUBECONFIG", filepath.Join(store, "none"))
	out := start(t, env)
	url := "https://127.0.0.1:" + env["KUBEWARDEN_PORT"]
	client := func(show *certificate) *http.Client {
		pool := x509.NewCertPool()
		pool.AddCert(ca.cert)
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}
		if show != nil {
			transport.TLSClientConfig.Certificates = []tls.Certificate{{Certificate: [][]byte{show.der}, PrivateKey: show.key}}
		}
		return &http.Client{Transport: transport}
	}
	apiServer := client(issue(t, "api server", clientCA))

	t.Run("verdicts", func(t *testing.T) {
		for path, want := range map[string]string{
			"/validate/clusterwide-allow":    "allowed",
			"/validate/clusterwide-deny":     "ask the platform team",
			"/audit/clusterwide-deny":        "not here",
			"/validate/clusterwide-group-g":  "allowed",
			"/validate/clusterwide-unsigned": "is not trusted: it has no signature",
			"/validate/clusterwide-absent":   "/policies/absent:v1: there is no such artifact",
			"/validate/clusterwide-file":     "a module by file has no signatures, which verification-path requires",
		} {
			if got, err := post(apiServer, url+path); err != nil || !strings.Contains(got, want) {
				t.Errorf("%s answers %q, %v, want %q", path, got, err, want)
			}
		}
	})
	t.Run("clients without a certificate", func(t *testing.T) {
		for name, c := range map[string]*http.Client{"none": client(nil), "another CA": client(issue(t, "stranger", issue(t, "other", nil)))} {
			if got, err := post(c, url+"/validate/clusterwide-allow"); err == nil {
				t.Errorf("%s gets %q", name, got)
			}
		}
	})
	t.Run("metrics", func(t *testing.T) {
		resp, err := http.Get("http://127.0.0.1:" + env["KUBEWARDEN_READINESS_PROBE_PORT"] + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			`kubewarden_policy_evaluations_total{accepted="false",mutated="false",policy_mode="protect",policy_name="clusterwide-deny",request_origin="audit",resource_kind="Pod",resource_namespace="shop",resource_request_operation="CREATE"} 1`,
			`kubewarden_policy_evaluations_total{accepted="true",mutated="false",policy_mode="protect",policy_name="clusterwide-group-g",request_origin="validate",resource_kind="Pod",resource_namespace="shop",resource_request_operation="CREATE"} 1`,
			`kubewarden_policy_evaluation_latency_milliseconds_count{accepted="true"`,
			`kubewarden_policy_evaluations_total{initialization_error="policy \"clusterwide-absent\"`,
			`kubewarden_policy_initialization_errors_total{initialization_error="policy \"clusterwide-file\"`,
			`kubewasm_plugin_instances_limit{plugin="clusterwide-allow"}`,
		} {
			if !strings.Contains(string(body), want) {
				t.Errorf("metrics have no %s", want)
			}
		}
	})
	t.Run("policies change", func(t *testing.T) {
		second := strings.Replace(first, `"message":"ask the platform team",`, "", 1)
		push(t, host, dockerConfig, "policies/absent:v1", saying(t, `{"accepted":true}`), signer)
		second = strings.Replace(second, "policies/unsigned:v1", "policies/absent:v1", 1)
		config.replace(map[string]string{"policies.yml": second, "sources.yml": fmt.Sprintf(`{"insecure_sources":[%q],"source_authorities":{}}`, host)})
		until(t, "new policies", func() bool {
			deny, err1 := post(apiServer, url+"/validate/clusterwide-deny")
			unsigned, err2 := post(apiServer, url+"/validate/clusterwide-unsigned")
			return errors.Join(err1, err2) == nil && deny == "not here" && unsigned == "allowed"
		})
	})
	t.Run("certificates change", func(t *testing.T) {
		install("second")
		until(t, "the new certificate", func() bool {
			resp, err := apiServer.Get(url + "/")
			if err != nil {
				return false
			}
			resp.Body.Close()
			return resp.TLS.PeerCertificates[0].Subject.CommonName == "second"
		})
		// The clients' CA is replaced, too.
		next := issue(t, "the cluster's next CA", nil)
		cas.replace(map[string]string{"ca.crt": ca.pem(), "client-ca.crt": next.pem()})
		replaced := client(issue(t, "api server", next))
		until(t, "the new CA of clients", func() bool {
			got, err := post(replaced, url+"/validate/clusterwide-allow")
			return err == nil && got == "allowed"
		})
		if _, err := post(apiServer, url+"/validate/clusterwide-allow"); err == nil {
			t.Error("a certificate of the CA before is taken")
		}
	})
	if !strings.Contains(out.String(), `"name":"KUBEWARDEN_CONTINUE_ON_ERRORS"`) {
		t.Errorf("the log says nothing of a setting that is ignored:\n%s", out)
	}
}

// What keeps a server from serving is found before it is put into a cluster, all of it at once. The
// level of the log is that of the file of guests.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) string {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	checked := func(policies string, args ...string) (string, error) {
		var out strings.Builder
		args = append(args, "-check", "-policies", put("policies.yml", policies), "-policies-download-dir", dir, "-sigstore-cache-dir", dir)
		err := run(t.Context(), args, func(string) string { return "" }, &out)
		return out.String(), err
	}
	if _, err := checked("{}\n"); err != nil {
		t.Error(err)
	}
	_, err := checked("a: {module: \"file:///nowhere/a.wasm\"}\nb: {module: \"file:///nowhere/b.wasm\"}\n", "-cert-file", "/nowhere/tls.crt", "-key-file", "/nowhere/tls.key", "-client-ca-file", put("empty.crt", ""))
	for _, want := range []string{"/nowhere/a.wasm", "/nowhere/b.wasm", "-cert-file and -key-file: ", "empty.crt has no certificate in PEM"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %s", err, want)
		}
	}
	o, err := parse([]string{"-log-level", "warn", "-guests-path", put("guests.yml", "logLevel: debug\n")}, func(string) string { return "" }, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readGuests(o); err != nil || o.level.Level() != slog.LevelDebug {
		t.Errorf("level is %s, %v", o.level.Level(), err)
	}
}

func TestSettingsThatAreWrong(t *testing.T) {
	tests := []struct {
		name string
		args []string
		env  map[string]string
		want []string
	}{
		{"everything at once", []string{"-port", "http", "-log-level=loud", "-workers", "0", "-policy-timeout", "0", "-cert-file", "a"}, nil, []string{
			`-log-level is "loud": want one of trace, debug`, `-workers is "0": want a number from 1`, `port is "http": want a number`, `policy-timeout is "0"`, "cert-file and key-file need each other"}},
		{"the environment", nil, map[string]string{"KUBEWARDEN_LOG_FMT": "xml", "KUBEWARDEN_ENABLE_METRICS": "perhaps", "KUBEWARDEN_CLIENT_CA_FILE": "ca.crt"}, []string{
			`KUBEWARDEN_LOG_FMT is "xml"`, `KUBEWARDEN_ENABLE_METRICS is "perhaps": want true or false`, "client-ca-file needs cert-file"}},
		{"an argument", []string{"docs"}, nil, []string{`unknown argument "docs"`}},
		{"a flag", []string{"-polices", "x"}, nil, []string{"flag provided but not defined: -polices"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := parse(test.args, func(name string) string { return test.env[name] }, io.Discard)
			if err == nil {
				t.Fatal("there is no error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error has no %s:\n%v", want, err)
				}
			}
		})
	}
	o, err := parse([]string{"-port=4000", "-enable-metrics", "--daemon", "-namespaced-capabilities", "oci/*"}, func(name string) string {
		return map[string]string{"KUBEWARDEN_PORT": "5000", "KUBEWARDEN_POLICY_TIMEOUT": "7", "KUBEWARDEN_DISABLE_TIMEOUT_PROTECTION": "no"}[name]
	}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if o.addr != "0.0.0.0:4000" || o.probeAddr != "0.0.0.0:8081" || !o.metrics || o.timeout != 7*time.Second || len(o.ignored) != 1 || o.ignored[0] != "-daemon" {
		t.Errorf("options are %+v", o)
	}
}

// A server whose files have mistakes ends with all of them.
func TestSettingsOfTheRuntime(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		env  map[string]string
		want host.RuntimeConfig
	}{
		"by default":     {nil, nil, host.RuntimeConfig{CacheDir: "compiled"}},
		"by flags":       {[]string{"-cache-copy", "-memory", "1000", "-policies-download-dir", "/d"}, nil, host.RuntimeConfig{CacheDir: "/d/compiled", CacheCopy: true, MemoryBytes: 1000}},
		"by variables":   {nil, map[string]string{"KUBEWASM_CACHE_COPY": "yes", "KUBEWASM_MEMORY": "1000"}, host.RuntimeConfig{CacheDir: "compiled", CacheCopy: true, MemoryBytes: 1000}},
		"a flag is last": {[]string{"-cache-copy=false"}, map[string]string{"KUBEWASM_CACHE_COPY": "yes"}, host.RuntimeConfig{CacheDir: "compiled"}},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := parse(test.args, func(key string) string { return test.env[key] }, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			got := o.runtime(slog.New(slog.DiscardHandler))
			if got.CacheError = nil; got.CacheDir != test.want.CacheDir || got.CacheCopy != test.want.CacheCopy || got.MemoryBytes != test.want.MemoryBytes {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestFilesThatAreWrong(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	env := map[string]string{
		"KUBEWARDEN_POLICIES":                    file("policies.yml", `{"a": {"policyMode": "off", "module": "m"}}`),
		"KUBEWARDEN_SOURCES_PATH":                file("sources.yml", `{"source_authorities": {"r.example.com": [{"type": "Url"}, {"type": "Data", "data": "none"}]}}`),
		"KUBEWARDEN_VERIFICATION_CONFIG_PATH":    file("verification.yml", `{"apiVersion": "v2", "anyOf": {"minimumMatches": 2, "signatures": [{"kind": "genericIssuer", "subject": {}}]}, "allOf": [{"kind": "odd"}, {"kind": "githubAction"}]}`),
		"KUBEWARDEN_SIGSTORE_TRUST_CONFIG_PATH":  file("trust.json", `{}`),
		"KUBEWASM_GUESTS":                        `{"limit": {}}`,
		"KUBEWASM_NAMESPACED_CAPABILITIES":       "oci/v9/*",
		"KUBEWARDEN_POLICIES_DOWNLOAD_DIR":       dir,
		"KUBEWARDEN_READINESS_PROBE_PORT":        "0",
		"KUBEWARDEN_IGNORE_UNKNOWN_VARIABLE_TOO": "x",
	}
	err := run(t.Context(), nil, func(name string) string { return env[name] }, io.Discard)
	if err == nil {
		t.Fatal("there is no error")
	}
	for _, want := range []string{
		`policy "a": policyMode is "off"`, `source_authorities of r.example.com: [0]: type is "Url"`, "[1]: it is not a certificate", `apiVersion is "v2", want v1`,
		"anyOf.minimumMatches is 2, want 1 to the 1 signatures", "anyOf.signatures[0]: issuer is missing", "subject has one of equal and urlPrefix", `allOf[0]: kind is "odd"`,
		"allOf[1]: owner is missing", "trustedRoot is missing", `unknown field "limit"`, `"oci/v9/*" is none of`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error has no %s:\n%v", want, err)
		}
	}
}

func TestVerification(t *testing.T) {
	file := filepath.Join(t.TempDir(), "verification.yml")
	const text = `apiVersion: v1
allOf:
- {kind: githubAction, owner: acme, annotations: {env: prod}}
anyOf:
  minimumMatches: 2
  signatures:
  - {kind: githubAction, owner: acme, repo: zone}
  - {kind: genericIssuer, issuer: https://github.com/login/oauth, subject: {equal: alice@example.com}}
  - {kind: genericIssuer, issuer: https://gitlab.example.com, subject: {urlPrefix: https://gitlab.example.com/acme}}
  - {kind: pubKey, owner: platform, key: KEY}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	trust, err := readVerification(file)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.MarshalIndent(trust, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"sourceOwner": "https://github.com/acme"`, `"sourceRepository": "https://github.com/acme/zone"`, `"subject": "alice@example.com"`,
		`"subjectRegexp": "https://gitlab\\.example\\.com/acme/.*"`, `"key": "KEY"`, `"minimum": 2`, `"env": "prod"`,
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("trust has no %s:\n%s", want, got)
		}
	}
}

func TestSourceOfAModule(t *testing.T) {
	client, err := oci.New(oci.Config{Trust: []oci.Trust{{Repositories: []string{"*"}, Unsigned: true}}})
	if err != nil {
		t.Fatal(err)
	}
	a := &artifacts{o: new(options), client: client, https: map[string]*http.Client{}}
	for module, want := range map[string]string{
		"registry://ghcr.io/kubewarden/policies/pod:v1":      "ghcr.io/kubewarden/policies/pod:v1",
		"ghcr.io/kubewarden/policies/pod":                    "ghcr.io/kubewarden/policies/pod:latest",
		"ghcr.io:5000/pod@sha256:" + strings.Repeat("a", 64): "ghcr.io:5000/pod@sha256:" + strings.Repeat("a", 64),
		"file:///policies/pod.wasm":                          "/policies/pod.wasm",
		"https://example.com/pod.wasm":                       "https://example.com/pod.wasm",
		"http://example.com/pod.wasm":                        "error: scheme http is none of registry, https and file",
		"pod":                                                `error: reference "pod`,
		"registry://oci-layout:/var/lib/policies:1":          "error: a module cannot name an image layout",
		"oci-layout:/var/lib/policies":                       "error: a module cannot name an image layout",
	} {
		source, err := a.source(module)
		got := ""
		if err != nil {
			got = "error: " + err.Error()
		} else {
			got = source.String()
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("source of %s is %s, want %s", module, got, want)
		}
	}
}

// What cosign has signed by a key and by an identity is verified as a verification configuration
// says, and loaded: the fixtures of host/oci and of host/oci/sigstore.
func TestWhatCosignHasSigned(t *testing.T) {
	host, dockerConfig := newRegistry(t)
	docker := newMount(t, map[string]string{"config.json": dockerConfig})
	client, err := oci.New(oci.Config{DockerConfig: docker.path("config.json"), Registries: []oci.Registry{{Host: host, PlainHTTP: true}}})
	if err != nil {
		t.Fatal(err)
	}
	const keyed, keyless = "../../host/oci/testdata/cosign/", "../../host/oci/sigstore/testdata/"
	policies := map[string]any{}
	for name, from := range map[string]oci.Reference{
		"identity": {Layout: keyless + "layout.tar", Tag: "1"}, "tag": {Layout: keyed + "layout.tar", Tag: "tag"}, "bundle": {Layout: keyed + "layout.tar", Tag: "bundle"},
	} {
		to, err := oci.ParseReference(host + "/policies/" + name + ":1")
		if err == nil {
			_, err = client.Copy(t.Context(), from, to)
		}
		if err != nil {
			t.Fatal(err)
		}
		policies[name] = map[string]any{"module": "registry://" + to.String(), "policyMode": "protect", "hostCapabilities": []string{"*"}}
	}
	text := func(v any) string {
		t.Helper()
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	read := func(file string) string {
		t.Helper()
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	root := `{"mediaType":"application/vnd.dev.sigstore.clienttrustconfig.v0.1+json","signingConfig":{},"trustedRoot":` + read(keyless+"trusted-root.json") + `}`
	type object = map[string]any
	const issuer, subject = "https://issuer.example.com", "https://github.com/acme/zone/.github/workflows/release.yml@refs/tags/v1"
	identity := func(issuer string, subject, annotations object) object {
		return object{"kind": "genericIssuer", "issuer": issuer, "subject": subject, "annotations": annotations}
	}
	exact := identity(issuer, object{"equal": subject}, object{"env": "prod"})
	key := object{"kind": "pubKey", "owner": "platform", "key": read(keyed + "cosign.pub"), "annotations": object{"env": "prod"}}
	const refused, loaded, noPolicy = "is not trusted", "allowed", "kubewasm_abi_v1" // The keyed fixtures are modules without functions.
	for _, tt := range []struct {
		name                  string
		verification          object
		identity, tag, bundle string // Parts of the answers.
	}{
		{"an identity", object{"allOf": []object{exact}}, loaded, refused, refused},
		{"a prefix of the subject", object{"allOf": []object{identity(issuer, object{"urlPrefix": "https://github.com/acme/zone"}, nil)}}, loaded, refused, refused},
		{"a prefix of another name", object{"allOf": []object{identity(issuer, object{"urlPrefix": "https://github.com/acme/zon"}, nil)}}, refused, refused, refused},
		{"another issuer", object{"allOf": []object{identity("https://other.example.com", object{"equal": subject}, nil)}}, refused, refused, refused},
		{"another annotation", object{"allOf": []object{identity(issuer, object{"equal": subject}, object{"env": "test"})}}, refused, refused, refused},
		{"a repository of GitHub that the certificate does not name", object{"allOf": []object{{"kind": "githubAction", "owner": "acme", "repo": "zone"}}}, refused, refused, refused},
		{"a key", object{"allOf": []object{key}}, refused, noPolicy, noPolicy},
		{"a key or an identity", object{"anyOf": object{"minimumMatches": 1, "signatures": []object{key, exact}}}, loaded, noPolicy, noPolicy},
		{"both of them", object{"anyOf": object{"minimumMatches": 2, "signatures": []object{key, exact}}}, refused, refused, refused},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.verification["apiVersion"] = "v1"
			files := newMount(t, map[string]string{
				"policies.yml": text(policies), "sources.yml": text(object{"insecure_sources": []string{host}}), "verification.yml": text(tt.verification), "trust.json": root,
			})
			env := map[string]string{
				"KUBEWARDEN_BIND_ADDRESS": "127.0.0.1", "KUBEWASM_DRAIN_DELAY": "0s", "KUBEWARDEN_PORT": freePort(t), "KUBEWARDEN_READINESS_PROBE_PORT": freePort(t), "KUBEWASM_READY_TIMEOUT": "100ms",
				"KUBEWARDEN_POLICIES_DOWNLOAD_DIR": t.TempDir(), "KUBEWARDEN_DOCKER_CONFIG_JSON_PATH": docker.dir,
				"KUBEWARDEN_POLICIES": files.path("policies.yml"), "KUBEWARDEN_SOURCES_PATH": files.path("sources.yml"),
				"KUBEWARDEN_VERIFICATION_CONFIG_PATH": files.path("verification.yml"), "KUBEWARDEN_SIGSTORE_TRUST_CONFIG_PATH": files.path("trust.json"),
			}
			t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
			start(t, env)
			for name, want := range map[string]string{"identity": tt.identity, "tag": tt.tag, "bundle": tt.bundle} {
				got, err := post(http.DefaultClient, "http://127.0.0.1:"+env["KUBEWARDEN_PORT"]+"/validate/"+name)
				if err != nil || !strings.Contains(got, want) {
					t.Errorf("%s: %q, %v, want %q", name, got, err, want)
				}
			}
		})
	}
}
