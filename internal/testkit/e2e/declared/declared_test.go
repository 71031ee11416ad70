package declared_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/internal/testkit/e2e/cluster"
)

// installed is the namespace of the programs.
const installed = "kubewasm"

// trap is a policy whose calls trap.
var trap = base64.StdEncoding.EncodeToString([]byte("\x00asm\x01\x00\x00\x00" +
	"\x01\x05\x01\x60\x00\x01\x7e" +
	"\x03\x03\x02\x00\x00" +
	"\x05\x03\x01\x00\x01" +
	"\x07\x27\x03\x06memory\x02\x00\x0fkubewasm_abi_v1\x00\x00\x08validate\x00\x01" +
	"\x0a\x0e\x02\x08\x00\x42\x80\x80\x80\x80\x10\x0b\x03\x00\x00\x0b"))

// denier is a policy that denies everything with a word of four letters.
func denier(word string) string {
	return base64.StdEncoding.EncodeToString([]byte("\x00asm\x01\x00\x00\x00" +
		"\x01\x0a\x02\x60\x02\x7f\x7f\x00\x60\x00\x01\x7e" +
		"\x02\x1a\x01\x08kubewasm\x0dstatus_reason\x00\x00" +
		"\x03\x03\x02\x01\x01" +
		"\x05\x03\x01\x00\x01" +
		"\x07\x27\x03\x06memory\x02\x00\x0fkubewasm_abi_v1\x00\x01\x08validate\x00\x02" +
		"\x0a\x15\x02\x08\x00\x42\x80\x80\x80\x80\x10\x0b\x0a\x00\x41\x00\x41\x04\x10\x00\x42\x02\x0b" +
		"\x0b\x0a\x01\x00\x41\x00\x0b\x04" + word))
}

// world is a control plane with the programs.
type world struct {
	*testing.T
	*cluster.Cluster
	dir       string
	authority *cluster.Authority
	dynamic   dynamic.Interface
	// ip is the address of the machine at which the API server reaches webhooks.
	ip string
	// kubewasm is the command.
	kubewasm string
	// repository is the checkout from which programs are built, and built the files by their directories.
	repository string
	built      map[string]string
}

// build builds a program of the repository, once.
func (w *world) build(name string, flags ...string) string {
	w.Helper()
	dir := filepath.Join(w.repository, "cmd/kubewasm-"+name)
	if w.built[dir] == "" {
		w.built[dir] = cluster.Build(w.T, dir, ".", name, flags...)
	}
	return w.built[dir]
}

// program is a running program.
type program struct {
	cmd *exec.Cmd
	out bytes.Buffer
}

// start starts a program with variables and arguments, until it is stopped or the test ends.
func (w *world) start(binary string, env []string, args ...string) *program {
	w.Helper()
	p := &program{cmd: exec.Command(binary, args...)}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		p.kill()
		if w.Failed() {
			w.Logf("%s wrote\n%s", filepath.Base(binary), p.out.String())
		}
	})
	return p
}

func (p *program) kill() {
	_ = p.cmd.Process.Kill() // It may be gone.
	_ = p.cmd.Wait()
}

// show logs what the cluster has.
func (w *world) show() {
	for _, of := range []schema.GroupVersionResource{
		v1alpha1.GroupVersion.WithResource("clusteradmissionpolicies"), v1alpha1.GroupVersion.WithResource("admissionpolicies"), v1alpha1.GroupVersion.WithResource("pluginreports"),
		{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"},
	} {
		list, err := w.dynamic.Resource(of).List(context.WithoutCancel(w.Context()), metav1.ListOptions{})
		if err != nil {
			w.Log(err)
			continue
		}
		for i := range list.Items {
			list.Items[i].SetManagedFields(nil)
			text, err := yaml.Marshal(list.Items[i].Object)
			w.Logf("%s %v\n%s", of.Resource, err, text)
		}
	}
}

// until waits until something holds.
func (w *world) until(what string, holds func() bool) {
	w.Helper()
	for start := time.Now(); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Since(start) > 2*time.Minute {
			if w.dynamic != nil {
				w.show()
			}
			w.Fatalf("never: %s", what)
		}
	}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// machine returns an address of the machine that is no loopback: an API server takes none for an
// endpoint.
func machine(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if of, ok := a.(*net.IPNet); ok && of.IP.To4() != nil && of.IP.IsGlobalUnicast() {
			return of.IP.String()
		}
	}
	if os.Getenv("CI") != "" {
		t.Fatal("the machine has no address but loopback")
	}
	t.Skip("the machine has no address but loopback")
	return ""
}

// newWorld starts a control plane with the CRDs and the Service of the webhooks.
func newWorld(t *testing.T) *world {
	w := &world{T: t, ip: machine(t), dir: t.TempDir(), authority: cluster.NewAuthority(t), built: map[string]string{}}
	w.Cluster = cluster.Start(t, map[string][]string{"enable-aggregator-routing": {"true"}})
	config := rest.CopyConfig(w.Config)
	config.QPS = -1
	var err error
	w.repository, err = filepath.Abs("../../../..")
	w.must(err)
	w.Client, err = kubernetes.NewForConfig(config)
	w.must(err)
	w.dynamic, err = dynamic.NewForConfig(config)
	w.must(err)
	crds, err := filepath.Glob("../../../../charts/kubewasm/files/crds/*.yaml")
	w.must(err)
	for _, file := range crds {
		text, err := os.ReadFile(file)
		w.must(err)
		object := new(unstructured.Unstructured)
		w.must(yaml.Unmarshal(text, &object.Object))
		_, err = w.dynamic.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}).Create(t.Context(), object, metav1.CreateOptions{})
		w.must(err)
	}
	for _, name := range []string{installed, "shop", "other"} {
		_, err := w.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		w.must(err)
	}
	_, err = w.Client.CoreV1().Services(installed).Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "kubewasm-webhook"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}}}}, metav1.CreateOptions{})
	w.must(err)
	w.authority.Issue(t, w.dir, "kubewasm-webhook."+installed+".svc")
	w.must(os.WriteFile(filepath.Join(w.dir, "ca.crt"), w.authority.PEM, 0o600))
	return w
}

// replica is a webhook with its part of the Service.
type replica struct {
	*world
	name, port string
	*program
}

// newReplica starts a webhook, and lets the API server reach it when it is ready.
func (w *world) newReplica(name string) *replica {
	w.Helper()
	listener, err := net.Listen("tcp", w.ip+":0")
	w.must(err)
	_, port, err := net.SplitHostPort(listener.Addr().String())
	w.must(err)
	w.must(listener.Close())
	r := &replica{world: w, name: name, port: port}
	// The Pod of the process, which owns its report.
	pod, err := w.Client.CoreV1().Pods(installed).Create(w.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app.kubernetes.io/part-of": "kubewasm", "app.kubernetes.io/component": "webhook"}},
		Spec:       corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "webhook", Image: "webhook"}}},
	}, metav1.CreateOptions{})
	w.must(err)
	pod.Status.Phase = corev1.PodRunning
	_, err = w.Client.CoreV1().Pods(installed).UpdateStatus(w.Context(), pod, metav1.UpdateOptions{})
	w.must(err)
	r.program = w.start(w.build("webhook"),
		[]string{"POD_NAME=" + name, "POD_NAMESPACE=" + installed, "POD_UID=" + string(pod.UID)},
		"-cluster", "-kubeconfig", w.Kubeconfig, "-addr", ":"+port, "-cert", filepath.Join(w.dir, "tls.crt"), "-key", filepath.Join(w.dir, "tls.key"), "-interval", "200ms", "-drain-delay", "1s")
	client := w.authority.HTTP()
	defer client.CloseIdleConnections()
	w.until("the webhook is ready", func() bool {
		resp, err := client.Get("https://127.0.0.1:" + port + "/readyz")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil && resp.StatusCode == http.StatusOK
	})
	number, err := strconv.ParseInt(port, 10, 32)
	w.must(err)
	_, err = w.Client.DiscoveryV1().EndpointSlices(installed).Create(w.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "kubewasm-webhook"}}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{w.ip}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}}},
		Ports:     []discoveryv1.EndpointPort{{Name: new("https"), Port: new(int32(number)), Protocol: new(corev1.ProtocolTCP)}},
	}, metav1.CreateOptions{})
	w.must(err)
	return r
}

// leave takes the webhook out of the Service, and ends it after what is on its way.
func (r *replica) leave() {
	r.Helper()
	r.must(r.Client.DiscoveryV1().EndpointSlices(installed).Delete(r.Context(), r.name, metav1.DeleteOptions{}))
	// API servers hear of it as of a Pod that ends: the process serves on for its drain delay.
	r.must(r.cmd.Process.Signal(syscall.SIGTERM))
	if err := r.cmd.Wait(); err != nil {
		r.Errorf("the webhook ended: %v", err)
	}
	r.must(r.Client.CoreV1().Pods(installed).Delete(r.Context(), r.name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	// The garbage collector's part.
	_ = r.reports().Delete(r.Context(), r.name, metav1.DeleteOptions{})
}

func (w *world) reports() dynamic.ResourceInterface {
	return w.dynamic.Resource(v1alpha1.GroupVersion.WithResource("pluginreports")).Namespace(installed)
}

func (w *world) policies(namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return w.dynamic.Resource(v1alpha1.GroupVersion.WithResource("clusteradmissionpolicies"))
	}
	return w.dynamic.Resource(v1alpha1.GroupVersion.WithResource("admissionpolicies")).Namespace(namespace)
}

// apply applies a policy about Pods with a label.
func (w *world) apply(namespace, name, module, label string) error {
	return w.declare(namespace, name, `"module":{`+module+`}`, label)
}

// declare applies a policy with members of its spec, likewise.
func (w *world) declare(namespace, name, spec, label string) error {
	kind := "ClusterAdmissionPolicy"
	if namespace != "" {
		kind = "AdmissionPolicy"
	}
	text := fmt.Sprintf(`{"apiVersion":"kubewasm.dev/v1alpha1","kind":%q,"metadata":{"name":%q},"spec":{%s,"match":{
		"rules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"]}],"objectSelector":{"matchLabels":{"ask":%q}}}}}`, kind, name, spec, label)
	_, err := w.policies(namespace).Patch(w.Context(), name, "application/apply-patch+yaml", []byte(text), metav1.PatchOptions{FieldManager: "test", Force: new(true)})
	return err
}

// status returns the status of a policy.
func (w *world) status(namespace, name string) (s v1alpha1.PluginStatus) {
	w.Helper()
	object, err := w.policies(namespace).Get(w.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return s
	}
	w.must(err)
	of, _, err := unstructured.NestedMap(object.Object, "status")
	w.must(err)
	w.must(runtime.DefaultUnstructuredConverter.FromUnstructured(of, &s))
	if s.ObservedGeneration != object.GetGeneration() {
		s.Ready = "" // It is about another.
	}
	return s
}

// create asks for a Pod in a dry run, and returns the word of the denial.
func (w *world) create(ctx context.Context, namespace, label string) (string, error) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"ask": label}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}}}
	_, err := w.Client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err == nil {
		return "", nil
	}
	_, message, _ := strings.Cut(err.Error(), "denied the request: ")
	word := wordOf(message)
	if word == "" {
		return "", err
	}
	return word, nil
}

// trapped is the word of a call that has trapped.
const trapped = "trapped"

// wordOf returns the word of the message of a denial, empty for another one.
func wordOf(message string) string {
	if m := regexp.MustCompile(`^[a-z/]+: ([a-z0-9]{4})$`).FindStringSubmatch(message); m != nil {
		return m[1]
	}
	if strings.Contains(message, "unreachable") {
		return trapped
	}
	return ""
}

// want waits until Pods are denied with a word, or allowed for an empty one.
func (w *world) want(namespace, label, word string) {
	w.Helper()
	var got string
	var err error
	defer func() {
		if w.Failed() {
			w.Logf("the last answer is %q, error %v", got, err)
		}
	}()
	w.until(fmt.Sprintf("%q for %s in %s", word, label, namespace), func() bool {
		got, err = w.create(w.Context(), namespace, label)
		return err == nil && got == word
	})
}

// hammer creates Pods until it is stopped. Each answer must be that of a declared version, and none
// may fail. It returns after the first one, and stop returns how often each word came.
func (w *world) hammer(label string, allowed ...string) (stop func() map[string]int) {
	ctx, cancel := context.WithCancel(w.Context())
	words := map[string]bool{}
	for _, word := range allowed {
		words[word] = true
	}
	var mu sync.Mutex
	counts := map[string]int{}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				word, err := w.create(ctx, "shop", label)
				switch {
				case ctx.Err() != nil:
					return
				case err != nil:
					w.Errorf("a request failed: %v", err)
					return
				case !words[word]:
					w.Errorf("a request was answered with %q", word)
					return
				}
				mu.Lock()
				counts[word]++
				mu.Unlock()
			}
		})
	}
	w.until("the first answer", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(counts) > 0 || w.Failed()
	})
	return func() map[string]int {
		cancel()
		all.Wait()
		return maps.Clone(counts)
	}
}

// command runs kubewasm against the cluster, and returns a function that compares what it prints with
// patterns.
func (w *world) command(code int, args ...string) func(patterns ...string) {
	w.Helper()
	cmd := exec.CommandContext(w.Context(), w.kubewasm, append(args, "--kubeconfig", w.Kubeconfig)...)
	text, err := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != code {
		w.Errorf("kubewasm %s: exit code %d, want %d: %v\n%s", strings.Join(args, " "), got, code, err, text)
	}
	return func(patterns ...string) {
		w.Helper()
		for _, pattern := range patterns {
			if !regexp.MustCompile(pattern).Match(text) {
				w.Errorf("kubewasm %s: want %s in\n%s", strings.Join(args, " "), pattern, text)
			}
		}
	}
}

// diff compares files with the cluster.
func (w *world) diff() {
	w.Helper()
	live, err := w.policies("").Get(w.Context(), "everywhere", metav1.GetOptions{})
	w.must(err)
	file := filepath.Join(w.dir, "policy.yaml")
	write := func(change func(spec map[string]any)) {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": live.DeepCopy().Object["spec"]}}
		u.SetAPIVersion(live.GetAPIVersion())
		u.SetKind(live.GetKind())
		u.SetName(live.GetName())
		change(u.Object["spec"].(map[string]any))
		text, err := yaml.Marshal(u.Object)
		w.must(err)
		w.must(os.WriteFile(file, text, 0o600))
	}
	write(func(map[string]any) {})
	w.command(0, "diff", "-f", file)(`everywhere: no difference`)
	write(func(spec map[string]any) { spec["mode"] = "Monitor" })
	w.command(2, "diff", "-f", file)(`everywhere: changed`, `(?m)^\+  mode: Monitor$`)
	write(func(spec map[string]any) {
		spec["limits"] = map[string]any{"timeout": "soon", "fule": int64(1)}
		spec["mode"] = "Loud"
	})
	w.command(2, "diff", "-f", file)(`mistake: .*limits\.timeout`, `mistake: .*limits\.fule`, `mistake: .*mode`)
	if after, err := w.policies("").Get(w.Context(), "everywhere", metav1.GetOptions{}); err != nil || after.GetGeneration() != live.GetGeneration() {
		w.Errorf("diff changed the object: generation %d, want %d, error %v", after.GetGeneration(), live.GetGeneration(), err)
	}
}

// controller starts the controller.
func (w *world) controller() *program {
	w.Helper()
	return w.start(w.build("controller"), nil, "-kubeconfig", w.Kubeconfig, "-namespace", installed, "-ca-file", filepath.Join(w.dir, "ca.crt"), "-leader-elect=false", "-metrics-addr", "0", "-probe-addr", "0")
}

// ready waits until a policy serves in so many of two webhooks.
func (w *world) ready(namespace, name, want string) {
	w.Helper()
	w.until(name+" is "+want, func() bool {
		s := w.status(namespace, name)
		return s.Ready == want && meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionReady) == (want == "2/2")
	})
}

// deny returns the module of a policy that denies with a word.
func deny(word string) string { return `"bytes":"` + denier(word) + `"` }

// TestDeclared: a policy that is applied is enforced by API servers, changes, breaks, is repaired and
// goes, while Pods are created, webhooks and the controller come and go, and no request fails.
func TestDeclared(t *testing.T) {
	w := newWorld(t)
	w.kubewasm = cluster.Build(t, filepath.Join(w.repository, "cmd/kubewasm"), ".", "kubewasm")
	running := w.controller()
	replicas := []*replica{w.newReplica("webhook-0"), w.newReplica("webhook-1")}
	ready := w.ready

	testRoles(t, w)
	applied := time.Now()
	w.must(w.apply("", "everywhere", deny("ver1"), "all"))
	w.want("other", "all", "ver1")
	t.Logf("from apply to enforced: %s", time.Since(applied).Round(time.Millisecond))
	ready("", "everywhere", "2/2")

	// From here on the policy never leaves a request out, and none fails.
	stop := w.hammer("all", "ver1", "ver2", "ver3", "ver4")
	w.must(w.apply("", "everywhere", deny("ver2"), "all"))
	ready("", "everywhere", "2/2")
	w.want("shop", "all", "ver2")
	w.must(w.apply("", "everywhere", `"oci":"127.0.0.1:1/none:1"`, "all"))
	w.until("the status says why", func() bool {
		c := meta.FindStatusCondition(w.status("", "everywhere").Conditions, v1alpha1.ConditionReady)
		return c != nil && c.Status == metav1.ConditionFalse && strings.Contains(c.Message, "127.0.0.1:1")
	})
	w.want("shop", "all", "ver2")
	w.command(2, "status")(`ClusterAdmissionPolicy +- +everywhere +0/2 +[0-9-]+.* +Enforce +127\.0\.0\.1:1/none:1 .*127\.0\.0\.1:1`)
	w.command(2, "status", "cap/everywhere")(`not in service as declared: `, `(?m)^Ready +False `, `(?m)^kubewasm/webhook-0 .* Stale `, `(?m)^kubewasm/webhook-1 .* Stale `)
	w.command(1, "status", "nobody")(`declares no plugin nobody`)
	w.must(w.apply("", "everywhere", deny("ver3"), "all"))
	ready("", "everywhere", "2/2")
	w.command(0, "status", "everywhere")(`2/2 in service`)
	w.diff()
	// The controller ends at random, and the webhooks are replaced one by one.
	for i := range replicas {
		running.kill()
		next := w.newReplica(fmt.Sprintf("webhook-%d", i+2))
		replicas[i].leave()
		replicas[i] = next
		running = w.controller()
		w.must(w.apply("", "everywhere", deny(fmt.Sprintf("ver%d", 3+i)), "all"))
		ready("", "everywhere", "2/2")
	}
	w.want("shop", "all", "ver4")
	counts := stop()
	t.Logf("answers: %v", counts)
	for _, word := range []string{"ver1", "ver2", "ver3", "ver4"} {
		if counts[word] == 0 {
			t.Errorf("%s was never asked: %v", word, counts)
		}
	}

	// A policy of a namespace.
	w.must(w.apply("shop", "own", deny("shop"), "own"))
	w.want("shop", "own", "shop")
	ready("shop", "own", "2/2")
	w.want("other", "own", "")

	// With a ModuleTrust for others the namespace gets no policy, and has none: failurePolicy decides.
	trust := func(spec string) {
		t.Helper()
		text := `{"apiVersion":"kubewasm.dev/v1alpha1","kind":"ModuleTrust","metadata":{"name":"trust"},"spec":` + spec + `}`
		_, err := w.dynamic.Resource(v1alpha1.GroupVersion.WithResource("moduletrusts")).Patch(t.Context(), "trust", "application/apply-patch+yaml", []byte(text), metav1.PatchOptions{FieldManager: "test", Force: new(true)})
		w.must(err)
	}
	trust(`{"namespaceSelector":"kubernetes.io/metadata.name=other","repositories":["ghcr.io/acme/*"],"quota":{"memoryBytes":1073741824}}`)
	w.must(w.apply("shop", "late", deny("late"), "late"))
	w.must(w.apply("other", "fetched", `"oci":"127.0.0.1:1/evil:1"`, "fetched"))
	says := func(namespace, name, kind, part string) {
		t.Helper()
		w.until(name+" says "+part, func() bool {
			c := meta.FindStatusCondition(w.status(namespace, name).Conditions, kind)
			return c != nil && c.Status == metav1.ConditionFalse && strings.Contains(c.Message, part)
		})
	}
	says("shop", "late", v1alpha1.ConditionReady, `no ModuleTrust selects the namespace "shop"`)
	says("other", "fetched", v1alpha1.ConditionReady, `no ModuleTrust allows the namespace "other" modules of 127.0.0.1:1/evil`)
	says("other", "fetched", v1alpha1.ConditionResolved, `no ModuleTrust allows the namespace "other" modules of 127.0.0.1:1/evil`)
	w.until("the policy that serves is withdrawn", func() bool {
		_, err := w.create(t.Context(), "shop", "own")
		return err != nil && strings.Contains(err.Error(), `no ModuleTrust selects the namespace "shop"`)
	})
	says("shop", "own", v1alpha1.ConditionReady, `no ModuleTrust selects the namespace "shop"`)
	trust(`{"inline":true}`)
	w.want("shop", "own", "shop")
	w.want("shop", "late", "late")
	ready("shop", "late", "2/2")
	for namespace, name := range map[string]string{"shop": "late", "other": "fetched"} {
		w.must(w.policies(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	w.want("shop", "late", "")

	// Policies that go: before the last request that may be denied there is none that fails.
	var gone atomic.Bool
	stop = w.hammer("all", "ver4", "")
	w.must(w.policies("").Delete(t.Context(), "everywhere", metav1.DeleteOptions{}))
	w.want("shop", "all", "")
	w.until("the object is gone", func() bool {
		_, err := w.policies("").Get(t.Context(), "everywhere", metav1.GetOptions{})
		gone.Store(apierrors.IsNotFound(err))
		return gone.Load()
	})
	w.want("shop", "all", "")
	stop()
	w.must(w.policies("shop").Delete(t.Context(), "own", metav1.DeleteOptions{}))
	w.want("shop", "own", "")
	w.until("no entry is left", func() bool {
		list, err := w.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(t.Context(), metav1.ListOptions{})
		w.must(err)
		entries := 0
		for i := range list.Items {
			entries += len(list.Items[i].Webhooks)
		}
		return entries == 0
	})
	if text, err := json.Marshal(w.status("", "everywhere")); err != nil || gone.Load() != true {
		t.Errorf("%s, error %v", text, err)
	}
	testRollouts(w, replicas, running)
}
