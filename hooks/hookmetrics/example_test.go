package hookmetrics_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/hookmetrics"
)

// What becomes of decisions is in the metrics of an agent.
func Example() {
	metrics := hookmetrics.New(new(cgroup.State))
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)
	// The enforcer does this.
	metrics.Enforced(context.Background(), cgroup.Report{Drifted: []cgroup.Change{{Field: hookmsg.FieldCPUShares}}})

	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, `kubewasm_hooks_drifts_total{field="cpu_shares"}`) {
			fmt.Print(line)
		}
	}
	// Output:
	// kubewasm_hooks_drifts_total{field="cpu_shares"} 1
}
