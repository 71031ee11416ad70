// Package hookmetrics counts decisions of runtime hooks and their effects, for Prometheus.
//
// A [Metrics] is the Observer of an engine and of an enforcer, and a collector of a
// registry:
//
//	metrics := hookmetrics.New(state)
//	prometheus.MustRegister(metrics)
//	engine, err := hooks.NewEngine(ctx, rt, hooks.Config{Observer: metrics, …})
//	enforcer, err := cgroup.NewEnforcer(cgroup.EnforcerConfig{State: state, Applier: applier, Observer: metrics})
//
// The metrics are:
//
//	kubewasm_hooks_decisions_total            stage, result         merged decisions
//	kubewasm_hooks_decision_duration_seconds                        their duration
//	kubewasm_hooks_failures_total             plugin, policy, cause failures of plugins
//	kubewasm_hooks_writes_total               field                 writes to files of cgroups
//	kubewasm_hooks_drifts_total               field                 values changed by another writer
//	kubewasm_hooks_repairs_total              field                 repaired values
//	kubewasm_hooks_contended_total            field                 files left to another writer
//	kubewasm_hooks_refusals_total             cause                 values refused by the kernel
//	kubewasm_hooks_files_compared_total                             compared files
//	kubewasm_hooks_pass_duration_seconds                            duration of passes over cgroups
//	kubewasm_hooks_cgroups                                          cgroups with a desired state
//	kubewasm_hooks_files_left_alone           reason                files not written for now
//	kubewasm_hooks_started_undecided                                containers that at first ran without a decision
//
// The result of a decision is one of
//
//	decided   it sets something
//	nothing   it sets nothing
//	failed    a plugin with the policy Fail failed
//	timeout   the caller's deadline passed
//	canceled  the caller canceled
//
// The policy of a failure is that of the plugin, or Monitor, and its cause is one of
// [hooks.CauseOf]. The reason that a file is left alone is contended or refused. A drift that is
// not a repair was found by a dry run.
//
// A field is a field of hook.proto; a quota with its period counts as one. Its series appear, as 0,
// with the first scrape after a decision sets it. No label is chosen by a guest or a pod: the
// configuration names the plugins. Package hostmetrics counts the calls of guests.
package hookmetrics

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/hostmetrics"
	"github.com/kubewasm/kubewasm/internal/cut"
)

// Metrics counts decisions and passes. It is safe for use by several goroutines.
type Metrics struct {
	decisions, failures, writes, drifts, repairs, contended, refusals *prometheus.CounterVec
	files                                                             prometheus.Counter
	decisionTime, passTime                                            *prometheus.HistogramVec
	leftAlone                                                         *prometheus.GaugeVec
	cgroups, undecided                                                prometheus.GaugeFunc

	state *cgroup.State
}

var (
	_ hooks.Observer       = (*Metrics)(nil)
	_ prometheus.Collector = (*Metrics)(nil)
)

// buckets range, in seconds, from the decision of a small guest, or a check of a few files, to
// beyond the timeout of a runtime.
var buckets = []float64{1e-4, 1e-3, 1e-2, 0.1, 0.3, 1, 3}

// New returns metrics whose counters are zero. state is the State whose cgroups are counted; nil
// counts none.
func New(state *cgroup.State) *Metrics {
	const prefix = "kubewasm_hooks_"
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, labels)
	}
	m := &Metrics{
		decisions:    counter("decisions_total", "Combined decisions of all plugins, by result.", "stage", "result"),
		failures:     counter("failures_total", "Failures of plugins. With the policy Fail, the request has failed too.", "plugin", "policy", "cause"),
		writes:       counter("writes_total", "Writes to files of cgroups.", "field"),
		drifts:       counter("drifts_total", "Values in cgroup files changed by another writer.", "field"),
		repairs:      counter("repairs_total", "Changed values that were repaired.", "field"),
		contended:    counter("contended_total", "Files left to another writer for a while.", "field"),
		refusals:     counter("refusals_total", "Values refused by the kernel.", "cause"),
		state:        state,
		decisionTime: hostmetrics.NewHistogram(prefix+"decision_duration_seconds", "Duration of decisions.", buckets),
		files:        prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + "files_compared_total", Help: "Checked cgroup files."}),
		passTime:     hostmetrics.NewHistogram(prefix+"pass_duration_seconds", "Duration of passes over cgroups.", buckets),
		leftAlone: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: prefix + "files_left_alone", Help: "Files not written for now, by reason.",
		}, []string{"reason"}),
		undecided: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: prefix + "started_undecided", Help: "Running containers that started without a decision because the runtime continued without the agent.",
		}, func() float64 {
			if state == nil {
				return 0
			}
			return float64(state.StartedUndecided())
		}),
		cgroups: prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: prefix + "cgroups", Help: "Cgroups with a desired state."}, func() float64 {
			if state == nil {
				return 0
			}
			return float64(state.Len())
		}),
	}
	m.decisionTime.WithLabelValues()
	m.passTime.WithLabelValues()
	// rate and increase miss the step from no series to 1. Runtimes wait for these stages.
	for _, stage := range []abi.Stage{abi.PreRunPodSandbox, abi.PreCreateContainer, abi.PreStartContainer, abi.PreUpdateContainerResources} {
		m.decisions.WithLabelValues(stage.String(), "failed")
	}
	for _, cause := range cgroup.Causes() {
		m.refusals.WithLabelValues(cause)
	}
	for _, reason := range []string{leftContended, leftRefused} {
		m.leftAlone.WithLabelValues(reason)
	}
	return m
}

// monitor is the label of the policy of a plugin that cannot fail a request.
const monitor = string(host.Monitor)

const leftContended, leftRefused = "contended", "refused"

// fieldLabel returns the label of the fields of one file.
func fieldLabel(f hookmsg.Fields) string {
	if f&hookmsg.FieldCFSQuota != 0 {
		f = hookmsg.FieldCFSQuota // Together with its period.
	}
	return f.String()
}

// pluginLabel returns the label of a plugin. A label that is not UTF-8 would make Prometheus panic.
func pluginLabel(name string) string { return cut.Valid(name) }

// Decided implements [hooks.Observer].
func (m *Metrics) Decided(_ context.Context, req *hookmsg.Request, took time.Duration, d *hookmsg.Decision, err error) {
	result := "decided"
	switch {
	case errors.Is(err, context.Canceled):
		result = "canceled"
	case errors.Is(err, context.DeadlineExceeded):
		result = "timeout"
	case err != nil:
		result = "failed"
	case d.Fields() == 0:
		result = "nothing"
	}
	m.decisions.WithLabelValues(req.Stage.String(), result).Inc()
	m.decisionTime.WithLabelValues().Observe(took.Seconds())
}

// Failed implements [hooks.Observer].
func (m *Metrics) Failed(_ context.Context, _ *hookmsg.Request, plugin string, policy host.FailurePolicy, refused bool, err error) {
	label := string(policy)
	if policy == host.Fail && !refused {
		label = monitor
	}
	m.failures.WithLabelValues(pluginLabel(plugin), label, hooks.CauseOf(err)).Inc()
}

// Monitored implements [hooks.Observer]. It counts nothing.
func (m *Metrics) Monitored(context.Context, *hookmsg.Request, string, *hookmsg.Decision) {}

// Enforced implements [hooks.Observer].
func (m *Metrics) Enforced(_ context.Context, r cgroup.Report) {
	m.files.Add(float64(r.Files))
	m.passTime.WithLabelValues().Observe(r.Took.Seconds())
	if !r.DryRun {
		for _, c := range r.Changes {
			m.writes.WithLabelValues(fieldLabel(c.Field)).Inc()
		}
		for _, c := range r.Drifted {
			m.repairs.WithLabelValues(fieldLabel(c.Field)).Inc()
		}
	}
	for _, c := range r.Drifted {
		m.drifts.WithLabelValues(fieldLabel(c.Field)).Inc()
	}
	for _, c := range r.Contended {
		m.contended.WithLabelValues(fieldLabel(c.Field)).Inc()
	}
	for _, err := range r.Errors() {
		m.refusals.WithLabelValues(cgroup.CauseOf(err)).Inc()
	}
	m.leftAlone.WithLabelValues(leftContended).Set(float64(r.LeftToOthers))
	m.leftAlone.WithLabelValues(leftRefused).Set(float64(r.LeftRefused))
}

func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.decisions, m.failures, m.writes, m.drifts, m.repairs, m.contended, m.refusals, m.decisionTime, m.files, m.passTime, m.leftAlone, m.cgroups, m.undecided,
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	if m.state != nil {
		// The series appear as 0 before any of them drifts.
		for f := range m.state.Fields().All() {
			for _, vec := range []*prometheus.CounterVec{m.writes, m.drifts, m.repairs, m.contended} {
				vec.WithLabelValues(fieldLabel(f))
			}
		}
	}
	for _, c := range m.collectors() {
		c.Collect(ch)
	}
}
