package clustercache_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kubewasm/kubewasm/admission/webhook/clustercache"
	"github.com/kubewasm/kubewasm/host"
)

// TestMetrics keeps objects of metrics.k8s.io and values of a query, which have no watch.
func TestMetrics(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/apis/metrics.k8s.io/v1beta1/nodes":
			fmt.Fprint(w, `{"kind": "NodeMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "items": [{"metadata": {"name": "n1"}, "usage": {"cpu": "250m"}}]}`)
		case "/api/v1/namespaces/monitoring/services/prometheus:9090/proxy/api/v1/query":
			fmt.Fprint(w, `{"status": "success", "data": {"resultType": "vector", "result": [{"metric": {"node": "n1"}, "value": [1785000000, "0.5"]}]}}`)
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	c, err := clustercache.NewForConfig(t.Context(), &rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	load := schema.GroupVersionResource{Group: "metrics.kubewasm.dev", Version: "v1", Resource: "load"}
	byNode := host.ObjectQuery{Prometheus: "load", Service: "monitoring/prometheus:9090", Name: "node"}
	for _, test := range []struct {
		resource schema.GroupVersionResource
		query    host.ObjectQuery
		want     string
	}{
		{schema.GroupVersionResource{Group: "metrics.k8s.io", Version: "v1beta1", Resource: "nodes"}, host.ObjectQuery{}, `{"apiVersion":"metrics.k8s.io/v1beta1","kind":"NodeMetrics","metadata":{"name":"n1"},"usage":{"cpu":"250m"}}`},
		{load, byNode, `{"apiVersion":"metrics.kubewasm.dev/v1","kind":"load","metadata":{"labels":{"node":"n1"},"name":"n1"},"timestamp":"2026-07-25T17:20:00Z","value":0.5}`},
	} {
		kept := c.Keep(test.resource, "", test.query)
		if err := kept.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		list, err := kept.Snapshot()
		if err != nil || len(list) != 1 {
			t.Fatalf("got %v, %v", list, err)
		}
		if diff := cmp.Diff(test.want, string(list[0].JSON)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.resource, diff)
		}
		kept.Close()
	}
	without, _ := cluster(t.Context())
	if list, err := without.Keep(load, "", byNode).Snapshot(); err == nil || err.Error() != "the program has no client for queries" {
		t.Errorf("got %v, %v", list, err)
	}
}
