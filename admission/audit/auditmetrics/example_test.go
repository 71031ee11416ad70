package auditmetrics_test

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/admission/audit"
	"github.com/kubewasm/kubewasm/admission/audit/auditmetrics"
)

// A run that has found three objects is counted.
func Example() {
	metrics := auditmetrics.New()
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)
	metrics.Ran(&audit.Result{
		Start: time.Unix(0, 0), Duration: metav1.Duration{Duration: 2 * time.Second}, Objects: 5000, Asked: 50, Requests: 9,
		Policies: []audit.PolicyResult{{Name: "required-labels", Passed: 4997, Denied: 3}},
	}, nil)
	metrics.Wrote(audit.Written{Applied: 1})
	families, err := registry.Gather()
	if err != nil {
		panic(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			value := m.GetGauge().GetValue() + m.GetCounter().GetValue()
			if value == 0 {
				continue
			}
			fmt.Print(family.GetName())
			for _, l := range m.GetLabel() {
				fmt.Printf(" %s=%s", l.GetName(), l.GetValue())
			}
			fmt.Println(" ", value)
		}
	}
	// Output:
	// kubewasm_audit_asked_total  50
	// kubewasm_audit_findings policy=required-labels result=fail  3
	// kubewasm_audit_last_run_duration_seconds  2
	// kubewasm_audit_last_run_timestamp_seconds  2
	// kubewasm_audit_objects  5000
	// kubewasm_audit_reports_total change=applied  1
	// kubewasm_audit_requests_total  9
	// kubewasm_audit_runs_total result=ok  1
}
