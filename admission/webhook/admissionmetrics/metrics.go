// Package admissionmetrics counts the decisions of an admission engine's policies, for Prometheus.
//
// A [Metrics] is the Observer of policies, a wrapper for the handlers of a server,
// and a collector of a registry:
//
//	metrics := admissionmetrics.New()
//	prometheus.MustRegister(metrics)
//	plugin, err := admission.Load(ctx, rt, admission.PluginConfig{
//		PolicyRules: admission.PolicyRules{Observer: metrics}, …
//	})
//
// The metrics are:
//
//	kubewasm_admission_verdicts_total            policy, webhook, mode, verdict  verdicts of policies
//	kubewasm_admission_late_verdicts_total       policy, webhook, verdict        verdicts after the answer
//	kubewasm_admission_patches_total             policy                          changes of objects
//	kubewasm_admission_verdict_duration_seconds  policy, webhook                 duration of verdicts
//	kubewasm_admission_requests_total            webhook, code                   requests to a handler
//	kubewasm_admission_request_duration_seconds  webhook                         duration of requests
//	kubewasm_admission_body_bytes                                                memory of bodies now
//	kubewasm_admission_panics_total                                              faults of the server
//
// [NewCluster] collects the age of objects that policies look up in a cluster:
//
//	kubewasm_admission_objects_age_seconds  resource, object_namespace  time without a watch, 0 while watched
//
// [NewManager] collects the changes of the management API, and declares the policies to a collector
// of package hostmetrics, which has their state:
//
//	kubewasm_admission_policy_override  policy, override  1 while the API overrides the file
//
// webhook is validate, mutate or convert, verdict allow, deny or error. No label holds text of a
// guest or a client. Package hostmetrics counts calls of guests.
package admissionmetrics

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/hostmetrics"
	"github.com/kubewasm/kubewasm/internal/cut"
)

// Metrics counts verdicts and requests. It is safe for use by several goroutines.
type Metrics struct {
	verdicts, patches, requests, late *prometheus.CounterVec
	verdictTime, requestTime          *prometheus.HistogramVec
	panics                            prometheus.Counter
	bodyBytes                         prometheus.GaugeFunc
	bodies                            atomic.Pointer[admission.Bodies]
}

// buckets range from the verdict of a small guest to the longest timeout of a webhook, in seconds.
var buckets = []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// New returns metrics whose counters are zero.
func New() *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubewasm_admission_" + name, Help: help}, labels)
	}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return hostmetrics.NewHistogram("kubewasm_admission_"+name, help, buckets, labels...)
	}
	m := &Metrics{
		verdicts:    counter("verdicts_total", "Verdicts of policies.", "policy", "webhook", "mode", "verdict"),
		late:        counter("late_verdicts_total", "Verdicts of monitoring policies after the response. The verdict is dropped if the policy was not asked or did not finish.", "policy", "webhook", "verdict"),
		patches:     counter("patches_total", "Changes of objects by policies.", "policy"),
		requests:    counter("requests_total", "Requests to the webhook, by HTTP status code.", "webhook", "code"),
		verdictTime: histogram("verdict_duration_seconds", "Duration of policy evaluations.", "policy", "webhook"),
		requestTime: histogram("request_duration_seconds", "Duration of requests.", "webhook"),
		panics:      prometheus.NewCounter(prometheus.CounterOpts{Name: "kubewasm_admission_panics_total", Help: "Recovered panics."}),
	}
	m.bodyBytes = prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "kubewasm_admission_body_bytes", Help: "Memory used by request bodies."}, func() float64 {
		if b := m.bodies.Load(); b != nil {
			return float64(b.Held())
		}
		return 0
	})
	return m
}

// ShowBodies adds the memory of bodies to the metrics.
func (m *Metrics) ShowBodies(b *admission.Bodies) { m.bodies.Store(b) }

func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.verdicts, m.late, m.patches, m.requests, m.verdictTime, m.requestTime, m.panics, m.bodyBytes}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(ch)
	}
}

// Decided implements admission.Observer.
func (m *Metrics) Decided(_ context.Context, d admission.Decision) {
	webhook := "validate"
	switch {
	case d.Mutating:
		webhook = "mutate"
	case d.Converting:
		webhook = "convert"
	}
	policy := cut.Valid(d.Policy)
	m.verdicts.WithLabelValues(policy, webhook, string(cmp.Or(d.Mode, host.Enforce)), string(d.Verdict)).Inc()
	if d.Late {
		m.late.WithLabelValues(policy, webhook, string(d.Verdict)).Inc()
	}
	if d.Verdict == admission.Dropped {
		return
	}
	m.verdictTime.WithLabelValues(policy, webhook).Observe(d.Duration.Seconds())
	if d.Patched {
		m.patches.WithLabelValues(policy).Inc()
	}
}

// Forget drops the series of a removed policy.
func (m *Metrics) Forget(policy string) {
	labels := prometheus.Labels{"policy": cut.Valid(policy)}
	m.verdicts.DeletePartialMatch(labels)
	m.late.DeletePartialMatch(labels)
	m.patches.DeletePartialMatch(labels)
	m.verdictTime.DeletePartialMatch(labels)
}

// Panicked counts a panic; it is for admission.Handler.Panicked.
func (m *Metrics) Panicked() { m.panics.Inc() }

// Wrap returns h, counting its requests under the name of a webhook.
func (m *Metrics) Wrap(webhook string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start, recorder := time.Now(), &recorder{ResponseWriter: w, code: http.StatusOK}
		h.ServeHTTP(recorder, r)
		m.requests.WithLabelValues(webhook, strconv.Itoa(recorder.code)).Inc()
		m.requestTime.WithLabelValues(webhook).Observe(time.Since(start).Seconds())
	})
}

// recorder notes the code of an answer.
type recorder struct {
	http.ResponseWriter
	code int
}

func (r *recorder) WriteHeader(code int) {
	r.code = code
	r.ResponseWriter.WriteHeader(code)
}

// Unwrap is for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
