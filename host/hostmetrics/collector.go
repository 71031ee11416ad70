package hostmetrics

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/cut"
	"github.com/kubewasm/kubewasm/internal/loading"
	"github.com/kubewasm/kubewasm/internal/lograte"
)

// Collector counts the events of the plugins of a runtime. It is safe for use by several
// goroutines.
type Collector struct {
	runtime *host.Runtime
	// sparse leaves out counters that are 0 and the durations of builds.
	sparse bool

	calls         *prometheus.CounterVec
	callDuration  *prometheus.HistogramVec
	callFuel      *prometheus.CounterVec
	cacheHits     *prometheus.CounterVec
	skipped       *prometheus.CounterVec
	refusals      *prometheus.CounterVec
	restarts      *prometheus.CounterVec
	builds        *prometheus.CounterVec
	buildDuration *prometheus.HistogramVec
	shadows       *prometheus.CounterVec

	// plugins is read by Called, without a lock: the maps that pointers of this package point to
	// are never changed, only replaced.
	plugins atomic.Pointer[map[string]*plugin]
	// declared is nil until Declare.
	declared atomic.Pointer[declaration]
	// mu is held while a map is replaced, and so while series are added to the vectors above or
	// removed.
	mu sync.Mutex
}

var linesDropped = prometheus.NewDesc("kubewasm_log_lines_dropped_total",
	"Log lines dropped by the process because guests, users or clients caused too many.", nil, nil)

var (
	_ loading.ShadowObserver = (*Collector)(nil)
	_ loading.SkipObserver   = (*Collector)(nil)
	_ prometheus.Collector   = (*Collector)(nil)
)

// plugin holds the series of a plugin, which the vectors would look up by
// hashing their labels.
type plugin struct {
	functions atomic.Pointer[map[string]*function]

	refusals      [len(refusalLabels)]prometheus.Counter
	restarts      [len(restartLabels)]prometheus.Counter
	builds        [len(kindLabels)][len(buildLabels)]prometheus.Counter
	buildDuration prometheus.Observer
	shadows       map[string]prometheus.Counter

	// loaded is set once the plugin has served, missed if it was missing at the last collection.
	// Both belong to Collector.mu.
	loaded, missed bool
}

// runsOnce reports whether a function runs once in the life of an instance, before it serves. It has
// no series: its duration is part of kubewasm_build_duration_seconds, and its failure is the result
// of a build or of a caller without an instance.
func runsOnce(function string) bool {
	return function == "_initialize" || function == abi.Marker || function == abi.Configure.String()
}

// function holds the series of a function of a plugin.
type function struct {
	calls    [len(callLabels)]prometheus.Counter
	duration prometheus.Observer
	fuel     prometheus.Counter
	hits     prometheus.Counter
	skipped  prometheus.Counter
}

// The bounds of the histograms, in seconds: two in each power of ten. They give quantiles of values
// that spread over eight of them within a factor of two, for half the series of the usual 1-2.5-5.
var (
	// callBuckets begin below a call of a few instructions and end above the
	// default timeout.
	callBuckets = []float64{1e-7, 3e-7, 1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1, 3, 10}
	// sparseBuckets distinguish a quick call of a hook from one that delays a container.
	sparseBuckets = []float64{1e-4, 1e-3, 1e-2, 0.1, 1}
	// buildBuckets begin at a small module from the compilation cache and end at
	// a large one from a slow network.
	buildBuckets = []float64{1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1, 3, 10, 30, 100}
)

// New returns a Collector for the plugins of rt, to be registered once and to be
// given to each of them as Config.Observer. The plugins of another runtime have
// no place in it: they would count as closed.
//
// Collectors of two runtimes cannot be in one registry as they are, since their
// series would be the same; prometheus.WrapRegistererWith tells them apart by a
// label.
func New(rt *host.Runtime) *Collector { return newCollector(rt, callBuckets, false) }

// NewSparse returns a Collector with few series, for a program that runs on every node: counters
// are missing while they are 0, calls have five buckets, and builds have no durations. A query such
// as increase() does not see the step from no series to 1: compare with an offset, as in "x unless
// x offset 5m or increase(x[5m]) > 0".
func NewSparse(rt *host.Runtime) *Collector { return newCollector(rt, sparseBuckets, true) }

func newCollector(rt *host.Runtime, callBuckets []float64, sparse bool) *Collector {
	c := &Collector{
		runtime: rt, sparse: sparse,
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubewasm_calls_total",
			Help: "Calls of guests, by result.",
		}, []string{"plugin", "function", "result"}),
		callDuration: NewHistogram("kubewasm_call_duration_seconds",
			"Duration of calls of guests, without the wait for an instance.", callBuckets, "plugin", "function"),
		callFuel: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubewasm_call_fuel_total",
			Help: "Fuel used by calls of guests, in WebAssembly instructions.",
		}, []string{"plugin", "function"}),
		cacheHits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubewasm_cache_hits_total",
			Help: "Results taken from a plugin's cache, without a call of the guest.",
		}, []string{"plugin", "function"}),
		skipped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubewasm_calls_skipped_total",
			Help: "Calls skipped because the guest had failed before in the scheduling cycle or event, or on the Pod.",
		}, []string{"plugin", "function"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubewasm_acquire_failures_total",
			Help: "Callers without an instance, by reason.",
		}, []string{"plugin", "reason"}),
		restarts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubewasm_instance_restarts_total",
			Help: "Instances reset from the snapshot, or replaced because a reset failed.",
		}, []string{"plugin", "how"}),
		builds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubewasm_builds_total",
			Help: "Versions of plugins built for a load or a swap, by result.",
		}, []string{"plugin", "kind", "result"}),
		buildDuration: NewHistogram("kubewasm_build_duration_seconds",
			"Duration of builds of plugin versions, failed ones included.", buildBuckets, "plugin"),
		shadows: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubewasm_shadow_calls_total",
			Help: "Calls to be repeated by the plugin's shadow, by result.",
		}, []string{"plugin", "result"}),
	}
	c.plugins.Store(&map[string]*plugin{})
	return c
}

// Called implements [host.Observer].
//
// 0 allocs: BenchmarkCalled, TestCalledDoesNotAllocate.
func (c *Collector) Called(_ context.Context, call host.CallEvent) {
	if runsOnce(call.Function) {
		return
	}
	f := c.function(call.Plugin, call.Function)
	f.calls[callResultOf(call.Err)].Inc()
	f.duration.Observe(call.Duration.Seconds())
	// A counter panics at a negative number, and a scheduler must not.
	f.fuel.Add(float64(max(call.Fuel, 0)))
}

// CacheHits implements [host.Observer].
func (c *Collector) CacheHits(plugin, function string, n uint64) {
	c.function(plugin, function).hits.Add(float64(n))
}

// Skipped implements loading.SkipObserver.
func (c *Collector) Skipped(plugin, function string) { c.function(plugin, function).skipped.Inc() }

// Built implements [host.Observer].
func (c *Collector) Built(_ context.Context, b host.BuildEvent) {
	k := kindLoad
	if b.Swap {
		k = kindSwap
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.addPlugin(b.Plugin)
	p.builds[k][buildResultOf(b.Err)].Inc()
	p.buildDuration.Observe(b.Duration.Seconds())
	if !b.Swap {
		// The runtime does not know a plugin that could not be loaded; its
		// series must stay, or no scrape would show it.
		p.loaded, p.missed = b.Err == nil, false
	}
}

// Refused implements [host.Observer].
func (c *Collector) Refused(_ context.Context, name string, err error) {
	c.plugin(name, func(p *plugin) { p.refusals[refusalOf(err)].Inc() })
}

// Restarted implements [host.Observer].
func (c *Collector) Restarted(name string, replaced bool) {
	how := howReset
	if replaced {
		how = howReplaced
	}
	c.plugin(name, func(p *plugin) { p.restarts[how].Inc() })
}

// Shadowed implements loading.ShadowObserver.
func (c *Collector) Shadowed(name, result string) {
	c.plugin(name, func(p *plugin) { p.shadows[result].Inc() })
}

// plugin calls f with the series of a plugin, and makes them if there are none.
func (c *Collector) plugin(name string, f func(*plugin)) {
	p, ok := (*c.plugins.Load())[name]
	if !ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		p = c.addPlugin(name)
	}
	f(p)
}

// Forget removes the series of a plugin. Those of a plugin that is closed go by
// themselves; those of one that could not be loaded stay until this. The counts
// of a plugin that is open begin anew.
func (c *Collector) Forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(name)
}

// function returns the series of a function, and makes them when it is called
// for the first time.
func (c *Collector) function(pluginName, name string) *function {
	if p, ok := (*c.plugins.Load())[pluginName]; ok {
		if f, ok := (*p.functions.Load())[name]; ok {
			return f
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// The plugin may have been removed in between: series added to the entries found above would
	// never be removed.
	p := c.addPlugin(pluginName)
	functions := *p.functions.Load()
	if f, ok := functions[name]; ok {
		return f
	}
	label := labelOf(pluginName)
	f := &function{
		duration: c.callDuration.WithLabelValues(label, name),
		fuel:     c.callFuel.WithLabelValues(label, name),
		hits:     c.cacheHits.WithLabelValues(label, name),
		skipped:  c.skipped.WithLabelValues(label, name),
	}
	for r, result := range callLabels {
		f.calls[r] = c.calls.WithLabelValues(label, name, result)
	}
	functions = maps.Clone(functions)
	functions[name] = f
	p.functions.Store(&functions)
	return f
}

// addPlugin returns the series of a plugin, and makes them if there are none.
// c.mu is held.
func (c *Collector) addPlugin(name string) *plugin {
	plugins := *c.plugins.Load()
	if p, ok := plugins[name]; ok {
		return p
	}
	label := labelOf(name)
	p := &plugin{buildDuration: c.buildDuration.WithLabelValues(label)}
	p.functions.Store(&map[string]*function{})
	for r, reason := range refusalLabels {
		p.refusals[r] = c.refusals.WithLabelValues(label, reason)
	}
	for h, how := range restartLabels {
		p.restarts[h] = c.restarts.WithLabelValues(label, how)
	}
	for k, kind := range kindLabels {
		for r, result := range buildLabels {
			p.builds[k][r] = c.builds.WithLabelValues(label, kind, result)
		}
	}
	p.shadows = map[string]prometheus.Counter{}
	for _, r := range []string{"same", "different", "asked", "failed", "dropped"} {
		p.shadows[r] = c.shadows.WithLabelValues(label, r)
	}
	plugins = maps.Clone(plugins)
	plugins[name] = p
	c.plugins.Store(&plugins)
	return p
}

// remove removes the series of a plugin. c.mu is held.
func (c *Collector) remove(name string) {
	plugins := maps.Clone(*c.plugins.Load())
	delete(plugins, name)
	c.plugins.Store(&plugins)
	labels := prometheus.Labels{"plugin": labelOf(name)}
	c.buildDuration.DeletePartialMatch(labels)
	for _, vec := range c.vectors() {
		vec.DeletePartialMatch(labels)
	}
}

// removeClosed removes the series of the plugins that were loaded, but are not among those whose
// labels are in open, now and at the last collection: one more scrape sees their last calls. It
// also tolerates a new plugin in the moment between the end of its build and its place in the
// runtime. c.mu is held.
func (c *Collector) removeClosed(open map[string]host.Stats) {
	for name, p := range *c.plugins.Load() {
		if _, ok := open[labelOf(name)]; ok {
			p.loaded, p.missed = true, false
		} else if p.loaded && p.missed {
			c.remove(name)
		} else {
			p.missed = p.loaded
		}
	}
}

// labelOf returns the label of a plugin. A label that is not UTF-8 makes
// Prometheus panic, and a name may be anything.
func labelOf(name string) string { return cut.Valid(name) }

// vector is the part that counters and histograms share.
type vector interface {
	prometheus.Collector
	DeletePartialMatch(prometheus.Labels) int
}

func (c *Collector) vectors() []vector {
	shown := []vector{c.calls, c.callDuration, c.callFuel, c.cacheHits, c.skipped, c.refusals, c.restarts, c.builds, c.shadows}
	if !c.sparse {
		shown = append(shown, c.buildDuration)
	}
	return shown
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, vec := range c.vectors() {
		vec.Describe(ch)
	}
	describeState(ch)
	ch <- appliedDesc
	describeRecordings(ch)
	describeProcess(ch)
	ch <- linesDropped
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	pipe(c.collect, func(m prometheus.Metric) {
		if !c.sparse || !isZero(m) {
			to <- m
		}
	})
}

// isZero reports whether a metric carries no more information than its absence.
func isZero(m prometheus.Metric) bool {
	var value dto.Metric
	if m.Write(&value) != nil {
		return false // The registry reports it.
	}
	switch {
	case value.Counter != nil:
		return value.Counter.GetValue() == 0
	case value.Histogram != nil:
		return value.Histogram.GetSampleCount() == 0
	}
	return false
}

func (c *Collector) collect(ch chan<- prometheus.Metric) {
	open := collectState(ch, c.runtime.Plugins(), c.declared.Load(), c.sparse)
	collectRecordings(ch, c.runtime)
	collectProcess(ch, c.runtime)
	ch <- prometheus.MustNewConstMetric(linesDropped, prometheus.CounterValue, float64(lograte.AllDropped()))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removeClosed(open)
	for _, vec := range c.vectors() {
		vec.Collect(ch)
	}
}
