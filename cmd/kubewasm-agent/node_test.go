package main

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/listserver"
)

// nodeServer is an API server with the Node of an agent.
type nodeServer struct {
	*listserver.Server
	// config is the agent's, for the Node.
	config string
	// annotations are those of the Node, in JSON.
	annotations atomic.Pointer[[]byte]
	// labels are those of the Node, in JSON.
	labels atomic.Pointer[[]byte]
	// topology are those of its NodeResourceTopology.
	topology atomic.Pointer[[]byte]
}

// newNodeServer returns a server whose Node has some annotations.
func newNodeServer(t *testing.T, annotations map[string]string) *nodeServer {
	t.Helper()
	s := new(nodeServer)
	s.set(t, annotations)
	s.labels.Store(new([]byte(`{"pool":"fast"}`)))
	s.topology.Store(new([]byte("{}")))
	s.Server = listserver.New(&listserver.Resource{
		GroupVersionResource: schema.GroupVersionResource{Group: "topology.node.k8s.io", Version: "v1alpha1", Resource: "noderesourcetopologies"}, Kind: "NodeResourceTopology", N: 1,
		Object: func(dst []byte, _, _ int) []byte {
			return fmt.Appendf(dst, `{"kind":"NodeResourceTopology","metadata":{%%s,"name":"node-1","annotations":%s}}`, *s.topology.Load())
		},
	}, &listserver.Resource{
		GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, Kind: "Node", N: 1,
		Object: func(dst []byte, _, _ int) []byte {
			return fmt.Appendf(dst, `{"kind":"Node","apiVersion":"v1","metadata":{%%s,"name":"node-1","labels":%s,"annotations":%s},"status":{"capacity":{"cpu":"8"},"allocatable":{"cpu":"7900m"}}}`, *s.labels.Load(), *s.annotations.Load())
		},
	})
	server := httptest.NewTLSServer(s)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	dir := t.TempDir()
	ca, token := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "token")
	err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600)
	if err := errors.Join(err, os.WriteFile(token, []byte("secret\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	s.config = fmt.Sprintf("{name: node-1, url: '%s', tokenFile: %s, caFile: %s}", server.URL, token, ca)
	return s
}

func (s *nodeServer) set(t *testing.T, annotations map[string]string) {
	t.Helper()
	b, err := json.Marshal(annotations)
	if err != nil {
		t.Fatal(err)
	}
	s.annotations.Store(&b)
}

// label changes the labels of the Node.
func (s *nodeServer) label(t *testing.T, labels map[string]string) {
	t.Helper()
	b, err := json.Marshal(labels)
	if err != nil {
		t.Fatal(err)
	}
	s.labels.Store(&b)
	s.Touch("nodes", 0)
}

// annotate changes the annotations of the Node.
func (s *nodeServer) annotate(t *testing.T, annotations map[string]string) {
	t.Helper()
	s.set(t, annotations)
	s.Touch("nodes", 0)
}

// -check and readiness tell of a node that an agent does not get.
func TestANodeThatIsNotTold(t *testing.T) {
	root, list := tree(t), filepath.Join(t.TempDir(), "pods.yaml")
	if err := os.WriteFile(list, []byte(pods), 0o644); err != nil {
		t.Fatal(err)
	}
	s := newNodeServer(t, nil)
	guest := plugins(t)["/etc/kubewasm/plugins/cpu-normalization.wasm"]
	for _, tt := range []struct {
		name, node, refuses, check string
	}{
		{name: "of another name", node: "node: " + strings.Replace(s.config, "node-1", "node-2", 1) + "\n", check: `there is no Node "node-2"`},
		{name: "without a name", node: "node: " + strings.Replace(s.config, "name: node-1, ", "", 1) + "\n", refuses: "node: the name of the node is missing"},
		{name: "outside of a Pod", node: "node: {name: node-1}\n", refuses: "node: the process is in no Pod, and url is missing"},
		{name: "not followed", refuses: "it reads node_annotations, but the configuration does not follow the node"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("NODE_NAME", "")
			file := filepath.Join(t.TempDir(), "agent.yaml")
			text := fmt.Sprintf("%scacheDir: %s\ncgroup: {root: %s}\nstandalone: {file: %s}\nplugins:\n- {name: normalization, module: {file: %s}, reads: [resources, node_annotations]}\n", tt.node, t.TempDir(), root, list, guest)
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			want := tt.refuses + tt.check
			if err := run(t.Context(), []string{"-config", file, "-check"}); err == nil || !strings.Contains(err.Error(), want) {
				t.Fatalf("got error %v, want one with %q", err, want)
			}
			if tt.check == "" {
				return
			}
			cfg, err := readConfig(file)
			if err != nil {
				t.Fatal(err)
			}
			a, err := newAgent(t.Context(), cfg, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			defer a.close()
			if err := a.all(probed.Ready); err == nil || !strings.Contains(err.Error(), "node: it is unknown so far") {
				t.Errorf("ready: %v", err)
			}
		})
	}
}

// The share pools of a container are those of the node's own NodeResourceTopology, and change with
// it on what runs.
func TestSharePoolsOfTheNode(t *testing.T) {
	root, list := tree(t), filepath.Join(t.TempDir(), "pods.yaml")
	if err := os.WriteFile(list, []byte(pods), 0o644); err != nil {
		t.Fatal(err)
	}
	guest, err := guestbuild.Build(t.Context(), "../../examples/hooks/share-pools")
	if err != nil {
		t.Fatal(err)
	}
	s := newNodeServer(t, nil)
	pools := func(text string) {
		b, err := json.Marshal(map[string]string{"node.koordinator.sh/cpu-shared-pools": text})
		if err != nil {
			t.Fatal(err)
		}
		s.topology.Store(&b)
		s.Touch("noderesourcetopologies", 0)
	}
	pools(`[{"node": 0, "cpuset": "0-1"}]`)
	file := filepath.Join(t.TempDir(), "agent.yaml")
	text := fmt.Sprintf("cacheDir: %s\ncgroup: {root: %s}\nnode: %s\nstandalone: {file: %s}\nplugins:\n- {name: pools, module: {file: %s}, objects: [{resource: topology.node.k8s.io/v1alpha1/noderesourcetopologies}], selector: {qosClasses: [Burstable]}}\n", t.TempDir(), root, s.config, list, guest)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- run(ctx, []string{"-config", file}) }()
	for _, step := range []struct{ pools, want string }{
		{"", "0-1"}, {`[{"node": 0, "cpuset": "1"}]`, "1"}, {`[{"node": 0, "cpuset": "0"}, {"node": 1, "cpuset": "1"}]`, "0-1"},
	} {
		if step.pools != "" {
			pools(step.pools)
		}
		for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
			b, err := os.ReadFile(filepath.Join(root, "kubepods/burstable/podb/bc/cpuset.cpus"))
			if err != nil {
				t.Fatal(err)
			}
			if strings.TrimSpace(string(b)) == step.want {
				break
			}
			if time.Since(start) > 20*time.Second {
				t.Fatalf("with %s the CPUs are %q, want %s", step.pools, b, step.want)
			}
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the agent ended with %v", err)
	}
}

// One file serves nodes of several kinds, and is followed: another label of the node and another
// text of the file have other plugins decide, and what only the ones before have decided is given
// back.
func TestTheConfigurationIsFollowed(t *testing.T) {
	root, list, dir := tree(t), filepath.Join(t.TempDir(), "pods.yaml"), t.TempDir()
	if err := os.WriteFile(list, []byte(pods), 0o644); err != nil {
		t.Fatal(err)
	}
	guests, api := plugins(t), newNodeServer(t, nil)
	file := filepath.Join(dir, "agent.yaml")
	write := func(plugins string) {
		t.Helper()
		text := fmt.Sprintf("cacheDir: %s\nfollow: true\ncgroup: {root: %s}\nstandalone: {file: %s}\nnode: %s\nhttp: {address: '127.0.0.1:0'}\nplugins:\n%s", filepath.Join(dir, "cache"), root, list, api.config, plugins)
		next := filepath.Join(dir, "next")
		if err := errors.Join(os.WriteFile(next, []byte(text), 0o644), os.Rename(next, file)); err != nil {
			t.Fatal(err)
		}
	}
	normalization := func(nodes, ratio string) string {
		return fmt.Sprintf("- {name: normalization, module: {file: %s}, levels: [Container], selector: {qosClasses: [Burstable]}, nodeSelector: '%s', owns: [cfs_quota_us], guestConfig: {ratioPercent: %s}}\n", guests["/etc/kubewasm/plugins/cpu-normalization.wasm"], nodes, ratio)
	}
	identity := fmt.Sprintf("- {name: identity, module: {file: %s}, levels: [QOS], owns: [cpu_bvt]}\n", guests["/etc/kubewasm/plugins/group-identity.wasm"])
	both := normalization("pool=fast", "120") + normalization("pool in (slow, old)", "150")
	write(both + identity)
	out := new(output)
	logger := slog.New(slog.NewTextHandler(out, nil))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- start(ctx, file, false, new(slog.LevelVar), logger) }()
	until := func(what string, enough func() bool) {
		t.Helper()
		for start := time.Now(); !enough(); time.Sleep(5 * time.Millisecond) {
			if time.Since(start) > 30*time.Second {
				t.Fatalf("not yet: %s; the log is\n%s", what, out)
			}
		}
	}
	inForce := func(cgroup, want string) {
		t.Helper()
		until(cgroup+" is "+want, func() bool {
			b, err := os.ReadFile(filepath.Join(root, "kubepods", cgroup))
			return err == nil && strings.TrimSpace(string(b)) == want
		})
	}
	const quota, bvt = "burstable/podb/bc/cpu.max", "besteffort/cpu.bvt_warp_ns"
	inForce(quota, "100000 100000")
	inForce(bvt, "-1")

	api.label(t, map[string]string{"pool": "slow"})
	inForce(quota, "80000 100000")
	// A node of no kind has the plugin of all nodes alone.
	api.label(t, map[string]string{"pool": "new"})
	inForce(quota, "120000 100000")
	inForce(bvt, "-1")
	api.label(t, map[string]string{"pool": "old"})
	inForce(quota, "80000 100000")

	// A file that is wrong changes nothing.
	write("- {name: identity, module: {file: /nowhere/identity.wasm}}\n")
	until("the log of the refusal", func() bool {
		return strings.Contains(out.String(), "the configuration is refused; the agent continues with the previous one") && strings.Contains(out.String(), "/nowhere/identity.wasm")
	})
	inForce(quota, "80000 100000")
	write(normalization("", "200"))
	inForce(quota, "60000 100000")
	inForce(bvt, "0")
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the agent ended with %v", err)
	}
}

func TestSelectorsOfNodes(t *testing.T) {
	for name, c := range map[string]struct {
		text, want string
	}{
		"a selector that is none":    {"{nri: {}, node: {name: a}, plugins: [{name: a, module: {file: a.wasm}, nodeSelector: 'pool in'}]}", `plugin "a": nodeSelector: `},
		"no node is followed":        {"{nri: {}, plugins: [{name: a, module: {file: a.wasm}, nodeSelector: pool=fast}]}", `plugin "a": nodeSelector: the configuration does not follow the node`},
		"the node has another label": {"{nri: {socket: /nowhere}, cgroup: {root: $ROOT}, node: $NODE, plugins: [{name: a, module: {file: /nowhere/a.wasm}, nodeSelector: pool=slow}]}", ""},
		"the node has the label":     {"{nri: {socket: /nowhere}, cgroup: {root: $ROOT}, node: $NODE, plugins: [{name: a, module: {file: /nowhere/a.wasm}, nodeSelector: pool=fast}]}", "stat /nowhere/a.wasm"},
		"two of one name on a node":  {"{nri: {socket: /nowhere}, cgroup: {root: $ROOT}, node: $NODE, plugins: [{name: a, module: {file: a.wasm}, nodeSelector: pool}, {name: a, module: {file: b.wasm}}]}", "the name is used twice"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.NewReplacer("$ROOT", tree(t), "$NODE", newNodeServer(t, nil).config).Replace(c.text)
			cfg, err := parseConfig("agent.yaml", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			a, err := newAgent(t.Context(), cfg, slog.New(slog.DiscardHandler))
			if err == nil {
				a.close()
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got error %v, want one with %q", err, c.want)
			}
		})
	}
}
