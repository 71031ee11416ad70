package declared_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/e2e/cluster"
	"github.com/kubewasm/kubewasm/internal/testkit/e2e/minor"
)

// previousVersion is the environment variable with a checkout of the version before this one, which make
// upgrades sets.
const previousVersion = "KUBEWASM_PREVIOUS"

// versions returns the checkouts whose programs follow one another: the version before, this one, and the
// one before again.
func versions(t *testing.T) []string {
	t.Helper()
	before := os.Getenv(previousVersion)
	if before == "" {
		t.Skip(previousVersion + " is not set: make upgrades runs it")
	}
	now, err := filepath.Abs("../../../..")
	if err != nil {
		t.Fatal(err)
	}
	return []string{before, now, before}
}

// end ends a program as a kubelet does.
func (w *world) end(p *program) {
	w.Helper()
	w.must(p.cmd.Process.Signal(syscall.SIGTERM))
	_ = p.cmd.Wait() // A scheduler and an agent end with an error.
}

// TestUpgradeAndDowngrade replaces each program by that of another version, and back, on what the other has left, while
// it is asked. No request fails, no answer is wrong, no Pod stays pending, and no decision on a cgroup is lost.
func TestUpgradeAndDowngrade(t *testing.T) {
	t.Run("webhook and controller", upgradeWebhooks)
	t.Run("scheduler", upgradeScheduler)
	t.Run("policy server", upgradePolicyServer)
	t.Run("agent", upgradeAgent)
}

// upgradeWebhooks replaces the webhooks one by one and then the controller. The CRDs are those of this version, as
// an upgrade applies them first.
func upgradeWebhooks(t *testing.T) {
	all := versions(t)
	w := newWorld(t)
	w.repository = all[0]
	controller := w.controller()
	replicas := []*replica{w.newReplica("webhook-0-0"), w.newReplica("webhook-0-1")}
	w.must(w.apply("", "everywhere", deny("ver1"), "all"))
	w.want("shop", "all", "ver1")
	w.ready("", "everywhere", "2/2")
	stop := w.hammer("all", "ver1", "ver2", "ver3", "ver4", "ver5")
	word := 1
	change := func() {
		word++
		w.must(w.apply("", "everywhere", deny(fmt.Sprint("ver", word)), "all"))
		w.want("shop", "all", fmt.Sprint("ver", word))
		w.ready("", "everywhere", "2/2")
	}
	for n, version := range all[1:] {
		w.repository = version
		for i := range replicas {
			next := w.newReplica(fmt.Sprintf("webhook-%d-%d", n+1, i))
			replicas[i].leave()
			replicas[i] = next
		}
		change() // By webhooks and a controller of two versions.
		w.end(controller)
		controller = w.controller()
		change()
	}
	counts := stop()
	t.Logf("answers: %v", counts)
	for n := range word {
		if counts[fmt.Sprint("ver", n+1)] == 0 {
			t.Errorf("ver%d was never asked: %v", n+1, counts)
		}
	}
}

// upgradeScheduler replaces the scheduler while Pods come, as a Deployment does: the next one waits for the lease, and
// the one before gives it back as it ends, or is killed and lets it run out. No Pod is lost, and none is bound twice.
func upgradeScheduler(t *testing.T) {
	all := versions(t)
	s := newScheduling(t)
	text, err := os.ReadFile(s.config)
	s.must(err)
	leader := fmt.Sprintf("leaderElection: {leaderElect: true, resourceNamespace: %s, resourceName: scheduler}", installed)
	s.must(os.WriteFile(s.config, bytes.Replace(text, []byte("leaderElection: {leaderElect: false}"), []byte(leader), 1), 0o600))
	binaries := map[string]string{}
	for _, version := range all {
		s.repository = version
		binaries[version] = s.build("scheduler", "-modfile="+minor.Modfile)
	}
	s.controller()
	s.binary = binaries[all[0]]
	running := s.run()
	schedulers := []*program{running}
	s.zone("a")
	s.says("zone", "1/1", "")

	b := s.watchBindings()
	var bound [2]atomic.Int64
	var adding sync.WaitGroup
	done := make(chan struct{})
	const adders, each = 4, 10
	for range adders {
		adding.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				var names []string
				for range each {
					names = append(names, s.add())
				}
				for _, name := range names {
					switch node := s.bound(name); node {
					case "a", "b":
						bound[node[0]-'a'].Add(1)
					default:
						t.Errorf("%s is on %s", name, node)
					}
					// Nodes would be full.
					s.must(s.Client.CoreV1().Pods("shop").Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
				}
			}
		})
	}
	more := func(zone int) {
		n := bound[zone].Load()
		s.until(fmt.Sprint("Pods are on node ", zone), func() bool { return bound[zone].Load() > n+100 })
	}
	more(0)
	for n, version := range all[1:] {
		before, now := fmt.Sprint("scheduler-", n), fmt.Sprint("scheduler-", n+1)
		s.place(now)
		s.binary = binaries[version]
		next := s.runAs(now)
		schedulers = append(schedulers, next)
		s.says("zone", "2/2", "")
		more(n % 2)
		if n == 0 {
			s.end(running)
		} else {
			running.kill()
		}
		running = next
		s.must(s.Client.CoreV1().Pods(installed).Delete(t.Context(), before, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
		_ = s.reports().Delete(t.Context(), before, metav1.DeleteOptions{}) // The garbage collector's part.
		more(n % 2)                                                         // Where the version before has bound them.
		s.zone([]string{"b", "a"}[n%2])
		s.says("zone", "1/1", "")
		more((n + 1) % 2)
	}
	close(done)
	adding.Wait()
	b.check(int(s.pods.Load()))
	// An API server refuses to bind a Pod again. No scheduler asks it to, but for Pods that are on their way as the lease
	// changes hands.
	running.kill()
	again := 0
	for _, p := range schedulers {
		again += strings.Count(p.out.String(), "is already assigned to node")
	}
	if t.Logf("%d Pods were to be bound again", again); again > adders*each {
		t.Error("two schedulers bound Pods at once")
	}
}

// bindings are the nodes that Pods had.
type bindings struct {
	*scheduling
	mu    sync.Mutex
	nodes map[string][]string
}

// watchBindings follows the nodes of Pods.
func (s *scheduling) watchBindings() *bindings {
	s.Helper()
	b := &bindings{scheduling: s, nodes: map[string][]string{}}
	list, err := s.Client.CoreV1().Pods("shop").List(s.Context(), metav1.ListOptions{})
	s.must(err)
	version := list.ResourceVersion
	go func() {
		for s.Context().Err() == nil {
			// An API server ends the watch of a client that is slow to read.
			watch, err := s.Client.CoreV1().Pods("shop").Watch(s.Context(), metav1.ListOptions{ResourceVersion: version})
			if err != nil {
				continue
			}
			for event := range watch.ResultChan() {
				pod, ok := event.Object.(*corev1.Pod)
				if !ok {
					break // Pods will be missing if this version is no longer known.
				}
				version = pod.ResourceVersion
				b.mu.Lock()
				nodes := b.nodes[pod.Name]
				if pod.Spec.NodeName != "" && (len(nodes) == 0 || nodes[len(nodes)-1] != pod.Spec.NodeName) {
					b.nodes[pod.Name] = append(nodes, pod.Spec.NodeName)
				}
				b.mu.Unlock()
			}
			watch.Stop()
		}
	}()
	return b
}

// check holds that so many Pods were bound, each to one node, and that no two schedulers told so.
func (b *bindings) check(pods int) {
	b.Helper()
	b.until(fmt.Sprint("the watch has told of nodes of ", pods, " Pods"), func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.nodes) == pods
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, nodes := range b.nodes {
		if len(nodes) != 1 {
			b.Errorf("%s was on %q", name, nodes)
		}
	}
	events, err := b.Client.EventsV1().Events("shop").List(b.Context(), metav1.ListOptions{FieldSelector: "reason=Scheduled"})
	b.must(err)
	told := map[string]bool{}
	for _, e := range events.Items {
		if told[e.Regarding.Name] || e.Series != nil {
			b.Errorf("%s was bound twice: %s", e.Regarding.Name, e.Note)
		}
		told[e.Regarding.Name] = true
	}
	if len(told) == 0 {
		b.Error("no event tells of a Pod that was bound")
	}
	b.Logf("%d Pods were bound, %d by events", pods, len(told))
}

// upgradePolicyServer starts a policy server beside the other and moves clients to it, as a Deployment does. They share
// the directory of downloads.
func upgradePolicyServer(t *testing.T) {
	all := versions(t)
	w := &world{T: t, built: map[string]string{}, dir: t.TempDir()}
	module, err := os.ReadFile(filepath.Join(all[1], "admission/kubewarden/internal/policies/testdata/verdict/wapc.wasm"))
	w.must(err)
	var policies []string
	for name, verdict := range map[string]string{"allow": `{"accepted":true}`, "deny": `{"accepted":false,"message":"not here"}`} {
		file := filepath.Join(w.dir, name+".wasm")
		w.must(os.WriteFile(file, bytes.Replace(module, bytes.Repeat([]byte("@"), 600), []byte(verdict+strings.Repeat(" ", 600-len(verdict))), 1), 0o600))
		policies = append(policies, fmt.Sprintf(`%q: {"namespacedName": {"Namespace": "", "Name": %q}, "module": "file://%s", "policyMode": "protect", "allowedToMutate": false, "settings": {}}`, "clusterwide-"+name, name, file))
	}
	list := filepath.Join(w.dir, "policies.yml")
	w.must(os.WriteFile(list, []byte("{"+strings.Join(policies, ",")+"}"), 0o600))
	port := func() string {
		_, port, err := net.SplitHostPort(cluster.FreeAddress(t))
		w.must(err)
		return port
	}
	var mu sync.RWMutex // Held for reading while a request is on its way.
	var target string
	start := func(version string) *program {
		w.repository = version
		policies, probes := port(), port()
		p := w.start(w.build("policy-server"), []string{
			"KUBEWARDEN_BIND_ADDRESS=127.0.0.1", "KUBEWARDEN_PORT=" + policies, "KUBEWARDEN_READINESS_PROBE_PORT=" + probes, "KUBEWASM_DRAIN_DELAY=0s",
			"KUBEWARDEN_POLICIES=" + list, "KUBEWARDEN_POLICIES_DOWNLOAD_DIR=" + filepath.Join(w.dir, "store"), "KUBECONFIG=" + filepath.Join(w.dir, "none"),
		})
		w.until("the policy server is ready", func() bool {
			resp, err := http.Get("http://127.0.0.1:" + probes + "/readiness")
			if err == nil {
				resp.Body.Close()
			}
			return err == nil && resp.StatusCode == http.StatusOK
		})
		mu.Lock()
		defer mu.Unlock()
		target = "http://127.0.0.1:" + policies
		return p
	}
	running := start(all[0])
	var asked atomic.Int64
	done := make(chan struct{})
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				name, want := "allow", "true "
				if n%2 == 1 {
					name, want = "deny", "false not here"
				}
				mu.RLock()
				got, err := ask(http.DefaultClient, target+"/validate/clusterwide-"+name)
				mu.RUnlock()
				if err != nil || got != want {
					t.Errorf("%s answers %q, %v", name, got, err)
					return
				}
				asked.Add(1)
			}
		})
	}
	more := func() {
		n := asked.Load()
		w.until("more answers", func() bool { return t.Failed() || asked.Load() > n+100 })
	}
	more()
	for _, version := range all[1:] {
		before := running
		running = start(version)
		w.end(before)
		more()
	}
	close(done)
	asking.Wait()
	t.Logf("%d answers", asked.Load())
}

// ask sends a review of a Pod that the policies of rollouts are about, and returns the verdict and its message.
func ask(client *http.Client, url string) (string, error) {
	resp, err := client.Post(url, "application/json", strings.NewReader(`{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u1", "operation": "CREATE",
"kind": {"version": "v1", "kind": "Pod"}, "resource": {"version": "v1", "resource": "pods"}, "name": "p", "namespace": "shop", "userInfo": {"username": "u"},
"object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "shop", "labels": {"ask": "stepped"}}}}}`))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	var answer struct {
		Response *struct {
			Allowed bool
			Status  struct{ Message string }
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Response == nil {
		return "", fmt.Errorf("%s: %s", resp.Status, body)
	}
	return fmt.Sprint(answer.Response.Allowed, " ", answer.Response.Status.Message), nil
}

// upgradeAgent replaces the agent of a node, while something else writes what it decides. What it has decided stays
// in force while no agent runs.
func upgradeAgent(t *testing.T) {
	all := versions(t)
	w := &world{T: t, built: map[string]string{}, dir: t.TempDir()}
	root := filepath.Join(w.dir, "cgroup")
	for _, cgroup := range []string{"", "burstable", "besteffort", "besteffort/pode", "besteffort/pode/ec"} {
		dir := filepath.Join(root, "kubepods", cgroup)
		w.must(os.MkdirAll(dir, 0o755))
		for name, text := range map[string]string{"cpu.weight": "100\n", "cpu.max": "max 100000\n", "cpu.bvt_warp_ns": "0\n", "cpuset.cpus": "\n", "memory.max": "max\n"} {
			w.must(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
		}
	}
	w.must(os.WriteFile(filepath.Join(root, "cgroup.controllers"), []byte("cpu cpuset memory\n"), 0o644))
	guest, err := guestbuild.Build(t.Context(), "../../../../examples/hooks/group-identity")
	w.must(err)
	pods, config := filepath.Join(w.dir, "pods.yaml"), filepath.Join(w.dir, "agent.yaml")
	w.must(os.WriteFile(pods, []byte(`kind: PodList
items:
- metadata: {namespace: shop, name: e, uid: e}
  spec: {containers: [{name: c}]}
  status: {qosClass: BestEffort, containerStatuses: [{name: c, containerID: "containerd://ec", state: {running: {}}}]}
`), 0o644))
	w.must(os.WriteFile(config, fmt.Appendf(nil, "cacheDir: %s\ncgroup: {root: %s, driver: cgroupfs}\nstandalone: {file: %s}\nhttp: {address: '127.0.0.1:0'}\nplugins:\n- {name: identity, module: {file: %s}, levels: [QOS]}\n",
		filepath.Join(w.dir, "cache"), root, pods, guest), 0o644))
	file := filepath.Join(root, "kubepods/besteffort/cpu.bvt_warp_ns")
	decided := func() bool {
		text, err := os.ReadFile(file)
		w.must(err)
		return strings.TrimSpace(string(text)) == "-1"
	}
	for n, version := range all {
		w.repository = version
		binary := w.build("agent")
		if n > 0 && !decided() {
			t.Error("the decision ended with the agent before")
		}
		running := w.start(binary, []string{"KUBERNETES_SERVICE_HOST="}, "-config", config)
		if n == 0 {
			w.until("the agent decides", decided)
		}
		for range 3 {
			w.must(os.WriteFile(file, []byte("0\n"), 0o644))
			w.until("the agent repairs", decided)
		}
		w.end(running)
	}
}
