package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/internal/testkit/listserver"
	"github.com/kubewasm/kubewasm/internal/testkit/metricspage"
)

// TestNativeHistogramsOnly scrapes a server without classic buckets.
func TestNativeHistogramsOnly(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string][]byte{"allow.wasm": saying(t, `{"accepted":true}`), "policies.yml": fmt.Appendf(nil, `{"clusterwide-allow": {"module": "file://%s/allow.wasm"}}`, dir)} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	env := map[string]string{
		"KUBEWARDEN_BIND_ADDRESS": "127.0.0.1", "KUBEWARDEN_PORT": freePort(t), "KUBEWARDEN_READINESS_PROBE_PORT": freePort(t), "KUBEWASM_DRAIN_DELAY": "0s",
		"KUBEWARDEN_POLICIES": filepath.Join(dir, "policies.yml"), "KUBEWARDEN_POLICIES_DOWNLOAD_DIR": dir, "KUBEWASM_NATIVE_HISTOGRAMS_ONLY": "yes",
	}
	registry := prometheus.NewRegistry()
	startWith(t, env, registry)
	if got, err := post(http.DefaultClient, "http://127.0.0.1:"+env["KUBEWARDEN_PORT"]+"/validate/clusterwide-allow"); err != nil || got != "allowed" {
		t.Errorf("the policy answers %q, error %v", got, err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, f := range families {
		for _, m := range f.Metric {
			if h := m.Histogram; h != nil && strings.HasPrefix(f.GetName(), "kubewasm_") {
				if found++; len(h.Bucket) != 0 || h.Schema == nil {
					t.Errorf("%s has %d classic buckets", f.GetName(), len(h.Bucket))
				}
			}
		}
	}
	if found == 0 {
		t.Error("there are no histograms")
	}
}

// TestMetricsPage scrapes a server with policies of each kind, which has answered reviews, and holds
// its rows of docs/metrics.md.
func TestMetricsPage(t *testing.T) {
	cluster := httptest.NewServer(listserver.New(&listserver.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, Kind: "Namespace"}))
	t.Cleanup(cluster.Close)
	t.Cleanup(cluster.CloseClientConnections)
	dir := t.TempDir()
	file := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	allow, deny := file("allow.wasm", saying(t, `{"accepted":true}`)), file("deny.wasm", saying(t, `{"accepted":false,"code":418}`))
	t.Setenv("KUBECONFIG", file("kubeconfig", fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: '%s'}}], contexts: [{name: c, context: {cluster: c}}]}`, cluster.URL)))
	policies := file("policies.yml", fmt.Appendf(nil, `{
	"clusterwide-allow": {"module": "file://%[1]s"}, "clusterwide-monitor": {"module": "file://%[1]s", "policyMode": "monitor"},
	"clusterwide-deny": {"module": "file://%[2]s"}, "clusterwide-absent": {"module": "file:///nowhere.wasm"}}`, allow, deny))
	env := map[string]string{
		"KUBEWARDEN_BIND_ADDRESS": "127.0.0.1", "KUBEWARDEN_PORT": freePort(t), "KUBEWARDEN_READINESS_PROBE_PORT": freePort(t), "KUBEWASM_DRAIN_DELAY": "0s",
		"KUBEWASM_READY_TIMEOUT": "100ms", "KUBEWARDEN_POLICIES": policies, "KUBEWARDEN_POLICIES_DOWNLOAD_DIR": dir,
	}
	registry := prometheus.NewRegistry()
	startWith(t, env, registry)
	for policy, want := range map[string]string{"allow": "allowed", "monitor": "allowed", "deny": ""} {
		if got, err := post(http.DefaultClient, "http://127.0.0.1:"+env["KUBEWARDEN_PORT"]+"/validate/clusterwide-"+policy); err != nil || got != want {
			t.Errorf("%s answers %q, error %v, want %q", policy, got, err, want)
		}
	}
	// OpenTelemetry's metrics describe no labels: these are the rest of them.
	telemetry, rest := newTestTelemetry(t)
	telemetry.Loaded("other", errors.New("gone"))
	failed := evaluated("other", "Pod", "shop", false)
	failed.Initialization = errors.New("gone")
	telemetry.Evaluated(t.Context(), failed)
	dropped := evaluated("other", "Pod", "shop", false)
	dropped.Dropped = true
	telemetry.Evaluated(t.Context(), dropped)
	coded := evaluated("other", "Pod", "shop", false)
	coded.Code = 418
	telemetry.Evaluated(t.Context(), coded)

	metricspage.Check(t, "policy-server", struct {
		prometheus.Gatherers
		prometheus.Collector
	}{prometheus.Gatherers{registry, rest}, registry}, "kubewasm_admission_objects_age_seconds", "kubewasm_oci_source_stale", "kubewasm_oci_source_checked_timestamp_seconds", "kubewasm_oci_source_info")

	resp, err := http.Get("http://127.0.0.1:" + env["KUBEWARDEN_READINESS_PROBE_PORT"] + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("GET /metrics is %s, error %v", resp.Status, err)
	}
	series := 0
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "kubewasm_") || strings.HasPrefix(line, "kubewarden_") {
			series++
		}
	}
	t.Logf("%d series of four policies", series)
	for _, want := range []string{
		"kubewasm_config_applied 1", `kubewasm_plugin_state{plugin="clusterwide-deny",state="Serving"} 1`, `kubewasm_plugin_state{plugin="clusterwide-absent",state="Unavailable"} 1`,
		`kubewasm_plugin_fails_open{plugin="clusterwide-monitor",reason="Monitor"} 1`,
	} {
		if !strings.Contains(string(page), want+"\n") {
			t.Errorf("the scrape has no %s", want)
		}
	}
}
