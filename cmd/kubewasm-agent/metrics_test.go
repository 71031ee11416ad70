package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/internal/testkit/metricspage"
)

// TestMetricsPage holds the rows of docs/metrics.md for an agent with all that it may have.
func TestMetricsPage(t *testing.T) {
	a := everything(t, "")
	metricspage.Check(t, "agent", a.registry, "kubewasm_oci_source_stale", "kubewasm_oci_source_checked_timestamp_seconds", "kubewasm_oci_source_info",
		"kubewasm_plugin_retired_versions", "kubewasm_plugin_instances_held", "kubewasm_plugin_isolated", "kubewasm_plugin_isolation_missing")
}

// everything returns an agent with all modes, that has worked. more is for the section http.
func everything(t *testing.T, more string) *agent {
	t.Helper()
	api, guest := newNodeServer(t, nil), plugins(t)["/etc/kubewasm/plugins/group-identity.wasm"]
	root, list := tree(t), filepath.Join(t.TempDir(), "pods.yaml")
	if err := os.WriteFile(list, []byte(pods), 0o644); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`
cacheDir: %s
cgroup: {root: %s, driver: cgroupfs}
http: {address: '127.0.0.1:0'%s}
node: %s
events: %s
cluster: %s
standalone: {file: %s}
nri: {socket: %s}
runtimeHook: {socket: %s}
plugins:
- {name: identity, module: {file: %s}, levels: [QOS, Pod], failurePolicy: KeepLast}
- {name: away, module: {file: /nowhere.wasm}, failurePolicy: Ignore, mode: Monitor}
`, t.TempDir(), root, more, api.config, strings.Replace(api.config, "name: node-1, ", "", 1), newHookServer(t).config, list, filepath.Join(t.TempDir(), "nri.sock"), filepath.Join(t.TempDir(), "hook.sock"), guest)
	cfg, err := parseConfig("agent.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	cfg.standIn = true
	hooks, unfollow, err := followHooks(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(unfollow)
	cfg.hooks = hooks
	a, err := newAgent(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.close(); err != nil {
			t.Error(err)
		}
	})
	req := &hookmsg.Request{Stage: abi.PreRunPodSandbox, Level: abi.LevelPod, QOSClass: abi.QOSBestEffort, Pod: hookmsg.PodMeta{Namespace: "shop", Name: "web", UID: "u1"}}
	if _, err := a.engine.Decide(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	a.state.Put(cgroup.Target{Cgroup: "kubepods/podg", PodUID: "g", Level: abi.LevelPod, Resources: &hookmsg.Resources{CPUBvt: new(int64(2))}})
	a.enforcer.Enforce(t.Context())
	return a
}

// TestNativeHistogramsOnly scrapes an agent without classic buckets.
func TestNativeHistogramsOnly(t *testing.T) {
	for more, want := range map[string]bool{"": true, ", nativeHistogramsOnly: true": false} {
		a := everything(t, more)
		page := httptest.NewRecorder()
		promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		for _, name := range []string{"kubewasm_call_duration_seconds", "kubewasm_hooks_decision_duration_seconds"} {
			if got := strings.Contains(page.Body.String(), name+`_bucket{`) && strings.Contains(page.Body.String(), `le="0.1"`); got != want {
				t.Errorf("with %q, %s has classic buckets: %v, want %v", more, name, got, want)
			}
			if !strings.Contains(page.Body.String(), name+"_count") {
				t.Errorf("with %q, there is no %s", more, name)
			}
		}
	}
}
