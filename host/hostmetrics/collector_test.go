package hostmetrics_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/hostmetrics"
	"github.com/kubewasm/kubewasm/host/shadow"
	"github.com/kubewasm/kubewasm/internal/loading"
)

// component is a process with plugins and an endpoint for its metrics.
type component struct {
	runtime  *host.Runtime
	metrics  *hostmetrics.Collector
	registry *prometheus.Registry
	server   *httptest.Server
}

func newComponent(t testing.TB) *component {
	t.Helper()
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	c := &component{runtime: rt, metrics: hostmetrics.New(rt), registry: prometheus.NewPedanticRegistry()}
	c.registry.MustRegister(c.metrics)
	c.server = httptest.NewServer(promhttp.HandlerFor(c.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	t.Cleanup(c.server.Close)
	return c
}

func source(module string) host.Source {
	return host.File(filepath.Join("..", "testdata", module+".wasm"))
}

// scheduler is the adapter of all tests.
var scheduler = host.Adapter{Kind: abi.KindScheduler}

// config is that of a plugin named after its module.
func (c *component) config(module string) host.Config {
	return host.Config{Name: module, Module: host.ModuleConfig{Source: source(module)}, Observer: c.metrics}
}

func (c *component) load(t testing.TB, cfg host.Config) *host.Plugin {
	t.Helper()
	p, err := c.runtime.Load(t.Context(), cfg, scheduler)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// call has filter called once by an instance of the pool.
func call(ctx context.Context, t testing.TB, p *host.Plugin, pod, node uint64) (fuel int64, err error) {
	t.Helper()
	inst, err := p.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer inst.Release()
	_, err = inst.Call(ctx, abi.Filter, 0, pod, node)
	return inst.FuelUsed(), err
}

// page is the result of a scrape: values by series, such as
// kubewasm_restarts_total{how="reset",plugin="zone"}. A histogram is its count.
type page map[string]float64

// scrape gets the metrics as Prometheus does.
func (c *component) scrape(t testing.TB) page {
	t.Helper()
	resp, err := http.Get(c.server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(resp.Body)
		t.Fatalf("scrape: %s: %s", resp.Status, body)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	p := page{}
	for name, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			slices.Sort(labels)
			series := name + "{" + strings.Join(labels, ",") + "}"
			p[series] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return p
}

// with returns the series, other than 0, whose name begins with prefix and which
// have the label.
func (p page) with(prefix, label string) page {
	found := page{}
	for series, value := range p {
		if strings.HasPrefix(series, prefix) && strings.Contains(series, label) && value != 0 {
			found[series] = value
		}
	}
	return found
}

// cancelOnLog ends a call from within, at the first line that the guest logs. The line before that
// one is the host's, about the load.
type cancelOnLog struct {
	slog.Handler
	asked  *atomic.Int64
	cancel context.CancelFunc
}

func (h cancelOnLog) Enabled(context.Context, slog.Level) bool {
	if h.asked.Add(1) > 1 {
		h.cancel()
	}
	return false
}

func TestCallsAreCountedByResult(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tests := map[string]struct {
		module string
		limits host.Limits
		logger *slog.Logger
		pod    uint64
		want   string
	}{
		"a call that returns":                {module: "spins", want: "ok"},
		"a trapping instruction":             {module: "spins", pod: 9, want: "trap"},
		"an exit":                            {module: "traps", pod: 2, want: "trap"},
		"a stack that is exhausted":          {module: "traps", pod: 3, want: "stack"},
		"a loop that runs out of fuel":       {module: "spins", pod: 1, limits: host.Limits{Fuel: 10_000}, want: "fuel"},
		"a loop that runs into its timeout":  {module: "spins", pod: 1, limits: host.Limits{Timeout: time.Millisecond}, want: "timeout"},
		"a loop that the caller cancels":     {module: "spins", pod: 4, logger: slog.New(cancelOnLog{slog.DiscardHandler, new(atomic.Int64), cancel}), want: "canceled"},
		"a buffer that is outside of memory": {module: "traps", pod: 7, want: "abi"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := newComponent(t)
			cfg := c.config(test.module)
			cfg.Name, cfg.Limits, cfg.Logger = "p", test.limits, test.logger
			p := c.load(t, cfg)
			callCtx := t.Context()
			if test.logger != nil {
				callCtx = ctx
			}
			fuel, err := call(callCtx, t, p, test.pod, 0)
			if (err == nil) != (test.want == "ok") {
				t.Errorf("got error %v", err)
			}
			want := page{
				fmt.Sprintf(`kubewasm_calls_total{function="filter",plugin="p",result=%q}`, test.want): 1,
				`kubewasm_call_duration_seconds{function="filter",plugin="p"}`:                         1,
				`kubewasm_call_fuel_total{function="filter",plugin="p"}`:                               float64(fuel),
			}
			if diff := cmp.Diff(want, c.scrape(t).with("kubewasm_call", `function="filter"`)); diff != "" {
				t.Errorf("series (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFunctionsThatRunOnceHaveNoSeries(t *testing.T) {
	c := newComponent(t)
	c.load(t, c.config("good"))
	for series := range c.scrape(t) {
		if strings.Contains(series, "function=") {
			t.Errorf("there is %s", series)
		}
	}
}

func TestDurationsFallIntoBuckets(t *testing.T) {
	c := newComponent(t)
	for _, d := range []time.Duration{100, 101, time.Millisecond, time.Minute} {
		c.metrics.Called(t.Context(), host.CallEvent{Plugin: "p", Function: "filter", Duration: d})
	}
	families, err := c.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[float64]uint64{}
	for _, family := range families {
		if family.GetName() == "kubewasm_call_duration_seconds" {
			for _, b := range family.GetMetric()[0].GetHistogram().GetBucket() {
				got[b.GetUpperBound()] = b.GetCumulativeCount()
			}
		}
	}
	want := map[float64]uint64{
		1e-7: 1, 3e-7: 2, 1e-6: 2, 3e-6: 2, 1e-5: 2, 3e-5: 2, 1e-4: 2, 3e-4: 2, 1e-3: 3,
		3e-3: 3, 1e-2: 3, 3e-2: 3, 0.1: 3, 0.3: 3, 1: 3, 3: 3, 10: 3,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("cumulative counts by upper bound (-want +got):\n%s", diff)
	}
}

func TestRestartsAreCounted(t *testing.T) {
	tests := map[string]struct {
		reset host.ResetPolicy
		pod   uint64
		want  page
	}{
		"a call that returns": {want: page{}},
		"a trap": {pod: 9, want: page{
			`kubewasm_instance_restarts_total{how="reset",plugin="spins"}`: 1}},
		"a trap that is never reset": {pod: 9, reset: host.ResetNever, want: page{
			`kubewasm_instance_restarts_total{how="replaced",plugin="spins"}`: 1}},
		"a call that is always reset": {reset: host.ResetPerCall, want: page{
			`kubewasm_instance_restarts_total{how="reset",plugin="spins"}`: 1}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := newComponent(t)
			cfg := c.config("spins")
			cfg.Reset = test.reset
			_, _ = call(t.Context(), t, c.load(t, cfg), test.pod, 0) // TestCallsAreCountedByResult looks at the error.
			if diff := cmp.Diff(test.want, c.scrape(t).with("kubewasm_instance_restarts_total", "")); diff != "" {
				t.Errorf("series (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBuildsAreCountedByResult(t *testing.T) {
	tests := map[string]struct {
		cfg   host.Config
		probe error
		want  string
	}{
		"a guest":                       {cfg: host.Config{Module: host.ModuleConfig{Source: source("good")}}, want: "ok"},
		"another digest":                {cfg: host.Config{Module: host.ModuleConfig{Source: source("good"), SHA256: strings.Repeat("0", 64)}}, want: "digest"},
		"no module":                     {cfg: host.Config{Module: host.ModuleConfig{Bytes: []byte("text")}}, want: "module"},
		"a guest for another component": {cfg: host.Config{Module: host.ModuleConfig{Source: source("admission")}}, want: "module"},
		"exports of another type":       {cfg: host.Config{Module: host.ModuleConfig{Source: source("wrongexports")}}, want: "abi"},
		"imports that are not offered":  {cfg: host.Config{Module: host.ModuleConfig{Source: source("badimports")}}, want: "abi"},
		"a start that fails":            {cfg: host.Config{Module: host.ModuleConfig{Source: source("startfails")}}, want: "trap"},
		"a configuration it refuses":    {cfg: host.Config{Module: host.ModuleConfig{Source: source("good")}, GuestConfig: make([]byte, 65)}, want: "status"},
		"a file that is not there":      {cfg: host.Config{Module: host.ModuleConfig{File: "no.wasm"}}, want: "other"},
		"a probe that refuses":          {cfg: host.Config{Module: host.ModuleConfig{Source: source("good")}}, probe: errors.New("refused"), want: "other"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := newComponent(t)
			cfg := test.cfg
			cfg.Name, cfg.Observer = "p", c.metrics
			adapter := scheduler
			adapter.Probe = func(context.Context, *host.Instance) error { return test.probe }
			_, err := c.runtime.Load(t.Context(), cfg, adapter)
			if (err == nil) != (test.want == "ok") {
				t.Errorf("got error %v", err)
			}
			want := page{
				fmt.Sprintf(`kubewasm_builds_total{kind="load",plugin="p",result=%q}`, test.want): 1,
				`kubewasm_build_duration_seconds{plugin="p"}`:                                     1,
			}
			if diff := cmp.Diff(want, c.scrape(t).with("kubewasm_build", "")); diff != "" {
				t.Errorf("series (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSwapsAreCounted(t *testing.T) {
	c := newComponent(t)
	cfg := c.config("spins")
	cfg.Name = "p"
	p := c.load(t, cfg)
	before := p.Digest()
	if err := p.Swap(t.Context(), source("noop"), ""); err != nil {
		t.Fatal(err)
	}
	if err := p.Swap(t.Context(), host.Bytes([]byte("text")), ""); err == nil {
		t.Fatal("text is a module")
	}
	got := c.scrape(t)
	want := page{
		`kubewasm_builds_total{kind="load",plugin="p",result="ok"}`:     1,
		`kubewasm_builds_total{kind="swap",plugin="p",result="ok"}`:     1,
		`kubewasm_builds_total{kind="swap",plugin="p",result="module"}`: 1,
		`kubewasm_build_duration_seconds{plugin="p"}`:                   3,
	}
	if diff := cmp.Diff(want, got.with("kubewasm_build", "")); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
	want = page{fmt.Sprintf(`kubewasm_plugin_info{digest=%q,plugin="p",reference="../testdata/noop.wasm"}`, p.Digest()): 1}
	if diff := cmp.Diff(want, got.with("kubewasm_plugin_info", "")); diff != "" || p.Digest() == before {
		t.Errorf("the digest is not the new one (-want +got):\n%s", diff)
	}
}

func TestStateIsReadWhenItIsScraped(t *testing.T) {
	c := newComponent(t)
	cfg := c.config("spins")
	cfg.Limits.Instances = 2
	cfg.CircuitBreaker = host.CircuitBreaker{After: 1, Backoff: time.Hour}
	p := c.load(t, cfg)
	state := func() page { return c.scrape(t).with("kubewasm_plugin_", `{plugin="spins"}`) }

	want := page{
		`kubewasm_plugin_instances{plugin="spins"}`:             1,
		`kubewasm_plugin_instances_idle{plugin="spins"}`:        1,
		`kubewasm_plugin_instances_limit{plugin="spins"}`:       2,
		`kubewasm_plugin_instance_memory_bytes{plugin="spins"}`: 64 << 10,
	}
	if diff := cmp.Diff(want, state()); diff != "" {
		t.Errorf("after the load (-want +got):\n%s", diff)
	}

	var taken [2]*host.Instance
	for i := range taken {
		var err error
		if taken[i], err = p.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	waited := make(chan error)
	go func() {
		inst, err := p.Acquire(t.Context())
		if err == nil {
			inst.Release()
		}
		waited <- err
	}()
	for p.Stats().Waiting == 0 {
		runtime.Gosched()
	}
	want = page{
		`kubewasm_plugin_instances{plugin="spins"}`:             2,
		`kubewasm_plugin_instances_limit{plugin="spins"}`:       2,
		`kubewasm_plugin_waiting_callers{plugin="spins"}`:       1,
		`kubewasm_plugin_instance_memory_bytes{plugin="spins"}`: 64 << 10,
	}
	if diff := cmp.Diff(want, state()); diff != "" {
		t.Errorf("with every instance in use (-want +got):\n%s", diff)
	}
	taken[0].Release()
	if err := <-waited; err != nil {
		t.Error(err)
	}

	if err := p.Swap(t.Context(), source("noop"), ""); err != nil {
		t.Fatal(err)
	}
	want = page{
		`kubewasm_plugin_instances{plugin="spins"}`:             1,
		`kubewasm_plugin_instances_idle{plugin="spins"}`:        1,
		`kubewasm_plugin_instances_limit{plugin="spins"}`:       2,
		`kubewasm_plugin_retired_versions{plugin="spins"}`:      1,
		`kubewasm_plugin_instance_memory_bytes{plugin="spins"}`: 64 << 10,
	}
	if diff := cmp.Diff(want, state()); diff != "" {
		t.Errorf("after a swap during a call (-want +got):\n%s", diff)
	}
	if _, err := taken[1].Call(t.Context(), abi.Filter, 0, 9, 0); err == nil {
		t.Error("the guest did not trap")
	}
	if got := state()[`kubewasm_plugin_disabled{plugin="spins"}`]; got != 1 {
		t.Errorf("disabled is %v, want 1", got)
	}
	taken[1].Release()
}

func TestSeriesOfClosedPluginsAreRemoved(t *testing.T) {
	c := newComponent(t)
	c.load(t, c.config("noop"))
	p := c.load(t, c.config("good"))
	if _, err := call(t.Context(), t, p, 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false, false} {
		got := c.scrape(t)
		if found := len(got.with("kubewasm_call", `plugin="good"`)) != 0; found != want {
			t.Errorf("scrape %d has calls of the closed plugin: %v, want %v", i, found, want)
		}
		if state := got.with("kubewasm_plugin_", `plugin="good"`); len(state) != 0 {
			t.Errorf("scrape %d has the state of the closed plugin: %v", i, state)
		}
		if len(got.with("kubewasm_build", `plugin="noop"`)) == 0 {
			t.Errorf("scrape %d lacks the open plugin", i)
		}
	}
	for series := range c.scrape(t) {
		if strings.Contains(series, `plugin="good"`) {
			t.Errorf("%s is still there", series)
		}
	}

	// Its name may be used again.
	c.load(t, c.config("good"))
	c.scrape(t)
	if got := c.scrape(t)[`kubewasm_builds_total{kind="load",plugin="good",result="ok"}`]; got != 1 {
		t.Errorf("%v builds of the plugin that was loaded again, want 1", got)
	}
}

func TestSeriesOfPluginsThatCannotBeLoadedStay(t *testing.T) {
	const series = `kubewasm_builds_total{kind="load",plugin="startfails",result="trap"}`
	c := newComponent(t)
	for i := range 3 {
		if _, err := c.runtime.Load(t.Context(), c.config("startfails"), scheduler); err == nil {
			t.Fatal("the plugin was loaded")
		}
		c.scrape(t)
		if got := c.scrape(t)[series]; got != float64(i+1) {
			t.Errorf("%v builds, want %d", got, i+1)
		}
	}
	c.metrics.Forget("startfails")
	got := c.scrape(t)
	maps.DeleteFunc(got, func(series string, _ float64) bool { return !strings.Contains(series, "plugin=") }) // Of the process.
	if len(got) != 0 {
		t.Errorf("series of a plugin that was forgotten: %v", slices.Sorted(maps.Keys(got)))
	}
}

// TestScopesTellPluginsApart loads a plugin of one name for two profiles of a scheduler.
func TestScopesTellPluginsApart(t *testing.T) {
	c := newComponent(t)
	for i, scope := range []string{"default", "gpu"} {
		cfg := c.config("noop")
		cfg.Name, cfg.Scope, cfg.Limits.Instances = "p", scope, i+3
		p := c.load(t, cfg)
		for range i + 1 {
			if _, err := call(t.Context(), t, p, 0, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	got, want := c.scrape(t), page{
		`kubewasm_calls_total{function="filter",plugin="default/p",result="ok"}`: 1,
		`kubewasm_calls_total{function="filter",plugin="gpu/p",result="ok"}`:     2,
		`kubewasm_plugin_instances_limit{plugin="default/p"}`:                    3,
		`kubewasm_plugin_instances_limit{plugin="gpu/p"}`:                        4,
		`kubewasm_builds_total{kind="load",plugin="default/p",result="ok"}`:      1,
		`kubewasm_builds_total{kind="load",plugin="gpu/p",result="ok"}`:          1,
		`kubewasm_plugin_state{plugin="default/p",state="Serving"}`:              1,
		`kubewasm_plugin_state{plugin="gpu/p",state="Serving"}`:                  1,
	}
	for series, value := range want {
		if got[series] != value {
			t.Errorf("%s is %v, want %v", series, got[series], value)
		}
	}
	if n := len(got.with("kubewasm_", `plugin="p"`)); n != 0 {
		t.Errorf("%d series have no scope", n)
	}
}

// candidate is the version that a shadow calls.
type candidate struct{ *host.Plugin }

func (c candidate) Guest() *host.Plugin { return c.Plugin }

// TestCandidatesAreNotAddedUp calls the candidate of a shadow, which has the name of its plugin.
func TestCandidatesAreNotAddedUp(t *testing.T) {
	c := newComponent(t)
	cfg := c.config("noop")
	p := c.load(t, cfg)
	before := c.scrape(t).with("kubewasm_", `plugin="noop"`)
	s, err := shadow.Begin(shadow.Config{Module: host.ModuleConfig{Source: source("noop")}, Rate: 1}, shadow.Options{
		Plugin: "noop", Serving: p, Runtime: c.runtime, Observer: c.metrics,
		Load: func(ctx context.Context, rt *host.Runtime, change func(*host.Config)) (shadow.Candidate, error) {
			change(&cfg)
			of, err := rt.Load(ctx, cfg, scheduler)
			return candidate{of}, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	for !s.Sampled() { // It is being loaded.
		runtime.Gosched()
	}
	const same = `kubewasm_shadow_calls_total{plugin="noop",result="same"}`
	s.Offer(func(ctx context.Context, of shadow.Candidate) shadow.Outcome {
		_, err := call(ctx, t, of.Guest(), 0, 0)
		return shadow.Outcome{Err: err}
	}, 0, nil)
	for c.scrape(t)[same] == 0 {
		runtime.Gosched()
	}
	before[same] = 1
	if diff := cmp.Diff(before, c.scrape(t).with("kubewasm_", `plugin="noop"`)); diff != "" {
		t.Errorf("series after a call of the candidate (-want +got):\n%s", diff)
	}
}

// TestDeclared compares a component's configuration with its open plugins.
func TestDeclared(t *testing.T) {
	c := newComponent(t)
	c.load(t, c.config("noop"))
	of := func() page {
		p := c.scrape(t)
		got := p.with("kubewasm_plugin_state", "")
		maps.Copy(got, p.with("kubewasm_plugin_fails_open", ""))
		maps.Copy(got, p.with("kubewasm_config_applied", ""))
		return got
	}
	if diff := cmp.Diff(page{`kubewasm_plugin_state{plugin="noop",state="Serving"}`: 1}, of()); diff != "" {
		t.Errorf("without a configuration (-want +got):\n%s", diff)
	}
	var refused error
	c.metrics.Declare(func() error { return refused }, func() []hostmetrics.Declared {
		return []hostmetrics.Declared{
			{Plugin: "noop", FailurePolicy: host.Ignore}, {Plugin: "noop", FailurePolicy: host.Ignore}, // By mistake.
			{Plugin: "gone", State: host.Unavailable, FailurePolicy: host.Fail, Mode: host.Enforce},
			{Plugin: "tried", State: host.Loading, FailurePolicy: host.Ignore, Mode: host.Monitor},
			{Plugin: "off", State: host.Disabled},
		}
	})
	want := page{
		`kubewasm_config_applied{}`:                                   1,
		`kubewasm_plugin_state{plugin="noop",state="Serving"}`:        1,
		`kubewasm_plugin_state{plugin="gone",state="Unavailable"}`:    1,
		`kubewasm_plugin_state{plugin="tried",state="Loading"}`:       1,
		`kubewasm_plugin_state{plugin="off",state="Disabled"}`:        1,
		`kubewasm_plugin_fails_open{plugin="noop",reason="Ignore"}`:   1,
		`kubewasm_plugin_fails_open{plugin="tried",reason="Ignore"}`:  1,
		`kubewasm_plugin_fails_open{plugin="tried",reason="Monitor"}`: 1,
	}
	if diff := cmp.Diff(want, of()); diff != "" {
		t.Errorf("with a configuration (-want +got):\n%s", diff)
	}
	refused = errors.New("unknown field")
	delete(want, `kubewasm_config_applied{}`)
	if diff := cmp.Diff(want, of()); diff != "" {
		t.Errorf("with a refused one (-want +got):\n%s", diff)
	}
}

// TestHistogramsAreNativeToo scrapes the histogram of calls by the protocol that has native ones.
func TestHistogramsAreNativeToo(t *testing.T) {
	for name, test := range map[string]struct {
		by      func(prometheus.Registerer) prometheus.Registerer
		classic int
	}{
		"both":        {func(r prometheus.Registerer) prometheus.Registerer { return r }, 17},
		"native only": {hostmetrics.NativeOnly, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := newComponent(t)
			for d := time.Duration(1); d < time.Minute; d *= 3 {
				c.metrics.Called(t.Context(), host.CallEvent{Plugin: "p", Function: "filter", Duration: d})
			}
			registry := prometheus.NewPedanticRegistry()
			test.by(registry).MustRegister(c.metrics)
			request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
			request.Header.Set("Accept", string(expfmt.NewFormat(expfmt.TypeProtoDelim)))
			page := httptest.NewRecorder()
			promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, request)
			decoder := expfmt.NewDecoder(page.Body, expfmt.ResponseFormat(page.Header()))
			for {
				var family dto.MetricFamily
				if err := decoder.Decode(&family); err != nil {
					t.Fatal("there is no histogram of calls: ", err)
				}
				if family.GetName() != "kubewasm_call_duration_seconds" {
					continue
				}
				h := family.Metric[0].Histogram
				if len(h.Bucket) != test.classic || h.GetSchema() != 3 || len(h.PositiveSpan) == 0 || h.GetSampleCount() != 23 {
					t.Errorf("the histogram is %v, want 23 observations in %d classic buckets and native ones of schema 3", h, test.classic)
				}
				return
			}
		})
	}
}

func TestPluginsOfOneNameAreTakenTogether(t *testing.T) {
	c := newComponent(t)
	for _, module := range []string{"noop", "noop", "good"} {
		cfg := c.config(module)
		cfg.Name, cfg.Limits.Instances = "p", 3
		c.load(t, cfg)
	}
	got := c.scrape(t).with("kubewasm_plugin_", "")
	if n := len(got.with("kubewasm_plugin_info", "")); n != 2 {
		t.Errorf("%d digests, want 2", n)
	}
	if n := got[`kubewasm_plugin_instances_limit{plugin="p"}`]; n != 9 {
		t.Errorf("the limit is %v, want 9", n)
	}
}

func TestNamesThatAreNotUTF8(t *testing.T) {
	// A host refuses them, and another caller of the collector must not make it
	// panic.
	c := newComponent(t)
	c.metrics.Called(t.Context(), host.CallEvent{Plugin: "a\xffb", Function: "filter"})
	const series = "kubewasm_calls_total{function=\"filter\",plugin=\"a\uFFFDb\",result=\"ok\"}"
	if got := c.scrape(t)[series]; got != 1 {
		t.Errorf("%v calls, want 1", got)
	}
}

func TestRefusedCallersAreCounted(t *testing.T) {
	c := newComponent(t)
	cfg := c.config("spins")
	cfg.Limits.Instances = 1
	cfg.CircuitBreaker = host.CircuitBreaker{After: 1, Backoff: time.Hour}
	p := c.load(t, cfg)
	inst, err := p.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Acquire(ended); !errors.Is(err, host.ErrSaturated) {
		t.Errorf("got %v", err)
	}
	if _, err := inst.Call(t.Context(), abi.Filter, 0, 9, 0); err == nil {
		t.Error("no trap")
	}
	inst.Release()
	for range 2 {
		if _, err := p.Acquire(t.Context()); !errors.Is(err, host.ErrDisabled) {
			t.Errorf("got %v", err)
		}
	}
	c.metrics.Refused(t.Context(), "spins", fmt.Errorf("plugin %q: %w", "spins", loading.ErrQuota))
	want := page{
		`kubewasm_acquire_failures_total{plugin="spins",reason="saturated"}`: 1,
		`kubewasm_acquire_failures_total{plugin="spins",reason="disabled"}`:  2,
		`kubewasm_acquire_failures_total{plugin="spins",reason="quota"}`:     1,
	}
	if diff := cmp.Diff(want, c.scrape(t).with("kubewasm_acquire_failures_total", "")); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
}

func TestMetricsFollowTheConventions(t *testing.T) {
	c := newComponent(t)
	p := c.load(t, c.config("spins"))
	_, _ = call(t.Context(), t, p, 9, 0) // A trap, so that every metric has a value.
	problems, err := testutil.GatherAndLint(c.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		t.Errorf("%s: %s", problem.Metric, problem.Text)
	}
}

// TestDocumentationListsTheMetrics holds the tables of the package's comment
// against what a scrape finds: names, and how many series there are.
func TestDocumentationListsTheMetrics(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	for line := range strings.Lines(string(doc)) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], "kubewasm_") {
			want[fields[1]] = true
		}
	}
	c := newComponent(t)
	c.metrics.CacheHits("noop", "filter", 1) // Which makes the series of a function.
	c.load(t, c.config("noop"))
	c.metrics.Declare(func() error { return nil }, func() []hostmetrics.Declared { return []hostmetrics.Declared{{Plugin: "noop", Mode: host.Monitor}} })
	families, err := c.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got, ofPlugin, ofFunction := map[string]bool{}, 0, 0
	for _, family := range families {
		got[family.GetName()] = true
		for _, m := range family.GetMetric() {
			n := 1
			if h := m.GetHistogram(); h != nil {
				n = len(h.GetBucket()) + 3 // The bucket of the rest, the sum and the count.
			}
			switch {
			case !slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == "plugin" }): // Of the process.
			case slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == "filter" }):
				ofFunction += n
			default:
				ofPlugin += n
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-documented +got):\n%s", diff)
	}
	sentence := fmt.Sprintf("A plugin has %d series, and %d for each of its functions that was called. Those that run once in each instance, such as configure, have none.", ofPlugin, ofFunction)
	if text := strings.ReplaceAll(string(doc), "\n// ", " "); !strings.Contains(text, sentence) {
		t.Errorf("the documentation does not say: %s", sentence)
	}
}

func TestRuntimesShareARegistryByALabel(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	for _, name := range []string{"scheduler", "webhook"} {
		c := newComponent(t)
		c.load(t, c.config("noop"))
		if err := prometheus.WrapRegistererWith(prometheus.Labels{"component": name}, registry).Register(c.metrics); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := testutil.GatherAndCount(registry, "kubewasm_plugin_instances"); err != nil || n != 2 {
		t.Errorf("got %d series and %v, want 2", n, err)
	}
}

func TestCalledDoesNotAllocate(t *testing.T) {
	c := newComponent(t)
	record := host.CallEvent{Plugin: "zone", Function: "filter", Duration: time.Microsecond, Fuel: 1000}
	failed := record
	failed.Err = &host.TrapError{Err: fmt.Errorf("%w: 1000 instructions", host.ErrFuel)}
	for name, record := range map[string]host.CallEvent{"ok": record, "fuel": failed} {
		if n := testing.AllocsPerRun(100, func() { c.metrics.Called(t.Context(), record) }); n != 0 {
			t.Errorf("%s: %v allocations, want 0", name, n)
		}
	}

	p := c.load(t, c.config("noop"))
	inst, err := p.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer inst.Release()
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		if _, err := inst.Call(ctx, abi.Filter, 0, 0, 0); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("a call that is observed: %v allocations, want 0", n)
	}
}

// TestHammer loads and closes plugins that call and trap, during scrapes: the
// counts are exact all the same.
func TestHammer(t *testing.T) {
	const callers, rounds = 4, 200
	c := newComponent(t)
	cfg := c.config("spins")
	cfg.Limits.Instances = 2
	p := c.load(t, cfg)

	done := make(chan struct{})
	var background sync.WaitGroup
	background.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if _, err := c.registry.Gather(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	background.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			cfg := c.config("noop")
			cfg.Name = fmt.Sprintf("passing-%d", i%3)
			passing, err := c.runtime.Load(t.Context(), cfg, scheduler)
			if err == nil {
				_, _ = call(t.Context(), t, passing, 0, 0)
				err = passing.Close(t.Context())
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	var calls sync.WaitGroup
	for range callers {
		calls.Go(func() {
			for i := range uint64(rounds) {
				_, _ = call(t.Context(), t, p, i%2*9, 0) // Every other traps.
			}
		})
	}
	calls.Wait()
	close(done)
	background.Wait()

	c.scrape(t)
	got := c.scrape(t)
	want := page{
		`kubewasm_calls_total{function="filter",plugin="spins",result="ok"}`:   callers * rounds / 2,
		`kubewasm_calls_total{function="filter",plugin="spins",result="trap"}`: callers * rounds / 2,
		`kubewasm_call_duration_seconds{function="filter",plugin="spins"}`:     callers * rounds,
	}
	delete(got, `kubewasm_call_fuel_total{function="filter",plugin="spins"}`)
	if diff := cmp.Diff(want, got.with("kubewasm_call", `function="filter"`)); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
}

// BenchmarkCalled measures what counting adds to a call, beside the clock that
// the host reads for any observer.
func BenchmarkCalled(b *testing.B) {
	c := newComponent(b)
	ctx := b.Context()
	for _, name := range []string{"zone", "spread", "taints", "affinity"} {
		for _, function := range []string{"pre_filter", "filter", "score"} {
			c.metrics.Called(ctx, host.CallEvent{Plugin: name, Function: function})
		}
	}
	record := host.CallEvent{Plugin: "zone", Function: "filter", Duration: 800 * time.Nanosecond, Fuel: 1000}
	b.Run("one caller", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c.metrics.Called(ctx, record)
		}
	})
	b.Run("a caller per processor", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				c.metrics.Called(ctx, record)
			}
		})
	})
}

// BenchmarkCall compares a call without an observer with one that is counted.
func BenchmarkCall(b *testing.B) {
	for _, name := range []string{"unobserved", "counted"} {
		b.Run(name, func(b *testing.B) {
			c := newComponent(b)
			cfg := c.config("noop")
			if name == "unobserved" {
				cfg.Observer = nil
			}
			inst, err := c.load(b, cfg).Acquire(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			defer inst.Release()
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := inst.Call(ctx, abi.Filter, 0, 0, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A sparse collector has what is not 0, and the state of plugins.
func TestSparseCollector(t *testing.T) {
	c := newComponent(t)
	rt := c.runtime
	sparse := hostmetrics.NewSparse(rt)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(sparse)
	cfg := c.config("spins")
	cfg.Observer = sparse
	p := c.load(t, cfg)
	count := func() map[string]int {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		n := map[string]int{}
		for _, f := range families {
			if strings.HasPrefix(f.GetName(), "kubewasm_plugin_") || f.Metric[0].Label == nil || f.GetName() == "kubewasm_engine_info" {
				continue
			}
			for _, m := range f.Metric {
				n[f.GetName()] += max(1, len(m.GetHistogram().GetBucket()))
			}
		}
		return n
	}
	want := map[string]int{"kubewasm_builds_total": 1}
	if diff := cmp.Diff(want, count()); diff != "" {
		t.Errorf("after a load (-want +got):\n%s", diff)
	}
	_, _ = call(t.Context(), t, p, 9, 0) // A trap.
	want = map[string]int{"kubewasm_builds_total": 1, "kubewasm_calls_total": 1, "kubewasm_call_duration_seconds": 5, "kubewasm_call_fuel_total": 1}
	got := count()
	delete(got, "kubewasm_instance_restarts_total")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("after a trap (-want +got):\n%s", diff)
	}
}
