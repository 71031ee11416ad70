package standalone_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/runtime/hookstate"
	"github.com/kubewasm/kubewasm/hooks/runtime/standalone"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/self"
)

// spinning is the environment variable that makes a process of this binary use a CPU.
const spinning = "KUBEWASM_TEST_SPIN"

// spinIfTold uses a CPU, once standard input has a line, and does not return, if it is set.
func spinIfTold() {
	if os.Getenv(spinning) == "" {
		return
	}
	os.Stdin.Read(make([]byte, 1))
	var end atomic.Bool
	for !end.Load() {
	}
}

// spin starts a process in a cgroup that uses all the CPU that it gets, until the test ends.
func (n *node) spin(cgroup string) {
	n.Helper()
	cmd := self.Command(n, []string{spinning + "=1"}, "-test.run=^$")
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	for _, file := range []string{"cpu.stat", "memory.stat", "cpuset.cpus"} { // A hierarchy each on v1.
		if err := os.WriteFile(path.Join(path.Dir(n.tree.Path(cgroup, file)), "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
			n.Fatal(err)
		}
	}
	if _, err := stdin.Write([]byte("\n")); err != nil {
		n.Fatal(err)
	}
}

// ask asks for the state of a container over HTTP.
func ask(t *testing.T, client *http.Client, url string) (node hookstate.Node) {
	t.Helper()
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", url, resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(&node); err != nil {
		t.Fatal(err)
	}
	return node
}

// One request says why a container is throttled: which plugin gives it less than the kubelet asks
// for, since when, and what is left alone.
func TestReconcilerSeesWhyAContainerIsThrottled(t *testing.T) {
	plugin := func(name string) hooks.PluginConfig {
		return hooks.PluginConfig{Config: host.Config{Name: name, Module: host.ModuleConfig{Source: source(t, scripted)}, Args: []string{name}}, FailurePolicy: host.Ignore}
	}
	n := newNode(t, plugin("cpu-normalization"), plugin("cpuset"), plugin("broken"))
	n.restart(cgroup.EnforcerConfig{Contention: cgroup.Contention{Repairs: 1, Backoff: time.Hour, MaxBackoff: time.Hour}, RetryAfter: time.Hour, RetryAtMost: time.Hour})
	podCgroup, container := n.make("a")
	n.make("b")
	a := pod("a", "")
	a.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	a.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "TOKEN", Value: "hunter2hunter2"}}
	a.Annotations = map[string]string{
		"cpu-normalization/Container": "cfs_quota_us 5000\ncpu_shares 300\ncore_sched_group g-hunter2hunter2",
		"cpuset/Container":            "cpuset_cpus 4000", // Which no machine has.
		"broken/Container":            "error no topology, hunter2hunter2 is wrong",
	}
	b := pod("b", "")
	b.Annotations = nil
	n.list(a, b)
	// As the runtime has made it.
	quotaFile, quota := "cpu.cfs_quota_us", func(us string) string { return us }
	if n.tree.V2 {
		quotaFile, quota = "cpu.max", func(us string) string { return us + " 100000" }
	}
	n.tree.Write(container, quotaFile, quota("100000"))
	begun := time.Now()
	r, err := standalone.New(standalone.Config{Engine: n.engine, State: n.state, Enforcer: n.enforcer, Discovery: standalone.File(n.pods), Layout: n.layout})
	if err != nil {
		t.Fatal(err)
	}
	sync := func() { r.Sync(t.Context()) } // Its errors are what is asked for.
	sync()
	// Another writer does not stop to change the shares.
	sharesFile, _ := n.shares(0)
	n.tree.Write(container, sharesFile, "77")
	sync()
	n.spin(container)

	state, err := hookstate.New(hookstate.Config{Engine: n.engine, State: n.state, Enforcer: n.enforcer, Layout: n.layout})
	if err != nil {
		t.Fatal(err)
	}
	// The virtual machine has no network.
	socket := filepath.Join(t.TempDir(), "state.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(state)
	server.Listener = l
	server.Start()
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", socket) }}}
	defer client.CloseIdleConnections()
	const node = "http://agent/state"
	url := node + "?namespace=shop&pod=a&container=web"
	got := ask(t, client, url)
	for start := time.Now(); got.Pods[0].Containers[0].Throttling.ThrottledSeconds == 0; got = ask(t, client, url) {
		if time.Since(start) > soon {
			t.Fatalf("the container is not throttled: %+v", got)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if len(got.Pods) != 1 || len(got.Pods[0].Containers) != 1 || len(got.QOSClasses) != 3 {
		t.Fatalf("got %+v", got)
	}
	c := got.Pods[0].Containers[0]
	if c.Throttling.Periods < c.Throttling.ThrottledPeriods {
		t.Errorf("throttling is %+v", c.Throttling)
	}
	for _, f := range c.Fields {
		if f.Since != nil && (f.Since.Before(begun) || f.Since.After(time.Now())) {
			t.Errorf("%s is decided since %s", f.Name, f.Since)
		}
		if l := f.LeftAlone; l != nil && (l.Until == nil || l.Until.Before(begun)) {
			t.Errorf("%s is left alone until %v", f.Name, l.Until)
		}
	}
	// file returns a file's path below the root.
	file := func(cgroup, name string) string {
		return strings.TrimPrefix(n.tree.Path(cgroup, name), "/sys/fs/cgroup/")
	}
	periodFile := "cpu.cfs_period_us"
	if n.tree.V2 {
		periodFile = quotaFile
	}
	inForce := func(file string) string { return n.tree.Read(container, file) }
	want := hookstate.Container{Name: "web", ContainerID: "ac", Subject: hookstate.Subject{
		Cgroup: container,
		Fields: []hookstate.Field{
			{
				Name: "cpu_shares", Asked: "1024", Plugin: "cpu-normalization", Decided: "300", Enforced: true, File: file(container, sharesFile), InForce: inForce(sharesFile),
				Differs: inForce(sharesFile) == "77", LeftAlone: &hookstate.LeftAlone{Reason: "contended"},
			},
			{
				Name: "cfs_quota_us", Asked: "100000", Plugin: "cpu-normalization", Decided: "5000", Enforced: true,
				File: file(container, quotaFile), InForce: quota("5000"),
			},
			{Name: "cfs_period_us", Asked: "100000", File: file(container, periodFile), InForce: inForce(periodFile)},
			{
				Name: "cpuset_cpus", Plugin: "cpuset", Decided: "4000", Enforced: true, File: file(container, "cpuset.cpus"), InForce: inForce("cpuset.cpus"), Differs: true,
				LeftAlone: &hookstate.LeftAlone{Reason: "refused"},
			},
			{Name: "core_sched_group", Asked: "", Plugin: "cpu-normalization", Decided: "g-xxxxxxxxxxxxxx", Enforced: true},
		},
		Failures: []hookstate.Failure{{
			Plugin: "broken", FailurePolicy: host.Ignore, Stage: "Reconcile", Cause: "status", Count: 2,
		}},
	}}
	ignore := cmp.Options{
		cmpopts.IgnoreFields(hookstate.Subject{}, "Throttling"), cmpopts.IgnoreFields(hookstate.Field{}, "Since"),
		cmpopts.IgnoreFields(hookstate.LeftAlone{}, "Until", "Cause", "Message"),
		cmpopts.IgnoreFields(hookstate.Failure{}, "Message", "FirstTimestamp", "LastTimestamp"),
	}
	if diff := cmp.Diff(want, c, ignore); diff != "" {
		t.Errorf("%s\nof the pod %s", diff, podCgroup)
	}
	if m := c.Fields[3].LeftAlone.Message; !strings.Contains(m, "4000") || c.Fields[3].LeftAlone.Cause == "" {
		t.Errorf("the refusal is %+v", c.Fields[3].LeftAlone)
	}
	if m := c.Failures[0].Message; !strings.Contains(m, "no topology, ") || strings.Contains(m, "hunter2") {
		t.Errorf("the failure is %q", m)
	}
	if b, err := json.Marshal(ask(t, client, node)); err != nil || strings.Contains(string(b), "hunter2") || !strings.Contains(string(b), `"name":"b"`) {
		t.Errorf("the state of the node is %s, error %v", b, err)
	}

	// The decision ends, and the pod.
	a.Annotations = nil
	n.list(a)
	n.tree.Remove(n.layout.Pod(abi.QOSBurstable, "b"))
	sync()
	got = ask(t, client, node)
	if len(got.Pods) != 1 {
		t.Fatalf("got %+v", got.Pods)
	}
	for _, f := range got.Pods[0].Containers[0].Fields {
		if f.Plugin != "" || f.Decided != "" || f.Enforced {
			t.Errorf("%+v is decided still", f)
		}
	}
	if f := got.Pods[0].Containers[0].Failures; f != nil {
		t.Errorf("failures are %+v", f)
	}
	if resp, err := client.Get(node + "?pod=b"); err != nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("a pod that has ended: %v, %v", resp, err)
	}
}
