package hostmetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubewasm/kubewasm/host"
)

// Declared is a plugin of a component's configuration.
type Declared struct {
	// Plugin is its label, see [host.Stats].
	Plugin string
	// State is the state that the component knows, also of a plugin that was never loaded. Empty
	// means that of the open plugin.
	State host.State
	// Mode and FailurePolicy are those of the plugin. Empty means Enforce and Fail.
	Mode          host.Mode
	FailurePolicy host.FailurePolicy
}

// declaration is the configuration of the component.
type declaration struct {
	err     func() error
	plugins func() []Declared
}

var (
	appliedDesc = prometheus.NewDesc("kubewasm_config_applied",
		"1 if the latest configuration is in service, 0 if it was refused, cannot be read or is being loaded.", nil, nil)
	opensDesc = prometheus.NewDesc("kubewasm_plugin_fails_open",
		"1 for a plugin that does not refuse when it should or cannot answer, by reason: Monitor, Ignore or KeepLast.", []string{"plugin", "reason"}, nil)
)

// Declare adds the configuration of the component to the metrics. err returns nil while the latest
// configuration is in service; plugins returns the plugins that it declares, nil for those that are
// open. Both are called at each scrape, and plugins may be nil.
func (c *Collector) Declare(err func() error, plugins func() []Declared) {
	c.declared.Store(&declaration{err, plugins})
}

// collect sends the metrics of the configuration, and adds the states of its plugins to states. The
// receiver may be nil.
func (d *declaration) collect(ch chan<- prometheus.Metric, states map[string]host.State) {
	if d == nil {
		return
	}
	ch <- prometheus.MustNewConstMetric(appliedDesc, prometheus.GaugeValue, truth(d.err() == nil))
	if d.plugins == nil {
		return
	}
	open := map[[2]string]struct{}{} // A series twice fails the scrape.
	for _, p := range d.plugins() {
		label := labelOf(p.Plugin)
		if p.State != "" {
			states[label] = p.State
		}
		if p.Mode == host.Monitor {
			open[[2]string{label, string(host.Monitor)}] = struct{}{}
		}
		if p.FailurePolicy != "" && p.FailurePolicy != host.Fail {
			open[[2]string{label, string(p.FailurePolicy)}] = struct{}{}
		}
	}
	for labels := range open {
		ch <- prometheus.MustNewConstMetric(opensDesc, prometheus.GaugeValue, 1, labels[:]...)
	}
}
