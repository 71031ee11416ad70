package admissionmetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/host/hostmetrics"
)

// Manager collects the policies that the management API has changed. It is safe for use by several
// goroutines.
type Manager struct{ manager *manage.Manager }

var _ prometheus.Collector = (*Manager)(nil)

// NewManager returns the collector of a manager, to be registered once. It also declares the
// policies of the manager to guests, nil for none: see [hostmetrics.Collector.Declare].
func NewManager(manager *manage.Manager, guests *hostmetrics.Collector) *Manager {
	if guests != nil {
		guests.Declare(manager.ConfigErr, func() (declared []hostmetrics.Declared) {
			for _, p := range manager.List() {
				declared = append(declared, hostmetrics.Declared{Plugin: p.Name, State: p.State, Mode: p.Mode, FailurePolicy: p.FailurePolicy})
			}
			return declared
		})
	}
	return &Manager{manager}
}

var (
	overrideDesc = prometheus.NewDesc("kubewasm_admission_policy_override",
		"1 while the management API overrides the configuration file: the policy is enabled or disabled, or another version serves.", []string{"policy", "override"}, nil)
	glassDesc = prometheus.NewDesc("kubewasm_admission_break_glass",
		"1 while all policies only monitor because somebody broke the glass.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (c *Manager) Describe(ch chan<- *prometheus.Desc) {
	ch <- overrideDesc
	ch <- glassDesc
}

// Collect implements [prometheus.Collector].
func (c *Manager) Collect(ch chan<- prometheus.Metric) {
	glass := 0.0
	if c.manager.BreakGlass() != nil {
		glass = 1
	}
	ch <- prometheus.MustNewConstMetric(glassDesc, prometheus.GaugeValue, glass)
	for _, p := range c.manager.List() {
		if p.Override != "" {
			ch <- prometheus.MustNewConstMetric(overrideDesc, prometheus.GaugeValue, 1, p.Name, p.Override)
		}
	}
}
