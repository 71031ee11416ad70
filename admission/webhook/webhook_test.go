package webhook_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/internal/policy"
	"github.com/kubewasm/kubewasm/admission/webhook"
	"github.com/kubewasm/kubewasm/admission/webhook/admissionmetrics"
)

// standIns makes the policies that represent others.
var standIns = policy.StandInsOf[admission.Policy, admission.PolicyRules]()

// pair is a certificate with its key.
type pair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	der  []byte
}

// issue makes a certificate that parent has signed, or itself if that is nil.
func issue(t *testing.T, name string, parent *pair) *pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true, IsCA: parent == nil,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	p := &pair{key: key}
	if parent == nil {
		parent = &pair{cert: template, key: key}
	}
	if p.der, err = x509.CreateCertificate(rand.Reader, template, parent.cert, key.Public(), parent.key); err != nil {
		t.Fatal(err)
	}
	if p.cert, err = x509.ParseCertificate(p.der); err != nil {
		t.Fatal(err)
	}
	return p
}

func write(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file+".new", pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// server is a server that runs.
type server struct {
	dir, url string
	ca       *pair
	stop     func() error
	config   *webhook.Config
	// sleep, if it is set, waits for the drain delay.
	sleep func(time.Duration)
}

func (s *server) install(t *testing.T, p *pair) {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(p.key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(s.dir, "tls.crt"), "CERTIFICATE", p.der)
	write(t, filepath.Join(s.dir, "tls.key"), "PRIVATE KEY", key)
}

// client trusts the server, and shows a certificate if there is one.
func (s *server) client(t *testing.T, own *pair) *http.Client {
	pool := x509.NewCertPool()
	pool.AddCert(s.ca.cert)
	config := &tls.Config{RootCAs: pool}
	if own != nil {
		config.Certificates = []tls.Certificate{{Certificate: [][]byte{own.der}, PrivateKey: own.key}}
	}
	transport := &http.Transport{TLSClientConfig: config}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

// run runs a server until the test ends, or stop is called.
func run(t *testing.T, change func(*server, *webhook.Config)) *server {
	t.Helper()
	s := &server{dir: t.TempDir(), ca: issue(t, "server ca", nil)}
	s.install(t, issue(t, "first", s.ca))
	s.config = &webhook.Config{
		Listener: listen(t), CertFile: filepath.Join(s.dir, "tls.crt"), KeyFile: filepath.Join(s.dir, "tls.key"),
		Engine: admission.NewEngine(), DrainDelay: time.Millisecond,
	}
	if change != nil {
		change(s, s.config)
	}
	w, err := webhook.New(*s.config)
	if err != nil {
		t.Fatal(err)
	}
	w.SetSleep(s.sleep)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	stopped := false
	s.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-ended
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	s.url = "https://" + s.addr()
	return s
}

// listen returns a listener on a port that is free.
func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

func (s *server) addr() string { return s.config.Listener.Addr().String() }

// accepts reports whether the server takes a connection.
func (s *server) accepts() bool {
	conn, err := net.Dial("tcp", s.addr())
	if err == nil {
		conn.Close()
	}
	return err == nil
}

func get(t *testing.T, c *http.Client, url string) (int, string) {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

const review = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","operation":"CREATE","object":{}}}`

func post(t *testing.T, c *http.Client, url string) (int, string) {
	t.Helper()
	resp, err := c.Post(url, "application/json", strings.NewReader(review))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// messageOf returns the message of an answer that is a Status.
func messageOf(t *testing.T, answer string) string {
	t.Helper()
	var s metav1.Status
	if err := json.Unmarshal([]byte(answer), &s); err != nil || s.Kind != "Status" {
		t.Errorf("answer is no Status: %s", answer)
	}
	return s.Message
}

func unavailable(t *testing.T, name string, mutates bool, observer admission.Observer) admission.Policy {
	t.Helper()
	p, err := standIns.Unavailable(name, admission.PolicyRules{Observer: observer}, mutates, context.Canceled)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPaths(t *testing.T) {
	ready := make(chan error, 1)
	ready <- nil
	var metrics *admissionmetrics.Metrics
	s := run(t, func(_ *server, c *webhook.Config) {
		metrics = admissionmetrics.New()
		registry := prometheus.NewRegistry()
		registry.MustRegister(metrics)
		c.Counter, c.Metrics = metrics, promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
		c.Engine = admission.NewEngine(unavailable(t, "v", false, metrics), unavailable(t, "m", true, metrics), unavailable(t, "team/v", false, metrics))
		c.Ready = func() error {
			err := <-ready
			ready <- err
			return err
		}
		c.Manage = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "managed "+r.URL.Path) })
	})
	c := s.client(t, nil)
	// Policies are being loaded: there is a process, and no webhook.
	<-ready
	ready <- errors.New("policies are being loaded")
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 503} {
		if code, body := get(t, c, s.url+path); code != want {
			t.Errorf("%s answers %d %q", path, code, body)
		}
	}
	if code, body := post(t, c, s.url+"/validate"); code != 503 || messageOf(t, body) != "policies are being loaded" {
		t.Errorf("a webhook without policies answers %d %q", code, body)
	}
	<-ready
	ready <- nil
	for path, want := range map[string]string{"/healthz": "ok\n", "/readyz": "ok\n", "/plugins": "managed /plugins", "/plugins/p/enable": "managed /plugins/p/enable"} {
		if code, body := get(t, c, s.url+path); code != 200 || body != want {
			t.Errorf("%s answers %d %q", path, code, body)
		}
	}
	<-ready
	ready <- context.DeadlineExceeded
	if code, body := get(t, c, s.url+"/readyz"); code != 503 || body != context.DeadlineExceeded.Error()+"\n" {
		t.Errorf("/readyz answers %d %q", code, body)
	}
	for path, want := range map[string]string{
		"/validate":   `policy \"v\" is not available: context canceled`,
		"/mutate":     `policy \"m\" is not available: context canceled`,
		"/validate/v": `policy \"v\" is not available: context canceled`,
		"/mutate/m":   `policy \"m\" is not available: context canceled`,
		"/mutate/v":   `policy v cannot be asked for this`,
		// A policy of a namespace.
		"/validate/team/v": `policy \"team/v\" is not available: context canceled`,
	} {
		if code, body := post(t, c, s.url+path); code != 200 || !strings.Contains(body, want) || !strings.Contains(body, `"uid":"u"`) {
			t.Errorf("%s answers %d %s", path, code, body)
		}
	}
	if code, body := post(t, c, s.url+"/validate/x"); code != 404 || messageOf(t, body) != "there is no such policy" {
		t.Errorf("an unknown policy answers %d %q", code, body)
	}
	if code, _ := get(t, c, s.url+"/validate"); code != 405 {
		t.Errorf("GET answers %d", code)
	}
	_, body := get(t, c, s.url+"/metrics")
	for _, want := range []string{
		`kubewasm_admission_requests_total{code="200",webhook="validate"} 3`,
		`kubewasm_admission_requests_total{code="404",webhook="validate"} 1`,
		`kubewasm_admission_requests_total{code="503",webhook="validate"} 1`,
		`kubewasm_admission_verdicts_total{mode="Enforce",policy="v",verdict="error",webhook="validate"} 2`,
		`kubewasm_admission_panics_total 0`,
		`kubewasm_admission_verdict_duration_seconds_count{policy="m",webhook="mutate"} 2`,
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("metrics have no %s:\n%s", want, body)
		}
	}
	metrics.Forget("v")
	if _, body := get(t, c, s.url+"/metrics"); strings.Contains(body, `policy="v"`) {
		t.Errorf("metrics have v still:\n%s", body)
	}
}

func TestClientCertificates(t *testing.T) {
	trusted, other := issue(t, "client ca", nil), issue(t, "other ca", nil)
	s := run(t, func(s *server, c *webhook.Config) {
		c.ClientCAFile = filepath.Join(s.dir, "ca.crt")
		write(t, c.ClientCAFile, "CERTIFICATE", trusted.der)
	})
	if code, _ := get(t, s.client(t, nil), s.url+"/healthz"); code != 200 {
		t.Errorf("a probe gets %d", code)
	}
	if code, body := post(t, s.client(t, nil), s.url+"/validate"); code != 401 || messageOf(t, body) != "a client certificate is required" {
		t.Errorf("no certificate gets %d %q", code, body)
	}
	// An API server has no certificate for conversions: what is read here is no ConversionReview.
	if code, body := post(t, s.client(t, nil), s.url+"/convert"); code != 400 {
		t.Errorf("a conversion gets %d %q", code, body)
	}
	apiserver := issue(t, "apiserver", trusted)
	if code, body := post(t, s.client(t, apiserver), s.url+"/validate"); code != 200 {
		t.Errorf("the certificate gets %d %q", code, body)
	}
	stranger := issue(t, "apiserver", other)
	// A client shows no certificate that the server does not ask for.
	if code, _ := post(t, s.client(t, stranger), s.url+"/validate"); code != 401 {
		t.Errorf("another CA gets %d", code)
	}
	// The CA changes.
	write(t, filepath.Join(s.dir, "ca.crt"), "CERTIFICATE", other.der)
	until(t, func() bool {
		resp, err := s.client(t, stranger).Post(s.url+"/validate", "application/json", strings.NewReader(review))
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

func until(t *testing.T, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !f() {
		if time.Now().After(deadline) {
			t.Fatal("it does not happen")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestCertificateIsReadAgain(t *testing.T) {
	s := run(t, nil)
	name := func() string {
		resp, err := s.client(t, nil).Get(s.url + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.TLS.PeerCertificates[0].Subject.CommonName
	}
	if got := name(); got != "first" {
		t.Errorf("certificate is %s", got)
	}
	s.install(t, issue(t, "second", s.ca))
	until(t, func() bool { return name() == "second" })
	// What is no certificate leaves the one that is.
	if err := os.WriteFile(filepath.Join(s.dir, "tls.crt"), []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := name(); got != "second" {
		t.Errorf("certificate is %s", got)
	}
	s.install(t, issue(t, "third", s.ca))
	until(t, func() bool { return name() == "third" })
}

func TestDrain(t *testing.T) {
	t.Parallel()
	begun, end, delayed := make(chan struct{}), make(chan struct{}), make(chan struct{})
	endDelay := sync.OnceFunc(func() { close(delayed) })
	defer endDelay()
	s := run(t, func(s *server, c *webhook.Config) {
		c.DrainDelay = time.Hour
		s.sleep = func(d time.Duration) {
			if d != time.Hour {
				t.Errorf("the server goes on to serve for %s, want 1h", d)
			}
			<-delayed
		}
		c.Manage = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			close(begun)
			<-end
			w.WriteHeader(http.StatusNoContent)
		})
	})
	c := s.client(t, nil)
	answered := make(chan int, 1)
	go func() {
		resp, err := c.Get(s.url + "/plugins")
		if err != nil {
			answered <- -1
			return
		}
		resp.Body.Close()
		answered <- resp.StatusCode
	}()
	<-begun
	ended := make(chan error, 1)
	go func() { ended <- s.stop() }()
	// It says that it will end, and goes on to answer.
	until(t, func() bool { code, _ := get(t, c, s.url+"/readyz"); return code == 503 })
	if code, _ := post(t, c, s.url+"/validate"); code != 200 {
		t.Errorf("a request while it drains gets %d", code)
	}
	endDelay()
	until(t, func() bool { return !s.accepts() })
	select {
	case err := <-ended:
		t.Errorf("the server has ended before its last answer: %v", err)
	case <-time.After(500 * time.Millisecond):
	}
	close(end)
	if code := <-answered; code != http.StatusNoContent {
		t.Errorf("the request that ran gets %d", code)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if resp, err := c.Get(s.url + "/healthz"); err == nil {
		resp.Body.Close()
		t.Error("the server still answers")
	}
}

// A connection whose handshake ends after the server has begun to end, and that has
// no request, does not keep it.
func TestDrainWithALateConnection(t *testing.T) {
	t.Parallel()
	s := run(t, func(_ *server, c *webhook.Config) { c.DrainTimeout = time.Minute })
	late, err := net.Dial("tcp", s.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	// Connections are accepted in turn: with an answer to the next, late is one that
	// the server has.
	if code, _ := get(t, s.client(t, nil), s.url+"/healthz"); code != 200 {
		t.Fatalf("/healthz answers %d", code)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.stop() }()
	until(t, func() bool { return !s.accepts() })
	pool := x509.NewCertPool()
	pool.AddCert(s.ca.cert)
	client := tls.Client(late, &tls.Config{RootCAs: pool, ServerName: "127.0.0.1", NextProtos: []string{"h2"}})
	// The preface of HTTP/2 with settings that change nothing, RFC 9113, section 3.4.
	if _, err := client.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the server waits for a connection without a request")
	}
}

// While a server drains, clients go on to another one, and none of them loses a
// request.
func TestDrainUnderLoad(t *testing.T) {
	delayed := make(chan struct{})
	endDelay := sync.OnceFunc(func() { close(delayed) })
	first := run(t, func(s *server, _ *webhook.Config) { s.sleep = func(time.Duration) { <-delayed } })
	defer endDelay()
	second := run(t, nil)
	until(t, func() bool { // A certificate with another's key is refused at the start.
		resp, err := second.client(t, nil).Get(second.url + "/readyz")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	})
	second.ca = first.ca
	second.install(t, issue(t, "of the first", first.ca))
	until(t, func() bool {
		resp, err := first.client(t, nil).Get(second.url + "/readyz")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	})
	// What a Service does: it has the ready ones.
	var moved atomic.Bool
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		if moved.Load() {
			addr = second.addr()
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	done := make(chan struct{})
	var wg, again sync.WaitGroup
	for range 8 {
		c := first.client(t, nil)
		c.Transport.(*http.Transport).DialContext = dial
		again.Add(1)
		wg.Go(func() {
			askedAgain := sync.OnceFunc(again.Done)
			defer askedAgain()
			for {
				select {
				case <-done:
					return
				default:
				}
				isMoved := moved.Load()
				resp, err := c.Post(first.url+"/validate", "application/json", strings.NewReader(review))
				if err != nil {
					t.Error(err)
					return
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					t.Errorf("answer is %s", resp.Status)
				}
				if isMoved {
					askedAgain()
				}
			}
		})
	}
	probe := first.client(t, nil)
	ended := make(chan error, 1)
	go func() { ended <- first.stop() }()
	until(t, func() bool { code, _ := get(t, probe, first.url+"/readyz"); return code == 503 })
	moved.Store(true)
	again.Wait() // The answer to each client has closed its connection.
	endDelay()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	close(done)
	wg.Wait()
}

func TestConfigThatIsWrong(t *testing.T) {
	_, err := webhook.New(webhook.Config{MaxConnections: -1})
	if want := "webhook server: configuration: engine is missing\nmaxConnections is -1, less than 0"; err == nil || err.Error() != want {
		t.Errorf("error is %v", err)
	}
	for want, cfg := range map[string]webhook.Config{
		"webhook server: certFile is empty\nkeyFile is empty": {Engine: admission.NewEngine()},
		"none.crt": {CertFile: "none.crt", KeyFile: "none.key", Engine: admission.NewEngine()},
	} {
		s, err := webhook.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %s", err, want)
		}
	}
}

func TestAnswersAreReviews(t *testing.T) {
	s := run(t, nil)
	_, body := post(t, s.client(t, nil), s.url+"/validate?timeout=5s")
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal([]byte(body), &answer); err != nil || answer.Response == nil || !answer.Response.Allowed {
		t.Errorf("answer is %s, %v", body, err)
	}
}
