package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/internal/clusterplugins"
	"github.com/kubewasm/kubewasm/internal/testkit/listserver"
)

// hookServer is an API server with NodeHooks.
type hookServer struct {
	*listserver.Server
	config string
	names  []string
	specs  [3]atomic.Pointer[string]
	secret atomic.Pointer[string] // The data of the Secret ratio.
	away   atomic.Bool
}

func newHookServer(t *testing.T, names ...string) *hookServer {
	t.Helper()
	s := &hookServer{names: names}
	resource := &listserver.Resource{
		GroupVersionResource: schema.GroupVersionResource{Group: "kubewasm.dev", Version: "v1alpha1", Resource: "nodehooks"}, Kind: "NodeHook", N: len(names),
		Object: func(dst []byte, i, changes int) []byte {
			return fmt.Appendf(dst, `{"kind":"NodeHook","apiVersion":"kubewasm.dev/v1alpha1","metadata":{%%s,"name":%q,"uid":"u-%d","generation":%d},"spec":%s}`, names[i], i, changes+1, *s.specs[i].Load())
		},
	}
	for i := range names {
		s.specs[i].Store(new("{}"))
	}
	s.secret.Store(new("{}"))
	s.Server = listserver.New(resource, &listserver.Resource{
		GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, Kind: "Secret", Namespaced: true, N: 1,
		Object: func(dst []byte, _, _ int) []byte {
			return fmt.Appendf(dst, `{"metadata":{%%s,"name":"ratio","namespace":"team"},"data":%s}`, *s.secret.Load())
		},
	})
	s.Fault = func(w http.ResponseWriter, _ *http.Request) bool {
		if s.away.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		return s.away.Load()
	}
	server := httptest.NewTLSServer(s)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	dir := t.TempDir()
	ca, token := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "token")
	err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600)
	if err := errors.Join(err, os.WriteFile(token, []byte("secret\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	s.config = fmt.Sprintf("{url: '%s', tokenFile: %s, caFile: %s}", server.URL, token, ca)
	return s
}

// set changes the spec of an object.
func (s *hookServer) set(i int, spec string) {
	s.specs[i].Store(&spec)
	s.Change("nodehooks", i)
}

// report returns the states in the stored PluginReport.
func (s *hookServer) report(t *testing.T) map[string]string {
	t.Helper()
	states := map[string]string{}
	for path, text := range s.Stored() {
		if !strings.Contains(path, "/pluginreports/") {
			continue
		}
		var report struct {
			Component string                 `json:"component"`
			Plugins   []clusterplugins.State `json:"plugins"`
		}
		if err := json.Unmarshal(text, &report); err != nil || report.Component != "kubewasm-agent" {
			t.Fatalf("the report is %s, error %v", text, err)
		}
		for _, p := range report.Plugins {
			states[p.Name] = strings.TrimSuffix(fmt.Sprintf("%d %s: %s", p.Generation, p.State, p.Message), ": ")
		}
	}
	return states
}

// NodeHooks of the cluster are served beside the plugins of the file, each for itself, and are known
// after a restart without the API server.
func TestNodeHooks(t *testing.T) {
	root, list, dir := tree(t), filepath.Join(t.TempDir(), "pods.yaml"), t.TempDir()
	if err := os.WriteFile(list, []byte(pods), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("POD_NAME", "agent-1")
	t.Setenv("POD_NAMESPACE", "kube-system")
	guests, node, api := plugins(t), newNodeServer(t, nil), newHookServer(t, "identity", "normalization", "of-the-file")
	normalization := func(nodes, ratio string) string {
		return fmt.Sprintf(`{"module": {"file": %q}, "levels": ["Container"], "selector": {"qosClasses": ["Burstable"]}, "nodeSelector": %q, "owns": ["cfs_quota_us"], "guestConfig": {"ratioPercent": %s}}`, guests["/etc/kubewasm/plugins/cpu-normalization.wasm"], nodes, ratio)
	}
	identity := fmt.Sprintf(`{"module": {"file": %q}, "levels": ["QOS"], "owns": ["cpu_bvt"]}`, guests["/etc/kubewasm/plugins/group-identity.wasm"])
	api.specs[0].Store(&identity)
	api.specs[1].Store(new(normalization("pool=fast", "120")))
	api.specs[2].Store(new(normalization("pool=slow", "120")))
	file := filepath.Join(dir, "agent.yaml")
	text := fmt.Sprintf("cacheDir: %s\ncgroup: {root: %s}\nstandalone: {file: %s}\nnode: %s\ncluster: %s\nhttp: {address: '127.0.0.1:0'}\nplugins: [{name: of-the-file, module: {file: %s}, owns: [oom_score_adj], nodeSelector: pool=none}]\n",
		filepath.Join(dir, "cache"), root, list, node.config, api.config, guests["/etc/kubewasm/plugins/group-identity.wasm"])
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out := new(output)
	logger := slog.New(slog.NewTextHandler(out, nil))
	begin := func() (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- start(ctx, file, false, new(slog.LevelVar), logger) }()
		return func() {
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("the agent ended with %v", err)
			}
		}
	}
	until := func(what string, enough func() bool) {
		t.Helper()
		for start := time.Now(); !enough(); time.Sleep(5 * time.Millisecond) {
			if time.Since(start) > 30*time.Second {
				t.Fatalf("not yet: %s; the report is %v; the log is\n%s", what, api.report(t), out)
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
	reports := func(want map[string]string) {
		t.Helper()
		until(fmt.Sprintf("a report of %v", want), func() bool {
			got := api.report(t)
			for name, state := range want {
				if !strings.HasPrefix(got[name], state) || state == "" && got[name] != "" {
					return false
				}
			}
			return len(got) == len(want)
		})
	}
	const quota, bvt = "burstable/podb/bc/cpu.max", "besteffort/cpu.bvt_warp_ns"
	var nodeAway atomic.Bool
	node.Fault = func(w http.ResponseWriter, _ *http.Request) bool {
		if nodeAway.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		return nodeAway.Load()
	}
	stop := begin()
	inForce(quota, "100000 100000")
	inForce(bvt, "-1")
	taken := "1 Refused: the agent's file has a plugin of this name"
	reports(map[string]string{"identity": "1 Serving", "normalization": "1 Serving", "of-the-file": taken})

	// One that cannot be loaded, or read, stays as it was, and others change.
	api.set(1, strings.Replace(normalization("pool=fast", "150"), "cpu-normalization", "none", 1))
	reports(map[string]string{"identity": "1 Serving", "normalization": "2 Stale: ", "of-the-file": taken})
	inForce(quota, "100000 100000")
	api.set(1, `{"module": {"file": "a"}, "levels": ["Cluster"], "timeout": 5}`)
	api.set(0, strings.Replace(identity, `"levels"`, `"mode": "Monitor", "levels"`, 1))
	inForce(bvt, "0")
	reports(map[string]string{"identity": "2 Serving", "normalization": `3 Stale: `, "of-the-file": taken})
	inForce(quota, "100000 100000")
	api.set(0, strings.Replace(identity, `"cpu_bvt"`, `"cpu_bvt", "cfs_quota_us"`, 1))
	inForce(bvt, "-1")

	// It is repaired; then two decide one field, and the first by name does.
	api.set(1, normalization("pool=fast", "150"))
	api.set(0, identity)
	inForce(quota, "80000 100000")
	reports(map[string]string{"identity": "4 Serving", "normalization": "4 Serving", "of-the-file": taken})
	node.label(t, map[string]string{"pool": "other"})
	inForce(quota, "120000 100000")
	reports(map[string]string{"identity": "4 Serving", "of-the-file": taken})
	node.label(t, map[string]string{"pool": "fast"})
	inForce(quota, "80000 100000")

	// A restart while the API server is away: the labels of the node are kept, too.
	stop()
	api.away.Store(true)
	nodeAway.Store(true)
	if err := os.WriteFile(filepath.Join(root, "kubepods", bvt), []byte("0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	stop = begin()
	inForce(bvt, "-1")
	api.away.Store(false)
	nodeAway.Store(false)
	api.Delete("nodehooks", 0)
	inForce(bvt, "0")
	reports(map[string]string{"normalization": "4 Serving", "of-the-file": taken})

	// Its rollout: the controller says which revision serves here, and the agent whether it fails.
	const below = 1 << 32
	version := func(number int, ratio, owns string) string {
		spec := strings.Replace(normalization("pool=fast", ratio), "cfs_quota_us", owns, 1)
		return fmt.Sprintf(`{"revision": %d, "generation": %d, "spec": %s}`, number, 3+number, spec)
	}
	rollout := func(status string) {
		api.set(1, `{"module": {"file": "a"}, "rollout": {}}, "status": {"rollout": {`+status+`}}`)
	}
	one, two, bad := version(1, "150", "cfs_quota_us"), version(2, "120", "cfs_quota_us"), version(3, "120", "cpu_shares")
	rollout(fmt.Sprintf(`"stable": %s, "candidate": %s, "trial": 6, "step": 1`, one, two))
	reports(map[string]string{"normalization": "4 Serving", "of-the-file": taken})
	inForce(quota, "80000 100000")
	rollout(fmt.Sprintf(`"stable": %s, "candidate": %s, "trial": 6, "step": 1, "nodeSelectors": ["pool in (fast, faster)"]`, one, two))
	inForce(quota, "100000 100000")
	reports(map[string]string{"normalization": "5 Serving", "of-the-file": taken})
	// It comes back with what its step says, without the API server.
	stop()
	api.away.Store(true)
	if err := os.WriteFile(filepath.Join(root, "kubepods", quota), []byte("80000 100000\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	stop = begin()
	inForce(quota, "100000 100000")
	api.away.Store(false)
	// The next one fails on each container, and then the stable one serves again.
	rollout(fmt.Sprintf(`"stable": %s, "candidate": %s, "trial": 7, "step": 1, "below": %d, "failures": 1`, one, bad, below))
	until("a report of the failure", func() bool {
		for _, text := range api.Stored() {
			if strings.Contains(string(text), `"trial":7`) && strings.Contains(string(text), `"failing":"1 failed calls, the first: `) {
				return true
			}
		}
		return false
	})
	rollout(fmt.Sprintf(`"stable": %s, "failed": 3`, one))
	inForce(quota, "80000 100000")
	reports(map[string]string{"normalization": "4 Serving", "of-the-file": taken})

	// Its configuration in a Secret. A change serves without another generation, and none that is wrong.
	secret := func(data string) {
		api.secret.Store(&data)
		api.Change("secrets", 0)
	}
	ratio := func(percent string) string {
		return fmt.Sprintf(`{"config": %q}`, base64.StdEncoding.EncodeToString([]byte(`{"ratioPercent": `+percent+`}`)))
	}
	secret(ratio("120"))
	api.set(1, strings.Replace(normalization("pool=fast", "1"), `"guestConfig": {"ratioPercent": 1}`, `"guestConfigFrom": [{"secret": {"namespace": "team", "name": "ratio", "key": "config"}}]`, 1))
	inForce(quota, "100000 100000")
	reports(map[string]string{"normalization": "9 Serving", "of-the-file": taken})
	secret(ratio("150"))
	inForce(quota, "80000 100000")
	secret(`{}`)
	reports(map[string]string{"normalization": "9 Stale: guestConfigFrom[0].secret: Secret team/ratio has no key", "of-the-file": taken})
	secret(ratio(`"hunter22"`))
	reports(map[string]string{"normalization": "9 Stale: ", "of-the-file": taken})
	inForce(quota, "80000 100000")
	stop()
	kept, err := os.ReadFile(filepath.Join(dir, "cache", "nodehooks.json"))
	for where, text := range map[string]string{"report": fmt.Sprint(api.Stored()), "log": out.String(), "cache": string(kept)} {
		if err != nil || strings.Contains(text, "hunter22") || strings.Contains(text, `ratioPercent": "`) {
			t.Errorf("the %s tells a Secret (error %v):\n%s", where, err, text)
		}
	}
	secret(ratio("150"))

	// A check and a restoration know them, too, without a plugin of the file.
	alone := filepath.Join(dir, "alone.yaml")
	if err := os.WriteFile(alone, []byte(text[:strings.Index(text, "plugins:")]), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{"-check", "-restore"} {
		if err := run(t.Context(), []string{"-config", alone, mode}); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
	}
	inForce(quota, "120000 100000")
}
