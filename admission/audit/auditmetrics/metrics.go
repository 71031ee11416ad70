// Package auditmetrics counts the findings of audits for Prometheus.
//
//	metrics := auditmetrics.New()
//	prometheus.MustRegister(metrics)
//	…
//	result, err := auditor.Run(ctx)
//	metrics.Ran(result, err)
//
// The metrics are:
//
//	kubewasm_audit_runs_total                  result          runs, by result
//	kubewasm_audit_asked_total                                 questions to policies
//	kubewasm_audit_requests_total                              requests to the API server
//	kubewasm_audit_reports_total               change          reports, by the change made
//	kubewasm_audit_objects                                     audited objects
//	kubewasm_audit_findings                    policy, result  findings of the last run
//	kubewasm_audit_last_run_duration_seconds                   duration of the last run
//	kubewasm_audit_last_run_timestamp_seconds                  end of the last run
//
// The result of a run is ok, incomplete if not everything could be audited, or error. The result of
// a finding is fail, warn or error.
package auditmetrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubewasm/kubewasm/admission/audit"
	"github.com/kubewasm/kubewasm/internal/cut"
)

// Metrics counts runs. It is safe for use by several goroutines.
type Metrics struct {
	runs, reports                   *prometheus.CounterVec
	asked, requests                 prometheus.Counter
	findings                        *prometheus.GaugeVec
	objects, duration, lastFinished prometheus.Gauge
}

// New returns metrics whose counters are zero.
func New() *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubewasm_audit_" + name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubewasm_audit_" + name, Help: help}, labels)
	}
	return &Metrics{
		runs:         counter("runs_total", "Audits, by result.", "result"),
		asked:        counter("asked_total", "Questions of audits to policies.").WithLabelValues(),
		requests:     counter("requests_total", "Requests of audits to the API server, without those for reports.").WithLabelValues(),
		reports:      counter("reports_total", "Reports of audits, by operation.", "change"),
		objects:      gauge("objects", "Objects with results in the last audit.").WithLabelValues(),
		findings:     gauge("findings", "Findings of policies about objects in the last audit.", "policy", "result"),
		duration:     gauge("last_run_duration_seconds", "Duration of the last audit.").WithLabelValues(),
		lastFinished: gauge("last_run_timestamp_seconds", "End of the last audit, in seconds since 1970.").WithLabelValues(),
	}
}

// Ran counts a run by the results of [audit.Auditor.Run].
func (m *Metrics) Ran(result *audit.Result, err error) {
	if err != nil {
		m.runs.WithLabelValues("error").Inc()
		return
	}
	word := "ok"
	if !result.Complete() {
		word = "incomplete"
	}
	m.runs.WithLabelValues(word).Inc()
	m.asked.Add(float64(result.Asked))
	m.requests.Add(float64(result.Requests))
	m.objects.Set(float64(result.Objects))
	m.duration.Set(result.Duration.Seconds())
	m.lastFinished.Set(float64(result.Start.Add(result.Duration.Duration).UnixMilli()) / float64(time.Second/time.Millisecond))
	m.findings.Reset() // Drops those of removed policies.
	for i := range result.Policies {
		p := &result.Policies[i]
		for outcome, n := range map[audit.Outcome]int{audit.Denied: p.Denied, audit.Patched: p.Patched, audit.Failed: p.Failed} {
			m.findings.WithLabelValues(cut.Valid(p.Name), string(outcome)).Set(float64(n))
		}
	}
}

// Wrote counts reports by the result of [audit.Reporter.Write].
func (m *Metrics) Wrote(w audit.Written) {
	m.reports.WithLabelValues("applied").Add(float64(w.Applied))
	m.reports.WithLabelValues("unchanged").Add(float64(w.Unchanged))
	m.reports.WithLabelValues("deleted").Add(float64(w.Deleted))
}

func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.runs, m.asked, m.requests, m.reports, m.objects, m.findings, m.duration, m.lastFinished}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(to)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(to)
	}
}
