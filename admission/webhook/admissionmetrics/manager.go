package admissionmetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/host"
)

// Manager compares what serves with what is declared, when it is asked for metrics. It is safe for
// use by several goroutines.
type Manager struct{ manager *manage.Manager }

var _ prometheus.Collector = (*Manager)(nil)

// NewManager returns the collector of a manager, to be registered once.
func NewManager(manager *manage.Manager) *Manager { return &Manager{manager} }

var (
	appliedDesc = prometheus.NewDesc("kubewasm_admission_config_applied",
		"1 if the latest configuration file is in service, 0 if it was refused, cannot be read or is being loaded.", nil, nil)
	stateDesc = prometheus.NewDesc("kubewasm_admission_policy_state",
		"1 for the current state of the policy: Serving, Stale if an earlier version serves, Unavailable if none could be loaded, Disabled, Loading.", []string{"policy", "state"}, nil)
	overrideDesc = prometheus.NewDesc("kubewasm_admission_policy_override",
		"1 while the management API overrides the configuration file: the policy is enabled or disabled, or another version serves.", []string{"policy", "override"}, nil)
	glassDesc = prometheus.NewDesc("kubewasm_admission_break_glass",
		"1 while all policies only monitor because somebody broke the glass.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (c *Manager) Describe(ch chan<- *prometheus.Desc) {
	ch <- appliedDesc
	ch <- stateDesc
	ch <- overrideDesc
	ch <- glassDesc
}

// Collect implements [prometheus.Collector].
func (c *Manager) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(appliedDesc, prometheus.GaugeValue, number(c.manager.ConfigErr() == nil))
	ch <- prometheus.MustNewConstMetric(glassDesc, prometheus.GaugeValue, number(c.manager.BreakGlass() != nil))
	for _, p := range c.manager.List() {
		for _, state := range host.States() {
			ch <- prometheus.MustNewConstMetric(stateDesc, prometheus.GaugeValue, number(p.State == state), p.Name, string(state))
		}
		if p.Override != "" {
			ch <- prometheus.MustNewConstMetric(overrideDesc, prometheus.GaugeValue, 1, p.Name, p.Override)
		}
	}
}

func number(set bool) float64 {
	if set {
		return 1
	}
	return 0
}
