package hostmetrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/cut"
)

// stateGauge is a number that is read from a plugin at each scrape.
type stateGauge struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(host.Stats) float64
	// rare gauges are 0 in most programs.
	rare bool
}

func (g stateGauge) rarely() stateGauge {
	g.rare = true
	return g
}

func newStateGauge(name, help string, value func(host.Stats) float64) stateGauge {
	return stateGauge{desc: prometheus.NewDesc("kubewasm_plugin_"+name, help, []string{"plugin"}, nil), kind: prometheus.GaugeValue, value: value}
}

// newStateCounter returns a number that never falls while the plugin is open.
func newStateCounter(name, help string, value func(host.Stats) float64) stateGauge {
	g := newStateGauge(name, help, value)
	g.kind = prometheus.CounterValue
	return g
}

var (
	infoDesc = prometheus.NewDesc("kubewasm_plugin_info",
		"The SHA-256 of the module that serves new calls, and its file, URL or reference; always 1.", []string{"plugin", "digest", "reference"}, nil)

	stateDesc = prometheus.NewDesc("kubewasm_plugin_state",
		"1 for the current state of the plugin: Serving, Stale if an earlier version than the declared one serves, Unavailable if none does, Loading, Disabled.", []string{"plugin", "state"}, nil)

	stateGauges = []stateGauge{
		newStateGauge("instances", "Instances of the version that serves new calls.",
			func(s host.Stats) float64 { return float64(s.Instances) }),
		newStateGauge("instances_idle", "Instances that serve no call.",
			func(s host.Stats) float64 { return float64(s.Idle) }),
		newStateGauge("instances_limit", "Maximum number of instances.",
			func(s host.Stats) float64 { return float64(s.Limit) }),
		newStateGauge("instances_held", "Instances held from call to call, which do not count as instances of the pool.",
			func(s host.Stats) float64 { return float64(s.Held) }).rarely(),
		newStateGauge("waiting_callers", "Callers that wait for an instance.",
			func(s host.Stats) float64 { return float64(s.Waiting) }),
		newStateGauge("retired_versions", "Replaced versions that still serve calls.",
			func(s host.Stats) float64 { return float64(s.Retired) }).rarely(),
		newStateGauge("instance_memory_bytes", "Linear memory of a new instance; 0 if unknown.",
			func(s host.Stats) float64 { return float64(s.MemoryBytes) }),
		newStateCounter("log_lines_dropped_total", "Dropped log lines of the guest, and of the host about its calls, by limits.outputBytes and limits.logBytes.",
			func(s host.Stats) float64 { return float64(s.LogDropped) }),
		newStateGauge("disabled", "Whether the circuit breaker has disabled the plugin.",
			func(s host.Stats) float64 { return truth(s.Disabled) }),
		newStateGauge("isolated", "Whether the guest runs in a child process.",
			func(s host.Stats) float64 { return truth(s.Isolation == host.IsolationProcess) }).rarely(),
		newStateGauge("isolation_missing", "Whether the guest would run in a child process if the system could run one.",
			func(s host.Stats) float64 { return truth(s.Isolation == host.IsolationNone && len(s.Weaker) != 0) }).rarely(),
	}
)

// pluginStates are the states of an open plugin, from the best to the worst.
var pluginStates = []host.State{host.Serving, host.Stale, host.Unavailable}

func truth(set bool) float64 {
	if set {
		return 1
	}
	return 0
}

func describeState(ch chan<- *prometheus.Desc) {
	ch <- infoDesc
	ch <- stateDesc
	ch <- opensDesc
	for _, g := range stateGauges {
		ch <- g.desc
	}
}

// collectState sends the state of plugins, and returns that of the open ones by their labels. A
// sparse one leaves out rare gauges that are 0, and the state of plugins that are Serving.
//
// For a moment a policy that is replaced is open beside the next one of its name, and a registry that
// gets a series twice fails the whole scrape: plugins with one label are combined, as their calls are.
func collectState(ch chan<- prometheus.Metric, plugins []*host.Plugin, declared *declaration, sparse bool) map[string]host.Stats {
	type info struct{ plugin, digest, reference string }
	infos := make(map[info]struct{}, len(plugins))
	stats := make(map[string]host.Stats, len(plugins))
	for _, p := range plugins {
		now := p.Stats()
		label := labelOf(now.Label)
		infos[info{label, p.Digest(), cut.Valid(now.Reference)}] = struct{}{}
		if before, several := stats[label]; several {
			now = together(before, now)
		}
		stats[label] = now
	}
	for i := range infos {
		ch <- prometheus.MustNewConstMetric(infoDesc, prometheus.GaugeValue, 1, i.plugin, i.digest, i.reference)
	}
	states := make(map[string]host.State, len(stats))
	for label, s := range stats {
		states[label] = s.State
	}
	declared.collect(ch, states)
	for label, is := range states {
		for _, state := range host.States() {
			if sparse && (state != is || state == host.Serving) {
				continue
			}
			ch <- prometheus.MustNewConstMetric(stateDesc, prometheus.GaugeValue, truth(state == is), label, string(state))
		}
	}
	for label, s := range stats {
		for _, g := range stateGauges {
			if v := g.value(s); !sparse || !g.rare || v != 0 {
				ch <- prometheus.MustNewConstMetric(g.desc, g.kind, v, label)
			}
		}
	}
	return stats
}

// together returns the state of two plugins as if they were one.
func together(a, b host.Stats) host.Stats {
	return host.Stats{
		Instances:   a.Instances + b.Instances,
		Idle:        a.Idle + b.Idle,
		Limit:       a.Limit + b.Limit,
		Waiting:     a.Waiting + b.Waiting,
		Held:        a.Held + b.Held,
		Retired:     a.Retired + b.Retired,
		MemoryBytes: max(a.MemoryBytes, b.MemoryBytes),
		LogDropped:  a.LogDropped + b.LogDropped,
		Disabled:    a.Disabled || b.Disabled,
		Isolation:   min(a.Isolation, b.Isolation), // none is the first.
		Weaker:      append(slices.Clone(a.Weaker), b.Weaker...),
		State:       pluginStates[max(slices.Index(pluginStates, a.State), slices.Index(pluginStates, b.State))],
	}
}
