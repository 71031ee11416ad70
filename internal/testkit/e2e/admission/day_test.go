package admission_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
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

	arv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewasm/kubewasm/internal/testkit/e2e/cluster"
)

// balancer forwards new connections to replicas that are ready, as a Service does.
type balancer struct {
	f        *fixture
	listener net.Listener

	mu       sync.Mutex
	replicas []*dayReplica
	turn     int
}

// dayReplica is a process of the webhook.
type dayReplica struct {
	addr string
	cmd  *exec.Cmd
}

func (b *balancer) ready(r *dayReplica) bool {
	client := b.f.authority.HTTP()
	defer client.CloseIdleConnections()
	resp, err := client.Get("https://" + r.addr + "/readyz")
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// next returns a replica that is ready.
func (b *balancer) next() *dayReplica {
	b.mu.Lock()
	all := slices.Clone(b.replicas)
	b.turn++
	from := b.turn
	b.mu.Unlock()
	for i := range all {
		if r := all[(from+i)%len(all)]; b.ready(r) {
			return r
		}
	}
	return nil
}

func (b *balancer) serve() {
	for {
		from, err := b.listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer from.Close()
			r := b.next()
			if r == nil {
				return
			}
			to, err := net.Dial("tcp", r.addr)
			if err != nil {
				return
			}
			go func() {
				io.Copy(to, from)
				to.Close()
			}()
			io.Copy(from, to)
		}()
	}
}

// day is a webhook with two replicas, and a hammer of requests beside what its operator does.
type day struct {
	*fixture
	balancer
	repository, registry, kubeconfig, config string
	kubewasm                                 string
	args                                     []string

	asked, wrong atomic.Int64
	what         atomic.Value
	// broken is set while every Pod may pass.
	broken atomic.Bool
}

// installDay renders the chart, and returns its policy file and its webhook.
func (d *day) installDay(t *testing.T) *arv1.ValidatingWebhookConfiguration {
	t.Helper()
	policies := []map[string]any{{
		"name": "guard", "module": map[string]any{"oci": d.registry + "/guard:1", "follow": true},
		"match": map[string]any{
			"objectSelector": map[string]any{"matchLabels": map[string]string{"ask": "day"}},
			"rules":          []map[string]any{{"operations": []string{"CREATE"}, "apiGroups": []string{""}, "apiVersions": []string{"v1"}, "resources": []string{"pods"}}},
		},
	}}
	text, err := json.Marshal(policies)
	if err != nil {
		t.Fatal(err)
	}
	var hook *arv1.ValidatingWebhookConfiguration
	for _, object := range rendered(t, "kubewasm-webhook", installed, "webhook", "webhook.policies="+string(text)) {
		switch object.GetKind() {
		case "ConfigMap":
			if text, ok, _ := unstructured.NestedString(object.Object, "data", "policies.yaml"); ok {
				replace(t, d.config, []byte(text))
			}
		case "ValidatingWebhookConfiguration":
			hook = new(arv1.ValidatingWebhookConfiguration)
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, hook); err != nil {
				t.Fatal(err)
			}
		}
	}
	if hook == nil {
		t.Fatal("the chart has no ValidatingWebhookConfiguration")
	}
	return hook
}

// run runs the command, and returns what it prints.
func (d *day) run(t *testing.T, code int, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), d.kubewasm, args...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
		t.Fatalf("kubewasm %q: %v, want %d\n%s", args, err, code, out)
	}
	return string(out)
}

// policies asks the management API of a replica.
func (d *day) manage(t *testing.T, r *dayReplica, args ...string) string {
	t.Helper()
	return d.run(t, 0, append([]string{
		"policies", "--server", "https://" + r.addr, "--token-file", filepath.Join(d.dir, "day-token"), "--certificate-authority", filepath.Join(d.dir, "day-ca"), "--plain-http", d.registry,
	}, args...)...)
}

// push makes a tag lead to a policy that denies with a word.
func (d *day) push(t *testing.T, tag, word string) {
	t.Helper()
	file := filepath.Join(d.dir, word+".wasm")
	replace(t, file, denier(word))
	d.run(t, 0, "push", "--plain-http", d.registry, file, d.registry+"/guard:"+tag)
}

// replica starts a replica, which gets requests once it is ready.
func (d *day) replica(t *testing.T, binary string) *dayReplica {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &dayReplica{addr: l.Addr().String()}
	l.Close()
	r.cmd = exec.Command(binary, append(slices.Clone(d.args), "-addr", r.addr)...)
	r.cmd.Stderr = t.Output()
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.cmd.Process.Kill() })
	eventually(t, "a replica that is ready", func() bool { return d.ready(r) })
	d.mu.Lock()
	d.balancer.replicas = append(d.balancer.replicas, r)
	d.mu.Unlock()
	return r
}

// end ends a replica as a kubelet does.
func (d *day) end(t *testing.T, r *dayReplica) {
	t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Wait(); err != nil {
		t.Error(err)
	}
	d.mu.Lock()
	d.balancer.replicas = slices.DeleteFunc(d.balancer.replicas, func(other *dayReplica) bool { return other == r })
	d.mu.Unlock()
}

// labelled is a Pod that the policy is asked about.
func labelled(name string) *corev1.Pod {
	p := pod(name)
	p.Labels = map[string]string{"ask": "day"}
	return p
}

// says returns what the policy says of a Pod, empty if it is allowed.
func (d *day) says(t *testing.T, p *corev1.Pod) (string, error) {
	_, err := d.create(t, p, metav1.DryRunAll)
	if err == nil {
		return "", nil
	}
	if _, said, ok := strings.Cut(err.Error(), "denied the request: guard: "); ok {
		return said, nil
	}
	return "", err
}

// hammer creates Pods until ctx ends. One kind passes, and the other is denied by a version of the
// policy.
func (d *day) hammer(t *testing.T, ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		p, want := pod("hammered"), false
		if n%2 == 1 {
			p, want = labelled("hammered"), true
		}
		broken := d.broken.Load()
		said, err := d.says(t, p)
		if ctx.Err() != nil {
			return
		}
		d.asked.Add(1)
		broken = broken || d.broken.Load()
		if err != nil || said == "" && want && !broken || said != "" && !want {
			d.wrong.Add(1)
			d.what.Store(fmt.Sprintf("labelled %t: %q, %v", want, said, err))
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// testDay is what an operator does in a day: install, deploy by a tag, try another version beside
// the one that serves, promote it, roll it back, move the tag, break the glass, audit, and upgrade
// the program. Requests come all the time, and no answer may be wrong.
func (f *fixture) testDay(t *testing.T) {
	repository, err := filepath.Abs("../../../..")
	if err != nil {
		t.Fatal(err)
	}
	d := &day{fixture: f, repository: repository, config: filepath.Join(f.dir, "day.yaml")}
	d.balancer.f = f
	d.kubewasm = cluster.Build(t, filepath.Join(repository, "cmd/kubewasm"), ".", "kubewasm")
	webhook := cluster.Build(t, filepath.Join(repository, "cmd/kubewasm-webhook"), ".", "webhook")
	later := cluster.Build(t, filepath.Join(repository, "cmd/kubewasm-webhook"), ".", "webhook-later", "-tags=later")
	registry := cluster.Build(t, filepath.Join(repository, "host/oci/e2e"), "github.com/google/go-containerregistry/cmd/registry", "registry")

	// A registry with the first version.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	d.registry = fmt.Sprintf("localhost:%d", port)
	serving := exec.Command(registry, fmt.Sprintf("-port=%d", port))
	if err := serving.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		serving.Process.Kill()
		serving.Wait()
	})
	eventually(t, "a registry", func() bool {
		resp, err := http.Get("http://" + d.registry + "/v2/")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil && resp.StatusCode == http.StatusOK
	})
	d.push(t, "1", "ver1")

	// Two replicas of what the chart installs.
	hook := d.installDay(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: installed}}
	if _, err := f.Client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	d.kubeconfig = f.serviceAccount(t, "webhook.audit.enabled=true")
	replace(t, filepath.Join(f.dir, "day-token"), []byte("secret"))
	replace(t, filepath.Join(f.dir, "day-ca"), f.authority.PEM)
	registries := filepath.Join(f.dir, "day-registries.yaml")
	replace(t, registries, fmt.Appendf(nil, "registries: [{host: %q, plainHTTP: true}]\ntrust: [{repositories: [%q], unsigned: true}]\n", d.registry, d.registry+"/*"))
	d.args = []string{
		"-config", d.config, "-registries", registries, "-kubeconfig", d.kubeconfig, "-interval", "100ms", "-cert", filepath.Join(f.dir, "tls.crt"), "-key", filepath.Join(f.dir, "tls.key"),
		"-api-token-file", filepath.Join(f.dir, "day-token"), "-drain-delay", "1s", "-log-level", "warn",
	}
	if d.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.listener.Close() })
	go d.serve()
	first, second := d.replica(t, webhook), d.replica(t, webhook)
	url := "https://" + d.listener.Addr().String() + "/validate"
	hook.Webhooks[0].ClientConfig = arv1.WebhookClientConfig{URL: &url, CABundle: f.authority.PEM}
	client := f.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	if _, err := client.Create(t.Context(), hook, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Delete(context.Background(), hook.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	is := func(word string) func() bool {
		return func() bool {
			said, _ := d.says(t, labelled("asked"))
			return said == word
		}
	}
	eventually(t, "the first version", is("ver1"))
	// The API server notices the configuration at any time until here.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var hammering sync.WaitGroup
	for range 4 {
		hammering.Go(func() { d.hammer(t, ctx) })
	}

	// Another version beside the one that serves, on both replicas.
	d.push(t, "next", "ver2")
	settings := filepath.Join(f.dir, "day-shadow.yaml")
	replace(t, settings, []byte("{rate: 1, cpu: 1}"))
	for _, r := range []*dayReplica{first, second} {
		d.manage(t, r, "--settings", settings, "shadow", "guard", filepath.Join(f.dir, "ver2.wasm"))
	}
	for _, r := range []*dayReplica{first, second} {
		eventually(t, "calls that were compared", func() bool {
			// The API server may hold a connection to one replica alone.
			f.newConnection(t, url)
			return strings.Contains(d.manage(t, r, "shadow", "guard"), "deny -> deny")
		})
		d.manage(t, r, "promote", "guard")
	}
	eventually(t, "the promoted version", is("ver2"))
	for _, r := range []*dayReplica{first, second} {
		d.manage(t, r, "rollback", "guard")
	}
	eventually(t, "the version before", is("ver1"))

	// The declaration names what is to serve from now on, and the tag moves.
	text, err := os.ReadFile(d.config)
	if err != nil {
		t.Fatal(err)
	}
	d.push(t, "2", "ver3")
	replace(t, d.config, []byte(strings.ReplaceAll(string(text), "guard:1", "guard:2")))
	for _, r := range []*dayReplica{first, second} {
		eventually(t, "the declared version", func() bool { return !strings.Contains(d.manage(t, r, "list"), "Stale") })
	}
	eventually(t, "the declared version", is("ver3"))
	d.push(t, "2", "ver4")
	eventually(t, "what the tag leads to", is("ver4"))

	// The glass is broken, and a Pod comes in that the policy would deny; the audit finds it.
	d.broken.Store(true)
	for _, r := range []*dayReplica{first, second} {
		d.manage(t, r, "break-glass", "10m", "the day")
	}
	eventually(t, "a Pod that passes", func() bool {
		_, err := f.create(t, labelled("came-in"))
		return err == nil
	})
	for _, r := range []*dayReplica{first, second} {
		d.manage(t, r, "break-glass", "end")
	}
	eventually(t, "the policy is in force again", is("ver4"))
	d.broken.Store(false)
	found := d.run(t, 2, "audit", "--policies", d.config, "--plain-http", d.registry, "--registries", registries, "--kubeconfig", d.kubeconfig)
	if !strings.Contains(found, "came-in") || !strings.Contains(found, "ver4") {
		t.Errorf("the audit finds\n%s", found)
	}

	// Both replicas are replaced by another build of the program.
	for _, old := range []*dayReplica{first, second} {
		d.replica(t, later)
		d.end(t, old)
	}
	eventually(t, "the upgraded program", is("ver4"))
	cancel()
	hammering.Wait()
	if d.wrong.Load() != 0 || d.asked.Load() < 200 {
		t.Errorf("%d of %d answers are wrong, such as %v", d.wrong.Load(), d.asked.Load(), d.what.Load())
	}
	t.Logf("%d answers", d.asked.Load())
	for _, r := range slices.Clone(d.balancer.replicas) {
		d.end(t, r)
	}
	if err := f.Client.CoreV1().Pods("shop").Delete(t.Context(), "came-in", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// newConnection sends a review by a connection of its own, so that it reaches the next replica.
func (f *fixture) newConnection(t *testing.T, url string) {
	t.Helper()
	client := f.authority.HTTP()
	defer client.CloseIdleConnections()
	resp, err := client.Post(url, "application/json", strings.NewReader(`{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u", "operation": "CREATE",
"kind": {"version": "v1", "kind": "Pod"}, "resource": {"version": "v1", "resource": "pods"}, "name": "p", "namespace": "shop",
"object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "shop", "labels": {"ask": "day"}}}}}`))
	if err == nil {
		resp.Body.Close()
	}
}
