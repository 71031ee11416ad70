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
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/self"
	"github.com/kubewasm/kubewasm/internal/testkit/vm"
)

// faults is a directory with the built program and what it is started with.
type faults struct {
	dir, binary, guest string
	authority          *x509.Certificate
	key                *ecdsa.PrivateKey
	client             *http.Client
}

func newFaults(t *testing.T) *faults {
	t.Helper()
	f := &faults{dir: t.TempDir()}
	if dir := os.Getenv(vm.GuestDir); dir != "" {
		f.binary, f.guest = filepath.Join(dir, "kubewasm-webhook"), filepath.Join(dir, "required-labels.wasm")
	} else {
		f.build(t)
	}
	var err error
	if f.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, f.key.Public(), f.key)
	if err != nil {
		t.Fatal(err)
	}
	if f.authority, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(f.authority)
	f.client = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, MaxIdleConnsPerHost: 100}}
	t.Cleanup(f.client.CloseIdleConnections)
	f.exchange(t, 2)
	f.put(t, "token", "secret")
	f.put(t, "policies.yaml", f.policy("labels", "app"))
	return f
}

// build builds the program, as for an image, and its guest.
func (f *faults) build(t *testing.T) {
	t.Helper()
	f.binary = filepath.Join(f.dir, "kubewasm-webhook")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", f.binary, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var err error
	if f.guest, err = guestbuild.Build(t.Context(), "../../examples/admission/required-labels"); err != nil {
		t.Fatal(err)
	}
}

// path returns a file of the directory.
func (f *faults) path(name string) string { return filepath.Join(f.dir, name) }

// put replaces a file by renaming another over it.
func (f *faults) put(t *testing.T, name, content string) {
	t.Helper()
	if err := errors.Join(os.WriteFile(f.path(name)+".next", []byte(content), 0o600), os.Rename(f.path(name)+".next", f.path(name))); err != nil {
		t.Fatal(err)
	}
}

// policy returns a configuration with a policy that asks for a label.
func (f *faults) policy(name, label string) string {
	return fmt.Sprintf("plugins:\n- {name: %s, module: {file: %s}, guestConfig: {labels: [%s]}}\n", name, f.guest, label)
}

// exchange writes another certificate of the authority.
func (f *faults) exchange(t *testing.T, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, f.authority, key.Public(), f.key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	f.put(t, "tls.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
	f.put(t, "tls.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
}

// replica is a running webhook.
type replica struct {
	f    *faults
	addr string
	cmd  *exec.Cmd
	log  bytes.Buffer
	// ended has the error of the process when it has ended.
	ended chan error
}

// start starts the webhook, in a shell after a script that makes the fault if there is one. more are
// further flags.
func (f *faults) start(t *testing.T, script string, more ...string) *replica {
	t.Helper()
	r := &replica{f: f, addr: freeAddress(t), ended: make(chan error, 1)}
	args := append([]string{
		f.binary, "-addr", r.addr, "-cert", f.path("tls.crt"), "-key", f.path("tls.key"), "-config", f.path("policies.yaml"), "-cache-dir", f.path("cache"),
		"-interval", "50ms", "-drain-delay", "1ms",
	}, more...)
	if script != "" {
		args = append([]string{"sh", "-c", script + "\n" + `exec "$0" "$@"`}, args...)
	}
	r.cmd = exec.Command(args[0], args[1:]...)
	r.cmd.Dir, r.cmd.Env = "/", []string{"PATH=" + os.Getenv("PATH")} // Without a home.
	r.cmd.Stdout, r.cmd.Stderr = &r.log, &r.log
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { r.ended <- r.cmd.Wait() }()
	t.Cleanup(func() { r.cmd.Process.Kill() })
	return r
}

// until waits until holds returns true.
func (r *replica) until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !holds(); time.Sleep(10 * time.Millisecond) {
		select {
		case err := <-r.ended:
			t.Fatalf("%s: the webhook has ended: %v\n%s", what, err, r.log.String())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not after five minutes", what)
		}
	}
}

// ready reports whether the webhook is ready.
func (r *replica) ready() bool {
	resp, err := r.f.client.Get("https://" + r.addr + "/readyz")
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// pod returns a review of a Pod with a label, and verdict what an answer says: allowed, or the
// message of a denial.
func labelled(label string) string {
	return fmt.Sprintf(`{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u", "operation": "CREATE",
"kind": {"version": "v1", "kind": "Pod"}, "resource": {"version": "v1", "resource": "pods"}, "name": "p", "namespace": "n",
"object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n", "labels": {%q: "x"}}}}}`, label)
}

func verdict(client *http.Client, addr, label string) (string, error) {
	resp, err := client.Post("https://"+addr+"/validate", "application/json", strings.NewReader(labelled(label)))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	var review struct {
		Response *struct {
			Allowed bool
			Status  struct{ Message string }
		}
	}
	if err := json.Unmarshal(text, &review); err != nil || resp.StatusCode != http.StatusOK || review.Response == nil {
		return "", fmt.Errorf("%s: %s", resp.Status, text)
	}
	if review.Response.Allowed {
		return "allowed", nil
	}
	return review.Response.Status.Message, nil
}

// manage sends a change to the management routes, and returns the answer.
func (r *replica) manage(t *testing.T, path, body string) (code int, text string, err error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+r.addr+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer secret")
	req.Header.Set("Content-Type", "application/json")
	resp, err := r.f.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(answer), nil
}

// asks asks the webhook about a Pod that it has to allow and one that it has to deny.
func (r *replica) asks(t *testing.T) {
	t.Helper()
	if got, err := verdict(r.f.client, r.addr, "app"); got != "allowed" {
		t.Errorf("with the label: %s, %v\n%s", got, err, r.log.String())
	}
	if got, err := verdict(r.f.client, r.addr, "other"); !strings.Contains(got, "metadata.labels[app]") {
		t.Errorf("without it: %s, %v\n%s", got, err, r.log.String())
	}
}

// terminate ends the webhook as a kubelet does.
func (r *replica) terminate(t *testing.T) {
	t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-r.ended:
		if err != nil {
			t.Errorf("the webhook ended with %v\n%s", err, r.log.String())
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("the webhook does not end")
	}
}

// TestFaults runs the built webhook where something that it would like to have is not there.
func TestFaults(t *testing.T) {
	f := newFaults(t)
	// unshared skips a test where the process may have no namespaces of its own.
	unshared := func(t *testing.T, flags ...string) {
		t.Helper()
		if out, err := exec.Command("unshare", append(flags, "true")...).CombinedOutput(); err != nil {
			t.Skipf("unshare %q: %v: %s", flags, err, out)
		}
	}
	t.Run("no home, nothing to write to", func(t *testing.T) {
		unshared(t, "-m")
		r := f.start(t, `[ "$KUBEWASM_INNER" ] || KUBEWASM_INNER=1 exec unshare -m sh -c 'mount -o remount,bind,ro / && exec "$0" "$@"' "$0" "$@"`, "-cache-dir", "/nonexistent/cache")
		r.until(t, "ready", r.ready)
		r.asks(t)
		if !strings.Contains(r.log.String(), "the server runs without -cache-dir") {
			t.Errorf("the log does not say so:\n%s", r.log.String())
		}
		r.terminate(t)
	})
	t.Run("a full disk", func(t *testing.T) {
		unshared(t, "-m")
		full := filepath.Join(t.TempDir(), "full")
		if err := os.Mkdir(full, 0o700); err != nil {
			t.Fatal(err)
		}
		r := f.start(t, fmt.Sprintf(`[ "$KUBEWASM_INNER" ] || KUBEWASM_INNER=1 exec unshare -m sh -c 'mount -t tmpfs -o size=64k,mode=700 none %s && exec "$0" "$@"' "$0" "$@"`, full),
			"-cache-dir", filepath.Join(full, "cache"), "-state-dir", filepath.Join(full, "state"), "-api-token-file", f.path("token"))
		r.until(t, "ready", r.ready)
		r.asks(t)
		r.terminate(t)
	})
	t.Run("no inotify left", func(t *testing.T) {
		unshared(t, "-U", "-r")
		r := f.start(t, `[ "$KUBEWASM_INNER" ] || KUBEWASM_INNER=1 exec unshare -U -r sh -c 'echo 0 > /proc/sys/user/max_inotify_instances && exec "$0" "$@"' "$0" "$@"`)
		r.until(t, "ready", r.ready)
		r.asks(t)
		f.put(t, "policies.yaml", f.policy("labels", "team"))
		r.until(t, "follows its file", func() bool {
			got, _ := verdict(f.client, r.addr, "team")
			return got == "allowed"
		})
		f.put(t, "policies.yaml", f.policy("labels", "app"))
		r.terminate(t)
	})
	t.Run("descriptors at their limit", func(t *testing.T) {
		r := f.start(t, "ulimit -n 64")
		r.until(t, "ready", r.ready)
		f.client.CloseIdleConnections()
		var held []net.Conn
		for range 200 {
			if c, err := net.DialTimeout("tcp", r.addr, time.Second); err == nil {
				held = append(held, c)
			}
		}
		for _, c := range held {
			c.Close()
		}
		r.until(t, "serves on", func() bool {
			got, err := verdict(f.client, r.addr, "app")
			return err == nil && got == "allowed"
		})
		r.asks(t)
		r.terminate(t)
	})
	t.Run("registry and DNS away", func(t *testing.T) {
		f.put(t, "away.yaml", f.policy("labels", "app")+"- {name: away, module: {oci: 'registry.invalid/policy@sha256:"+strings.Repeat("a", 64)+"'}, failurePolicy: Ignore}\n")
		r := f.start(t, "", "-config", f.path("away.yaml"), "-ready-timeout", "3s")
		var said string
		r.until(t, "ready", func() bool {
			resp, err := f.client.Get("https://" + r.addr + "/readyz")
			if err != nil {
				return false
			}
			defer resp.Body.Close()
			text, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != http.StatusOK {
				said += string(text)
			}
			return resp.StatusCode == http.StatusOK
		})
		if !strings.Contains(said, `policy "away" is not available`) {
			t.Errorf("while it was not ready it said %q", said)
		}
		r.asks(t)
		r.terminate(t)
	})
	t.Run("no executable memory", func(t *testing.T) {
		if err := self.Command(t, []string{denyExec + "=1"}, "/bin/true").Run(); err != nil {
			t.Skipf("this kernel has no PR_SET_MDWE: %v", err)
		}
		r := f.start(t, fmt.Sprintf(`%s=1 exec %s "$0" "$@"`, denyExec, strings.Join(self.Command(t, nil).Args, " ")))
		r.until(t, "ready", r.ready)
		r.asks(t)
		if !strings.Contains(r.log.String(), "calls of policies take about 50 times as long") {
			t.Errorf("the log does not say so:\n%s", r.log.String())
		}
		r.terminate(t)
	})
}

// denyExec has a process of the test deny itself executable memory, and become the program that its
// arguments name.
const denyExec = "KUBEWASM_TEST_DENY_EXEC"

func TestMain(m *testing.M) {
	if os.Getenv(denyExec) != "" {
		const setMDWE, refuseExecGain = 65, 1
		if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, setMDWE, refuseExecGain, 0, 0, 0, 0); errno != 0 {
			fmt.Fprintln(os.Stderr, "prctl:", errno)
			os.Exit(1)
		}
		err := syscall.Exec(os.Args[1], os.Args[1:], os.Environ())
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// TestKilled kills the built webhook at random times while the API changes it. What was answered
// is there after the next start, and nothing else.
func TestKilled(t *testing.T) {
	f := newFaults(t)
	f.put(t, "policies.yaml", "plugins: []\n")
	module, err := os.ReadFile(f.guest)
	if err != nil {
		t.Fatal(err)
	}
	body := func(label string) string {
		text, err := json.Marshal(map[string]any{"metadata": map[string]string{"name": "p", "version": label}, "operations": []string{"CREATE"}, "guestConfig": map[string]any{"labels": []string{label}}, "wasm_binary": module})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	labels := []string{"a", "b", "c", "d"}
	rng := mathrand.New(mathrand.NewPCG(1, 2))
	serving, wanted := "", "" // wanted may or may not have come into service before the kill.
	for round := range 12 {
		r := f.start(t, "", "-state-dir", f.path("state"), "-api-token-file", f.path("token"))
		r.until(t, "ready", r.ready)
		if serving != "" || wanted != "" {
			var served []string
			for _, label := range labels {
				if got, err := verdict(f.client, r.addr, label); err != nil {
					t.Fatal(err)
				} else if got == "allowed" {
					served = append(served, label)
				}
			}
			if serving == "" && len(served) == len(labels) {
				served = []string{""}
			}
			if len(served) != 1 || served[0] != serving && served[0] != wanted {
				t.Fatalf("round %d: policies for %q serve, want %q or %q", round, served, serving, wanted)
			}
			serving = served[0]
		}
		wanted = serving
		kill := time.AfterFunc(time.Duration(rng.IntN(400))*time.Millisecond, func() { r.cmd.Process.Kill() })
		for {
			wanted = labels[rng.IntN(len(labels))]
			code, text, err := r.manage(t, "/plugins", body(wanted))
			if err != nil {
				break // It was killed.
			}
			if code != http.StatusCreated {
				t.Fatalf("%d: %s", code, text)
			}
			serving = wanted
		}
		<-r.ended
		kill.Stop()
		f.client.CloseIdleConnections()
	}
}

// TestRollingUpdate replaces three replicas one after the other, exchanges their certificates and
// changes their policies, while 50 clients ask as API servers do. No answer is lost or wrong.
func TestRollingUpdate(t *testing.T) {
	f := newFaults(t)
	// ready are the replicas that get new connections, as an EndpointSlice has them.
	var mu sync.Mutex
	var replicas []*replica
	var ready atomic.Pointer[[]string]
	ready.Store(new([]string))
	look := func() {
		mu.Lock()
		all := slices.Clone(replicas)
		mu.Unlock()
		var addrs []string
		for _, r := range all {
			if r.ready() {
				addrs = append(addrs, r.addr)
			}
		}
		ready.Store(&addrs)
	}
	add := func() *replica {
		r := f.start(t, "", "-drain-delay", "1s")
		r.until(t, "ready", r.ready)
		mu.Lock()
		replicas = append(replicas, r)
		mu.Unlock()
		look()
		return r
	}
	for range 3 {
		add()
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var watching, asking sync.WaitGroup
	watching.Go(func() {
		for ctx.Err() == nil {
			look()
			time.Sleep(50 * time.Millisecond)
		}
	})
	var asked, wrong atomic.Int64
	var what atomic.Value
	for client := range 50 {
		asking.Go(func() {
			rng := mathrand.New(mathrand.NewPCG(uint64(client), 3))
			// An API server has connections of its own to the Service, which goes to a replica.
			transport := &http.Transport{TLSClientConfig: f.client.Transport.(*http.Transport).TLSClientConfig.Clone(), DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				addrs := *ready.Load()
				if len(addrs) == 0 {
					return nil, errors.New("no replica is ready")
				}
				return new(net.Dialer).DialContext(ctx, network, addrs[rng.IntN(len(addrs))])
			}}
			defer transport.CloseIdleConnections()
			own := &http.Client{Transport: transport, Timeout: 30 * time.Second}
			for n := 0; ctx.Err() == nil; n++ {
				label, want := "app", "allowed"
				if n%2 == 1 {
					label, want = "other", "metadata.labels[app]"
				}
				got, err := verdict(own, "127.0.0.1:443", label)
				asked.Add(1)
				if err != nil || !strings.Contains(got, want) {
					wrong.Add(1)
					what.Store(fmt.Sprintf("%s, %v, want %s", got, err, want))
				}
				if n%20 == 19 {
					transport.CloseIdleConnections()
				}
				time.Sleep(5 * time.Millisecond) // Leaves the processors to the replicas.
			}
		})
	}
	for i := range 3 {
		mu.Lock()
		old := replicas[0]
		mu.Unlock()
		add()
		f.exchange(t, int64(10+i))
		f.put(t, "policies.yaml", fmt.Sprintf("# %d\n%s", i, f.policy("labels", "app")))
		old.terminate(t)
		mu.Lock()
		replicas = slices.DeleteFunc(replicas, func(r *replica) bool { return r == old })
		mu.Unlock()
		look()
	}
	cancel()
	asking.Wait()
	watching.Wait()
	if wrong.Load() != 0 || asked.Load() < 100 {
		t.Errorf("%d of %d answers are lost or wrong, such as %v", wrong.Load(), asked.Load(), what.Load())
	}
	t.Logf("%d answers", asked.Load())
	for _, r := range replicas {
		r.terminate(t)
	}
}
