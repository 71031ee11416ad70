package admissionmetrics_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/webhook/admissionmetrics"
)

// What policies decide is in the metrics of the server.
func Example() {
	metrics := admissionmetrics.New()
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)
	metrics.Decided(context.Background(), admission.Decision{Policy: "required-labels", Verdict: admission.Denied})

	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "kubewasm_admission_verdicts_total") {
			fmt.Print(line)
		}
	}
	// Output:
	// kubewasm_admission_verdicts_total{mode="Enforce",policy="required-labels",verdict="deny",webhook="validate"} 1
}
