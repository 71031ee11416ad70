package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/listserver"
	"github.com/kubewasm/kubewasm/internal/testkit/metricspage"
)

// TestMetricsPage scrapes a webhook with all that it may have, which has answered reviews, and holds
// its rows of docs/metrics.md.
func TestMetricsPage(t *testing.T) {
	for _, mode := range []struct {
		name    string
		args    []string
		buckets bool
	}{{"both kinds of histograms", nil, true}, {"native histograms only", []string{"-native-histograms-only"}, false}} {
		t.Run(mode.name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			page := scraped(t, registry, mode.args...)
			if got := strings.Contains(page, `kubewasm_admission_verdict_duration_seconds_bucket{policy="owner",webhook="validate",le="0.1"}`); got != mode.buckets {
				t.Errorf("there are classic buckets: %v, want %v", got, mode.buckets)
			}
			if !mode.buckets {
				return
			}
			series := metricspage.Check(t, "webhook", registry, "kubewasm_oci_source_stale", "kubewasm_oci_source_checked_timestamp_seconds", "kubewasm_oci_source_info",
				"kubewasm_admission_policy_override", "kubewasm_admission_objects_age_seconds", "kubewasm_audit_findings")
			t.Logf("%d series of two policies", series)
			for _, want := range []string{
				"kubewasm_config_applied 1", `kubewasm_plugin_state{plugin="owner",state="Serving"} 1`, `kubewasm_plugin_state{plugin="gone",state="Unavailable"} 1`,
				`kubewasm_plugin_fails_open{plugin="gone",reason="Ignore"} 1`, `kubewasm_plugin_fails_open{plugin="gone",reason="Monitor"} 1`,
				`kubewasm_admission_verdicts_total{mode="Enforce",policy="owner",verdict="deny",webhook="validate"} 1`,
			} {
				if !strings.Contains(page, want+"\n") {
					t.Errorf("the scrape has no %s", want)
				}
			}
		})
	}
}

// scraped starts a webhook with two policies, one of which has no module, and returns its metrics
// after a review.
func scraped(t *testing.T, registry *prometheus.Registry, args ...string) string {
	t.Helper()
	cluster := httptest.NewServer(listserver.New(&listserver.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, Kind: "Namespace"}))
	t.Cleanup(cluster.Close)
	t.Cleanup(cluster.CloseClientConnections)
	guest, err := guestbuild.Build(t.Context(), "../../examples/admission/required-labels")
	if err != nil {
		t.Fatal(err)
	}
	dir, addr := t.TempDir(), freeAddress(t)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: certificate(t, dir)}}, Timeout: 30 * time.Second}
	t.Cleanup(client.CloseIdleConnections)
	const match = "match: {rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]}"
	for name, text := range map[string]string{
		"kubeconfig": fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: '%s'}}], contexts: [{name: c, context: {cluster: c}}]}`, cluster.URL),
		"file": fmt.Sprintf(`
plugins:
- {name: owner, module: {file: %s}, guestConfig: {labels: [owner]}, %s}
- {name: gone, module: {file: /nowhere.wasm}, failurePolicy: Ignore, mode: Monitor, %s}
`, guest, match, match),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	startWith(t, client, addr, registry, append(args, "-cert", filepath.Join(dir, "tls.crt"), "-key", filepath.Join(dir, "tls.key"), "-config", filepath.Join(dir, "file"),
		"-kubeconfig", filepath.Join(dir, "kubeconfig"), "-cluster", "-audit-interval", "24h", "-audit-reports=false", "-ready-timeout", "1ms")...)
	scrape := func() string {
		t.Helper()
		resp, err := client.Get("https://" + addr + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("GET /metrics is %s, error %v", resp.Status, err)
		}
		return string(body)
	}
	for deadline := time.Now().Add(5 * time.Minute); !strings.Contains(scrape(), "kubewasm_config_applied 1\n"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the policies are not applied")
		}
	}
	review := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE","kind":{"group":"","version":"v1","kind":"Pod"},` +
		`"resource":{"group":"","version":"v1","resource":"pods"},"namespace":"shop","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"}}}}`
	resp, err := client.Post("https://"+addr+"/validate", "application/json", strings.NewReader(review))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return scrape()
}
