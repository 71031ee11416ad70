package admission_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
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
	"testing"
	"time"

	arv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/internal/testkit/e2e/cluster"
)

// loops is a guest whose validate never ends.
const loops = "\x00asm\x01\x00\x00\x00" +
	"\x01\x05\x01\x60\x00\x01\x7e" + // Type: () -> i64.
	"\x03\x03\x02\x00\x00" +
	"\x05\x03\x01\x00\x01" +
	"\x07\x27\x03\x06memory\x02\x00\x0fkubewasm_abi_v1\x00\x00\x08validate\x00\x01" +
	"\x0a\x13\x02\x08\x00\x42\x80\x80\x80\x80\x10\x0b" + // 1 << 32.
	"\x08\x00\x03\x40\x0c\x00\x0b\x00\x0b"

// scriptedPolicy is a configuration with one policy that does what a Pod asks for.
func scriptedPolicy(t *testing.T) string {
	return "plugins: [{name: scripted, allowedToMutate: true, module: {file: " + guest(t, admissionDir+"testdata/scripted") + ", follow: true}}]"
}

// TestAPIServer asks policies by a real API server, in steps that share one.
func TestAPIServer(t *testing.T) {
	f := start(t)
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"denies, allows, warns and notes", f.testVerdicts},
		{"dry run", f.testDryRun},
		{"mutates, and mutates again what others changed", f.testMutatesAgain},
		{"one webhook, several mutators", f.testSeveralMutators},
		{"the largest object that can be stored", f.testLargestObject},
		{"what kubectl prints", f.testKubectl},
		{"timeouts", f.testTimeouts},
		{"a custom resource", f.testCustomResource},
		{"the manifests of the example", f.testManifests},
		{"the steps that install the example", f.testInstall},
		{"the program of the example with the rights of its manifests", f.testProgram},
		{"the policies of the example with the rules and rights of its manifests", f.testShippedPolicies},
		{"policies that objects of the cluster declare", f.testObjects},
		{"a day in the life", f.testDay},
		{"certificates and plugins change under load", f.changeUnderLoad},
	} {
		t.Run(step.name, step.run)
	}
}

func (f *fixture) testVerdicts(t *testing.T) {
	f.policies(t, scriptedPolicy(t))
	f.validating(t, "/validate", nil)
	eventually(t, "a denial", func() bool {
		_, err := f.create(t, pod("first", "deny", "not today"), metav1.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "not today")
	})
	_, err := f.create(t, pod("second", "deny", "not today", "code", "429", "reason", "TooManyRequests"))
	if want := `admission webhook "validate.kubewasm.dev" denied the request: scripted: not today`; err == nil || err.Error() != want || !apierrors.IsTooManyRequests(err) {
		t.Errorf("error is %v\nwant %s", err, want)
	}
	_, err = f.create(t, pod("third", "fields", ""))
	var status *apierrors.StatusError
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) || len(status.Status().Details.Causes) != 5 || status.Status().Details.Causes[0].Field != "spec.containers[1].image" {
		t.Errorf("error is %+v", err)
	}
	f.warnings.take()
	if _, err := f.create(t, pod("fourth", "warn", "old|odd", "audit", "image=web:1")); err != nil {
		t.Error(err)
	}
	if got := strings.Join(f.warnings.take(), "|"); got != "old|odd" {
		t.Errorf("warnings are %q", got)
	}
	eventually(t, "an audit annotation", func() bool {
		return f.audited(t, "fourth")["validate.kubewasm.dev/scripted.image"] == "web:1"
	})
	if _, err := f.create(t, pod("fifth", "panic", "oops")); err == nil || !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "validate trapped") {
		t.Errorf("error is %v", err)
	}
}

func (f *fixture) testDryRun(t *testing.T) {
	f.policies(t, scriptedPolicy(t))
	f.validating(t, "/validate", nil)
	eventually(t, "a denial that says that it is a dry run", func() bool {
		_, err := f.create(t, pod("dry", "echo", "request"), metav1.DryRunAll)
		return err != nil && strings.Contains(err.Error(), ",dry,shop,true,")
	})
	if _, err := f.create(t, pod("dry")); err != nil {
		t.Error(err) // The dry run has stored nothing.
	}
}

func (f *fixture) testMutatesAgain(t *testing.T) {
	scripted := guest(t, admissionDir+"testdata/scripted")
	f.policies(t, `
plugins:
- {name: first, allowedToMutate: true, module: {file: `+scripted+`, follow: true}}
- {name: second, allowedToMutate: true, guestConfig: {mark: b}, module: {file: `+scripted+`, follow: true}, match: {objectSelector: {matchExpressions: [{key: team, operator: Exists}]}}}
- {name: defaults, allowedToMutate: true, guestConfig: {cpu: 100m, label: defaulted}, module: {file: `+guest(t, examples+"admission/resource-defaults")+`, follow: true}}
`)
	// The second webhook changes what the first has seen, which is then asked
	// once more.
	f.mutating(t, "/mutate/first", "/mutate/defaults")
	eventually(t, "a changed object", func() bool {
		p, err := f.create(t, pod("changed", "label", "team=shop"), metav1.DryRunAll)
		return err == nil && p.Labels["team"] == "shop" && p.Labels["defaulted"] == "true"
	})
	f.decisions.take()
	p, err := f.create(t, pod("changed", "label", "team=shop"))
	if err != nil {
		t.Fatal(err)
	}
	if cpu := p.Spec.Containers[0].Resources.Requests.Cpu().String(); cpu != "100m" || p.Labels["team"] != "shop" {
		t.Errorf("cpu is %s, labels %v", cpu, p.Labels)
	}
	if got := f.decisions.take(); got["first"] != 2 || got["defaults"] != 1 {
		t.Errorf("asked %v, want first twice", got)
	}
	_, err = f.create(t, pod("denied", "label", "team=shop", "deny", "no"))
	if err == nil || !strings.Contains(err.Error(), `admission webhook "mutatefirst.kubewasm.dev" denied the request: first: no`) {
		t.Errorf("error is %v", err)
	}
}

func (f *fixture) testSeveralMutators(t *testing.T) {
	f.mutating(t, "/mutate")
	// Second chooses by a label that first gives.
	eventually(t, "an object that all have changed", func() bool {
		p, err := f.create(t, pod("several", "label", "team=shop", "trail", ">"), metav1.DryRunAll)
		return err == nil && p.Annotations["trail"] == ">b" && p.Labels["team"] == "shop" && p.Labels["defaulted"] == "true"
	})
	// A request without an object is not patched.
	if err := f.Client.CoreV1().Pods("shop").Delete(t.Context(), "changed", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

func (f *fixture) testKubectl(t *testing.T) {
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Skip("kubectl is not installed")
	}
	f.policies(t, "plugins: [{name: labels, guestConfig: {labels: [team]}, module: {file: "+guest(t, examples+"admission/required-labels")+", follow: true}}]")
	f.validating(t, "/validate", nil)
	const want = `admission webhook "validate.kubewasm.dev" denied the request: labels: metadata.labels[team]: Required value: every Pod must have it`
	eventually(t, "a denial", func() bool {
		_, err := f.create(t, pod("told"), metav1.DryRunAll)
		return err != nil && err.Error() == want
	})
	kubectl := func(stdin string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), "kubectl", append([]string{"--kubeconfig", f.Kubeconfig, "-n", "shop"}, args...)...)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		if err == nil {
			t.Errorf("kubectl %s: %s", args, out)
		}
		return strings.TrimSpace(string(out))
	}
	if got := kubectl("", "run", "told", "--image=web"); got != "Error from server: "+want {
		t.Errorf("kubectl run prints %s", got)
	}
	const manifest = "apiVersion: v1\nkind: Pod\nmetadata: {name: told}\nspec: {containers: [{name: web, image: web}]}\n"
	if got := kubectl(manifest, "apply", "-f", "-"); got != `Error from server: error when creating "STDIN": `+want {
		t.Errorf("kubectl apply prints %s", got)
	}
}

func (f *fixture) testTimeouts(t *testing.T) {
	scripted := guest(t, admissionDir+"testdata/scripted")
	slow := base64.StdEncoding.EncodeToString([]byte(loops))
	one := func(t *testing.T, failurePolicy string) {
		f.policies(t, "plugins: [{name: slow, failurePolicy: "+failurePolicy+", limits: {fuel: 1000000000000, timeout: 20s}, module: {bytes: "+slow+"}}]")
		timeout := int32(1)
		f.validating(t, "/validate", func(w *arv1.ValidatingWebhook) { w.TimeoutSeconds = &timeout })
	}
	t.Run("a plugin that takes too long denies, within the time of the API server", func(t *testing.T) {
		one(t, "Fail")
		eventually(t, "a denial", func() bool {
			_, err := f.create(t, pod("slow"), metav1.DryRunAll)
			return err != nil && strings.Contains(err.Error(), `denied the request: plugin "slow": validate trapped: `) && strings.Contains(err.Error(), "deadline")
		})
	})
	t.Run("or allows with a warning", func(t *testing.T) {
		one(t, "Ignore")
		eventually(t, "a warning", func() bool {
			f.warnings.take()
			_, err := f.create(t, pod("slow"), metav1.DryRunAll)
			return err == nil && strings.HasSuffix(strings.Join(f.warnings.take(), ""), "(ignored)")
		})
	})
	t.Run("a server that does not answer", func(t *testing.T) {
		silent, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		for _, policy := range []arv1.FailurePolicyType{arv1.Fail, arv1.Ignore} {
			t.Run(string(policy), func(t *testing.T) {
				url, timeout := "https://"+silent.Addr().String()+"/validate", int32(1)
				f.validating(t, "", func(w *arv1.ValidatingWebhook) {
					w.ClientConfig.URL, w.TimeoutSeconds, w.FailurePolicy = &url, &timeout, &policy
				})
				eventually(t, "a call that fails", func() bool {
					begin := time.Now()
					_, err := f.create(t, pod("silent"), metav1.DryRunAll)
					if policy == arv1.Ignore {
						return err == nil && time.Since(begin) > 900*time.Millisecond
					}
					return err != nil && strings.Contains(err.Error(), "failed calling webhook")
				})
			})
		}
	})
	t.Run("a plugin that loops, beside one that does not", func(t *testing.T) {
		f.policies(t, `
plugins:
- {name: slow, failurePolicy: Ignore, limits: {timeout: 200ms, fuel: 1000000000000}, module: {bytes: `+slow+`}}
- {name: scripted, module: {file: `+scripted+`, follow: true}}
`)
		f.validating(t, "/validate", nil)
		eventually(t, "the verdict of the other", func() bool {
			_, err := f.create(t, pod("beside", "deny", "no"), metav1.DryRunAll)
			return err != nil && strings.HasSuffix(err.Error(), "denied the request: scripted: no")
		})
		// A call that outlasts the webhook's timeout is refused.
		if _, err := f.create(t, pod("beside")); err != nil {
			t.Error(err)
		}
	})
}

// testLargestObject stores a Pod that is as large as the API server can send to etcd,
// and whose bytes become six each on the way to the webhook; then it updates it, so that
// there are two.
func (f *fixture) testLargestObject(t *testing.T) {
	f.policies(t, "plugins: [{name: labels, guestConfig: {labels: [team]}, module: {file: "+guest(t, examples+"admission/required-labels")+", follow: true}}]")
	f.validating(t, "/validate", func(w *arv1.ValidatingWebhook) {
		timeout := int32(30)
		w.TimeoutSeconds = &timeout
	})
	config := rest.CopyConfig(f.Config)
	config.ContentType = runtime.ContentTypeProtobuf // JSON would be more than an API server reads.
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	pods := client.CoreV1().Pods("shop")
	eventually(t, "a denial", func() bool {
		_, err := f.create(t, pod("largest"), metav1.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "metadata.labels[team]")
	})
	p := pod("largest")
	p.Labels = map[string]string{"team": "shop"}
	const limit = 2 << 20
	p.Spec.Containers[0].Args = []string{strings.Repeat("<", limit)}
	if _, err := pods.Create(t.Context(), p, metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), "message larger than max") {
		t.Errorf("an object of 2 MiB was stored: %v", err)
	}
	p.Spec.Containers[0].Args = []string{strings.Repeat("<", limit-4<<10)}
	stored, err := pods.Create(t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stored.Labels["tier"] = "web"
	if stored, err = pods.Update(t.Context(), stored, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	delete(stored.Labels, "team")
	if _, err := pods.Update(t.Context(), stored, metav1.UpdateOptions{}); err == nil || !strings.HasSuffix(err.Error(), "denied the request: labels: metadata.labels[team]: Required value: every Pod must have it") {
		t.Errorf("error is %v", err)
	}
}

// audited returns the annotations of the audit events about a Pod.
func (f *fixture) audited(t *testing.T, name string) map[string]string {
	t.Helper()
	log, err := os.Open(f.auditLog)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	annotations := map[string]string{}
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct {
			ObjectRef   struct{ Name string }
			Annotations map[string]string
		}
		if json.Unmarshal(lines.Bytes(), &event) == nil && event.ObjectRef.Name == name {
			for key, value := range event.Annotations {
				annotations[key] = value
			}
		}
	}
	return annotations
}

// denier is a guest that denies everything with a word of four letters.
func denier(word string) []byte {
	return []byte("\x00asm\x01\x00\x00\x00" +
		"\x01\x0a\x02\x60\x02\x7f\x7f\x00\x60\x00\x01\x7e" +
		"\x02\x1a\x01\x08kubewasm\x0dstatus_reason\x00\x00" +
		"\x03\x03\x02\x01\x01" +
		"\x05\x03\x01\x00\x01" +
		"\x07\x27\x03\x06memory\x02\x00\x0fkubewasm_abi_v1\x00\x01\x08validate\x00\x02" +
		"\x0a\x15\x02\x08\x00\x42\x80\x80\x80\x80\x10\x0b\x0a\x00\x41\x00\x41\x04\x10\x00\x42\x02\x0b" +
		"\x0b\x0a\x01\x00\x41\x00\x0b\x04" + word)
}

// changeUnderLoad changes certificate, CA, module and policies while many create
// Pods: each of them gets the verdict of one version or the other, and nothing
// fails.
func (f *fixture) changeUnderLoad(t *testing.T) {
	file := filepath.Join(f.dir, "denier.wasm")
	replace(t, file, denier("ver0"))
	config := filepath.Join(f.dir, "policies.yaml")
	policies := func(order int) []byte {
		return fmt.Appendf(nil, "plugins:\n- {name: denier, order: %d, module: {file: %s, follow: true}}\n", order, file)
	}
	replace(t, config, policies(0))
	if err := f.manager.FollowFile(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	// The API server keeps its connections: that it makes new ones, and so sees new
	// certificates, shows in front of the server.
	front := newProxy(t, strings.TrimPrefix(f.url, "https://"))
	url := "https://" + front.addr() + "/validate"
	f.validating(t, "", func(w *arv1.ValidatingWebhook) { w.ClientConfig.URL = &url })
	eventually(t, "a denial", func() bool {
		_, err := f.create(t, pod("load"), metav1.DryRunAll)
		return err != nil && strings.HasSuffix(err.Error(), "denied the request: denier: ver0")
	})
	var asked atomic.Int64
	seen := sync.Map{}
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				_, err := f.create(t, pod("load"), metav1.DryRunAll)
				if err == nil || !strings.Contains(err.Error(), `webhook "validate.kubewasm.dev" denied the request: denier: ver`) {
					t.Errorf("a request failed: %v", err)
					return
				}
				_, version, _ := strings.Cut(err.Error(), "denied the request: denier: ")
				seen.Store(version, true)
				asked.Add(1)
			}
		})
	}
	// trust makes the API server trust others, which it does by new connections.
	trust := func(bundle []byte) {
		before := front.connections.Load()
		f.trust(t, bundle)
		eventually(t, "a new connection", func() bool { return front.connections.Load() > before || t.Failed() })
	}
	serials := map[string]bool{f.serial(t): true}
	for i := 1; i <= 8 && !t.Failed(); i++ {
		old := f.authority.PEM
		if i%2 == 0 {
			f.authority = cluster.NewAuthority(t)
			f.authority.Trusts = slices.Concat(old, f.authority.PEM)
			trust(f.authority.Trusts)
		}
		f.authority.Issue(t, f.dir)
		word := fmt.Sprintf("ver%d", i)
		replace(t, file, denier(word))
		replace(t, config, policies(i))
		eventually(t, "version "+word, func() bool { _, ok := seen.Load(word); return ok || t.Failed() })
		eventually(t, "a new certificate", func() bool {
			serial := f.serial(t)
			known := serials[serial]
			serials[serial] = true
			return !known
		})
		if i%2 == 0 {
			f.authority.Trusts = f.authority.PEM
			trust(f.authority.PEM) // And not the one before.
		}
	}
	close(done)
	wg.Wait()
	t.Logf("%d requests over %d connections, %d certificates of 5 CAs, 9 versions", asked.Load(), front.connections.Load(), len(serials))
	var none manage.File
	if err := f.manager.Apply(t.Context(), &none); err != nil {
		t.Error(err)
	}
}

// trust makes bundle the CAs that the API server trusts when it validates.
func (f *fixture) trust(t *testing.T, bundle []byte) {
	t.Helper()
	client := f.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	config, err := client.Get(t.Context(), "validate", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config.Webhooks[0].ClientConfig.CABundle = bundle
	if _, err := client.Update(t.Context(), config, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// proxy passes connections on, and counts them.
type proxy struct {
	listener    net.Listener
	connections atomic.Int64
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	p := &proxy{listener: listener}
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			p.connections.Add(1)
			go func() {
				defer from.Close()
				server, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				go func() {
					io.Copy(server, from)
					server.Close()
				}()
				io.Copy(from, server)
			}()
		}
	}()
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// serial returns the serial number of the certificate that new clients get.
func (f *fixture) serial(t *testing.T) string {
	t.Helper()
	client := f.authority.HTTP()
	defer client.CloseIdleConnections()
	resp, err := client.Get(f.url + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("/readyz answers %s", resp.Status)
	}
	return resp.TLS.PeerCertificates[0].SerialNumber.String()
}
