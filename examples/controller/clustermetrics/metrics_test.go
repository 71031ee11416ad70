package clustermetrics

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/kubewasm/kubewasm/examples/controller/scaler"
)

// answers are what a cluster answers, by path and selector.
var answers = map[string]string{
	"/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods app=web": `{"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "items": [
		{"metadata": {"name": "web-1"}, "timestamp": "2026-07-02T07:30:00Z", "window": "15s", "containers": [{"name": "a", "usage": {"cpu": "250m", "memory": "1Mi"}}, {"name": "b", "usage": {"cpu": "1", "memory": "1Ki"}}]},
		{"metadata": {"name": "web-2"}, "containers": []}]}`,
	"/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/queue_length queue=mail": `{"kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1", "items": [
		{"metricName": "queue_length", "value": "1500m"}, {"metricName": "queue_length", "value": "7"}]}`,
}

func newMetrics(t *testing.T) (*Metrics, *[]string) {
	t.Helper()
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		answer, ok := answers[r.URL.Path+" "+r.URL.Query().Get("labelSelector")]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, answer)
	}))
	t.Cleanup(server.Close)
	m, err := New(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return m, &asked
}

func TestPodUsage(t *testing.T) {
	m, _ := newMetrics(t)
	got, err := m.PodUsage(t.Context(), "shop", labels.SelectorFromSet(labels.Set{"app": "web"}))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]scaler.Usage{"web-1": {CpuMillis: 1250, MemoryBytes: 1<<20 + 1<<10, UnixSeconds: 1_782_977_400, WindowMillis: 15_000}, "web-2": {}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("usage (-want +got):\n%s", diff)
	}
}

func TestQuery(t *testing.T) {
	m, asked := newMetrics(t)
	got, err := m.Query(t.Context(), "shop", "queue_length", map[string]string{"queue": "mail"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]float64{1.5, 7}, got); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
	// A guest chooses the name and the labels: they lead nowhere else.
	*asked = nil
	for _, name := range []string{"../../../../../api/v1/namespaces/kube-system/secrets", "..", "a/b", "a%2fb", ""} {
		if got, err := m.Query(t.Context(), "shop", name, nil); err == nil {
			t.Errorf("metric %q: %v", name, got)
		}
	}
	if _, err := m.Query(t.Context(), "shop", "queue_length", map[string]string{"a b": "c"}); err == nil {
		t.Error("a label that is none was asked for")
	}
	for _, path := range *asked {
		if !strings.HasPrefix(path, "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop") {
			t.Errorf("asked for %s", path)
		}
	}
}
