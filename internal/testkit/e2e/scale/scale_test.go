package scale_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/internal/apiserver"
	"github.com/kubewasm/kubewasm/internal/clusterplugins"
	"github.com/kubewasm/kubewasm/internal/testkit/e2e/cluster"
)

// traffic counts what clients read and send: requests for lists, for watches and for those that begin
// with all objects, objects written, and requests that the API server refused since it had too many.
// wrote is the time of the last attempt to write, in nanoseconds.
type traffic struct{ read, lists, watches, begins, writes, wrote, refused atomic.Int64 }

// connection is one of several with the same counts.
type connection struct {
	http.RoundTripper
	*traffic
}

// serviceAccount is the user of all agents, which API servers bound: see
// https://kubernetes.io/docs/concepts/cluster-administration/flow-control/.
const serviceAccount = "system:serviceaccount:default:kubewasm-agent"

func (t *connection) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Impersonate-User", serviceAccount)
	r.Header["Impersonate-Group"] = []string{"system:serviceaccounts", "system:authenticated"}
	switch {
	case r.Method == http.MethodPatch:
		t.wrote.Store(time.Now().UnixNano())
	case r.URL.Query().Get("watch") != "":
		t.watches.Add(1)
	default:
		t.lists.Add(1)
	}
	resp, err := t.RoundTripper.RoundTrip(r)
	if err == nil {
		switch {
		case resp.StatusCode == http.StatusTooManyRequests:
			t.refused.Add(1)
		case r.Method == http.MethodPatch && resp.StatusCode/100 == 2:
			t.writes.Add(1)
		case r.URL.Query().Get("sendInitialEvents") != "":
			t.begins.Add(1)
		}
		resp.Body = &counted{resp.Body, &t.read}
	}
	return resp, err
}

type counted struct {
	io.ReadCloser
	n *atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// agent is the part of an agent that follows and reports; its guests are left out.
type agent struct {
	mu      sync.Mutex
	objects []clusterplugins.Object
	at      map[string]time.Time
}

func (a *agent) apply(objects []clusterplugins.Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.objects = objects
	for i := range objects {
		key := objects[i].Plugin() + " " + strconv.FormatInt(objects[i].Generation, 10)
		if _, ok := a.at[key]; !ok {
			a.at[key] = time.Now()
		}
	}
}

func (a *agent) states() (states []clusterplugins.State) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.objects { // None until they are known.
		o := &a.objects[i]
		states = append(states, clusterplugins.State{Kind: o.Kind, Name: o.Name, UID: o.UID, Generation: o.Generation, State: "Serving", Digest: fmt.Sprintf("%064d", o.Generation), Reference: "ghcr.io/acme/hook:1"})
	}
	return states
}

func (a *agent) applied(key string) (at time.Time, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at, ok = a.at[key]
	return at, ok
}

// TestManyAgents: a change reaches each agent and each webhook, each writes it once, and nobody lists,
// also after the API server was killed. KUBEWASM_SCALE is the number of agents.
func TestManyAgents(t *testing.T) {
	agents, hooks, replicas, policies := 50, 20, 2, 20
	if text := os.Getenv("KUBEWASM_SCALE"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		agents, hooks, replicas, policies = n, 200, 20, 500
	}
	c := cluster.Start(t, nil)
	client, err := dynamic.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	crds, err := filepath.Glob("../../../../charts/kubewasm/files/crds/*.yaml")
	if err != nil || len(crds) == 0 {
		t.Fatalf("%d CRDs, error %v", len(crds), err)
	}
	for _, file := range crds {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		object := new(unstructured.Unstructured)
		if err := yaml.Unmarshal(text, &object.Object); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	binding := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": map[string]any{"name": "agents"},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
		"subjects": []any{map[string]any{"kind": "ServiceAccount", "namespace": "default", "name": "kubewasm-agent"}},
	}}
	if _, err := client.Resource(schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"}).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	resource := client.Resource(schema.GroupVersionResource{Group: "kubewasm.dev", Version: "v1alpha1", Resource: "nodehooks"})
	policiesOf := client.Resource(schema.GroupVersionResource{Group: "kubewasm.dev", Version: "v1alpha1", Resource: "clusteradmissionpolicies"})
	put := func(i, version int) error {
		text := fmt.Sprintf(`{"apiVersion":"kubewasm.dev/v1alpha1","kind":"NodeHook","metadata":{"name":"hook-%03d"},"spec":{"module":{"oci":"ghcr.io/acme/hook:%d"},"levels":["Container"],"owns":["cpu_shares"],"guestConfig":{"classes":{"gold":%d,"silver":2,"bronze":1}}}}`, i, version, version)
		_, err := resource.Patch(t.Context(), fmt.Sprintf("hook-%03d", i), "application/apply-patch+yaml", []byte(text), metav1.PatchOptions{FieldManager: "test", Force: new(true)})
		return err
	}
	putPolicy := func(i, version int) error {
		text := fmt.Sprintf(`{"apiVersion":"kubewasm.dev/v1alpha1","kind":"ClusterAdmissionPolicy","metadata":{"name":"policy-%03d"},"spec":{"module":{"oci":"ghcr.io/acme/policy:%d"},"match":{"rules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"]}]}}}`, i, version)
		_, err := policiesOf.Patch(t.Context(), fmt.Sprintf("policy-%03d", i), "application/apply-patch+yaml", []byte(text), metav1.PatchOptions{FieldManager: "test", Force: new(true)})
		return err
	}
	// The agents, and behind them the webhooks.
	all := make([]*agent, agents+replicas)
	for i := range all {
		all[i] = &agent{at: map[string]time.Time{}}
	}
	count := new(traffic)
	reached := func(key string) (n int) {
		for _, a := range all {
			if _, ok := a.applied(key); ok {
				n++
			}
		}
		return n
	}
	wait := func(what string, within time.Duration, holds func() bool) {
		t.Helper()
		for start := time.Now(); ; {
			asked := time.Now()
			if holds() {
				return
			}
			if time.Since(start) > within {
				t.Fatalf("never: %s: %d lists, %d watches, %d writes, %d refused, %d of %d agents know an object", what, count.lists.Load(), count.watches.Load(), count.writes.Load(), count.refused.Load(), reached("hook-000 1"), agents)
			}
			time.Sleep(max(20*time.Millisecond, 4*time.Since(asked))) // Asking is no load to measure.
		}
	}
	wait("the resources", time.Minute, func() bool { return put(0, 1) == nil })
	for i := range hooks {
		if err := put(i, 1); err != nil {
			t.Fatal(err)
		}
	}
	wait("the policies", time.Minute, func() bool { return putPolicy(0, 1) == nil })
	for i := range policies {
		if err := putPolicy(i, 1); err != nil {
			t.Fatal(err)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer func() {
		cancel()
		running.Wait()
	}()
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var connected *connection
	for i, a := range all {
		if i%100 == 0 { // A connection has a bounded number of streams.
			transport, err := rest.TransportFor(&rest.Config{TLSClientConfig: c.Config.TLSClientConfig, Dial: c.Config.Dial})
			if err != nil {
				t.Fatal(err)
			}
			connected = &connection{transport, count}
		}
		api := apiserver.Wrap(c.Config.Host, &http.Client{Transport: connected})
		of := []clusterplugins.Resource{clusterplugins.NodeHooks}
		process := clusterplugins.Process{Component: "kubewasm-agent", Version: "v1", Name: fmt.Sprintf("agent-%04d", i), Namespace: "default", Node: fmt.Sprintf("node-%04d", i)}
		if i >= agents {
			of = []clusterplugins.Resource{clusterplugins.ClusterAdmissionPolicies, clusterplugins.AdmissionPolicies}
			process.Component, process.Name, process.Node = "kubewasm-webhook", fmt.Sprintf("webhook-%04d", i), ""
		}
		watch := clusterplugins.New(clusterplugins.Config{Client: api, Resources: of, Apply: a.apply, Logger: slog.New(slog.DiscardHandler)})
		running.Go(func() { watch.Run(ctx) })
		running.Go(func() { clusterplugins.Report(ctx, api, process, a.states, slog.New(slog.DiscardHandler)) })
	}
	begun := time.Now()
	wait("all know all objects", 10*time.Minute, func() bool {
		return reached(fmt.Sprintf("hook-%03d 1", hooks-1)) == agents && reached(fmt.Sprintf("policy-%03d 1", policies-1)) == replicas
	})
	t.Logf("%d agents know %d objects after %s, by %d lists and %d watches", agents, hooks, time.Since(begun).Round(time.Millisecond), count.lists.Load(), count.watches.Load())
	reports := client.Resource(schema.GroupVersionResource{Group: "kubewasm.dev", Version: "v1alpha1", Resource: "pluginreports"})
	reported := func(name string, generation int64) (n int) {
		next := ""
		for {
			list, err := reports.Namespace("default").List(t.Context(), metav1.ListOptions{Limit: 200, Continue: next})
			if err != nil {
				t.Fatal(err)
			}
			for i := range list.Items {
				plugins, _, _ := unstructured.NestedSlice(list.Items[i].Object, "plugins")
				if slices.ContainsFunc(plugins, func(p any) bool {
					of := p.(map[string]any)
					return of["name"] == name && of["generation"] == generation
				}) {
					n++
				}
			}
			if next = list.GetContinue(); next == "" {
				return n
			}
		}
	}
	wait("all agents report", 20*time.Minute, func() bool { return count.writes.Load() >= int64(agents+replicas) && reported("hook-000", 1) == agents })
	t.Logf("all have reported after %s, by %d writes; %d requests were refused", time.Since(begun).Round(time.Millisecond), count.writes.Load(), count.refused.Load())
	// Nothing more to write, in several rounds of comparisons.
	wait("quiet", 5*time.Minute, func() bool { return time.Since(time.Unix(0, count.wrote.Load())) > 5*time.Second })
	var after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&after)
	t.Logf("heap for each agent: %.2f MB, %d lists and %d writes so far", float64(after.HeapAlloc-before.HeapAlloc)/float64(agents)/(1<<20), count.lists.Load(), count.writes.Load())

	lists, read, writes := count.lists.Load(), count.read.Load(), count.writes.Load()
	changed := time.Now()
	if err := put(0, 2); err != nil {
		t.Fatal(err)
	}
	wait("all agents know the change", 5*time.Minute, func() bool { return reached("hook-000 2") == agents })
	var took []time.Duration
	for _, a := range all[:agents] {
		at, _ := a.applied("hook-000 2")
		took = append(took, at.Sub(changed))
	}
	slices.Sort(took)
	wait("all agents report the change", 20*time.Minute, func() bool { return count.writes.Load() >= writes+int64(agents) && reported("hook-000", 2) == agents })
	done := time.Since(changed)
	p99 := took[int(math.Ceil(0.99*float64(agents)))-1]
	perAgent := float64(count.read.Load()-read) / float64(agents)
	text, _ := json.Marshal(map[string]any{"agents": agents, "p50": took[agents/2].String(), "p99": p99.String(), "reported": done.String(), "writes": count.writes.Load() - writes, "bytes": int(perAgent)})
	t.Logf("a change: %s", text)
	if got := count.writes.Load() - writes; got > int64(2*agents) {
		t.Errorf("%d writes for a change of %d agents", got, agents)
	}
	if got := count.lists.Load() - lists; got != 0 || lists != 0 {
		t.Errorf("%d lists for a change, %d before it", got, lists)
	}

	// Watches go on or begin anew, within some seconds, and no process writes since nothing has changed.
	begins := count.begins.Load()
	writes = count.writes.Load()
	killAPIServer(t, c)
	killed := time.Now()
	if err := put(1, 2); err != nil {
		t.Fatal(err)
	}
	if err := putPolicy(1, 2); err != nil {
		t.Fatal(err)
	}
	wait("all know changes after the API server was killed", 10*time.Minute, func() bool { return reached("hook-001 2") == agents && reached("policy-001 2") == replicas })
	t.Logf("all know a change %s after the API server was ready again; %d watches began anew", time.Since(killed).Round(time.Millisecond), count.begins.Load()-begins)
	wait("all report the changes", 20*time.Minute, func() bool { return reported("hook-001", 2) == agents && reported("policy-001", 2) == replicas })
	if got := count.writes.Load() - writes; got > int64(2*(agents+replicas)) {
		t.Errorf("%d writes of %d processes after the API server was killed", got, agents+replicas)
	}
	if got := count.lists.Load(); got != 0 {
		t.Errorf("%d lists", got)
	}
}

// killAPIServer kills kube-apiserver and starts it again, with its arguments and on its address. It
// returns when it is ready.
func killAPIServer(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	address := strings.TrimSuffix(strings.TrimPrefix(c.Config.Host, "https://"), "/")
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var args []string
	pid := 0
	for _, file := range files {
		text, _ := os.ReadFile(file) // The process may be gone.
		of := strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
		if filepath.Base(of[0]) == "kube-apiserver" && slices.Contains(of, "--secure-port="+port) {
			args = of
			pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(file)))
		}
	}
	if pid == 0 {
		t.Fatalf("no kube-apiserver serves port %s", port)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(args[0], args[1:]...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if err = c.Client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(t.Context()).Error(); err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("kube-apiserver is not ready after its restart: %v", err)
		}
		select {
		case err := <-ended: // The port may not be free yet.
			t.Logf("kube-apiserver: %v", err)
			cmd = exec.Command(args[0], args[1:]...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			go func() { ended <- cmd.Wait() }()
		default:
		}
	}
}
