package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultbinder"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/queuesort"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	schedulermetrics "k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/hostmetrics"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
	_ "github.com/kubewasm/kubewasm/internal/testkit/guarded"
	"github.com/kubewasm/kubewasm/internal/testkit/metricspage"
	"github.com/kubewasm/kubewasm/sched"
	kube "github.com/kubewasm/kubewasm/sched/kube137"
)

// TestMetricsPage has two profiles of the scheduler's framework with a plugin of one name. It holds
// the program's rows of docs/metrics.md, and that no series is the sum of both plugins.
func TestMetricsPage(t *testing.T) {
	guest, err := guestbuild.Build(t.Context(), "../../examples/sched/zone")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "scheduler.yaml")
	text := fmt.Sprintf(`
profiles:
- pluginConfig:
  - {name: zone, args: {module: {file: %[1]s}}}
- schedulerName: gpu
  pluginConfig:
  - {name: zone, args: {module: {file: %[1]s}, failurePolicy: Ignore}}
`, guest)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := read([]string{"--config", file})
	if err != nil {
		t.Fatal(err)
	}
	rt, err := host.NewRuntime(compiled.Config())
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.Background())
	artifacts, err := oci.New(oci.Config{})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	schedulermetrics.Register()
	metrics := o.register(registry, rt, artifacts)
	for profile, calls := range map[string]int{"default-scheduler": 1, "gpu": 2} {
		schedule(t, profile, guest, rt, metrics, calls)
	}
	series := metricspage.Check(t, "scheduler", registry, "kubewasm_oci_source_stale", "kubewasm_oci_source_checked_timestamp_seconds", "kubewasm_oci_source_info")
	t.Logf("%d series of two plugins", series)
	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, want := range []string{
		`kubewasm_calls_total{function="filter",plugin="default-scheduler/zone",result="ok"} 1`,
		`kubewasm_calls_total{function="filter",plugin="gpu/zone",result="ok"} 2`,
		`kubewasm_builds_total{kind="load",plugin="default-scheduler/zone",result="ok"} 1`,
		`kubewasm_builds_total{kind="load",plugin="gpu/zone",result="ok"} 1`,
		`kubewasm_plugin_state{plugin="default-scheduler/zone",state="Serving"} 1`,
		`kubewasm_plugin_state{plugin="gpu/zone",state="Serving"} 1`,
		`kubewasm_plugin_fails_open{plugin="gpu/zone",reason="Ignore"} 1`,
		`kubewasm_config_applied 1`,
	} {
		if !strings.Contains(page.Body.String(), want+"\n") {
			t.Errorf("the scrape has no %s", want)
		}
	}
	if strings.Contains(page.Body.String(), `plugin="zone"`) {
		t.Error("a series does not tell the plugins apart")
	}
}

// TestNativeHistogramsOnly registers the metrics of a program without classic buckets.
func TestNativeHistogramsOnly(t *testing.T) {
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.Background())
	artifacts, err := oci.New(oci.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]bool{"--v=2": true, "--native-histograms-only": false} {
		o, err := read([]string{args})
		if err != nil {
			t.Fatal(err)
		}
		registry := prometheus.NewRegistry()
		o.register(registry, rt, artifacts).Called(t.Context(), host.CallEvent{Plugin: "a/p", Function: "filter"})
		page := httptest.NewRecorder()
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		if got := strings.Contains(page.Body.String(), `kubewasm_call_duration_seconds_bucket{function="filter",plugin="a/p",le="0.1"}`); got != want {
			t.Errorf("with %s there are classic buckets: %v, want %v", args, got, want)
		}
	}
}

// schedule has a profile filter a node for some Pods.
func schedule(t *testing.T, profile, guest string, rt *host.Runtime, metrics *hostmetrics.Collector, pods int) {
	t.Helper()
	enabled := func(name string) config.PluginSet {
		return config.PluginSet{Enabled: []config.Plugin{{Name: name}}}
	}
	registry := frameworkruntime.Registry{"zone": kube.New("zone", rt, func(c *sched.PluginConfig) { c.Observer = metrics }), queuesort.Name: queuesort.New, defaultbinder.Name: defaultbinder.New}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{corev1.LabelTopologyZone: "a"}}}
	snapshot := cache.NewSnapshot(nil, []*corev1.Node{node})
	f, err := frameworkruntime.NewFramework(t.Context(), registry, &config.KubeSchedulerProfile{
		SchedulerName: profile,
		Plugins:       &config.Plugins{QueueSort: enabled(queuesort.Name), Bind: enabled(defaultbinder.Name), MultiPoint: enabled("zone")},
		PluginConfig:  []config.PluginConfig{{Name: "zone", Args: &runtime.Unknown{Raw: fmt.Appendf(nil, `{"module": {"file": %q}}`, guest)}}},
	}, frameworkruntime.WithSnapshotSharedLister(snapshot))
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := snapshot.NodeInfos().List()
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("pod-", i), UID: "u", Annotations: map[string]string{"kubewasm.dev/zones": "a"}}}
		state := framework.NewCycleState()
		if _, status, _ := f.RunPreFilterPlugins(t.Context(), state, pod); !status.IsSuccess() && !status.IsSkip() {
			t.Fatal(status)
		}
		if status := f.RunFilterPlugins(t.Context(), state, pod, nodes[0]); status != nil && !status.IsSuccess() && !status.IsRejected() {
			t.Fatal(status)
		}
	}
}
