package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/hookmetrics"
	"github.com/kubewasm/kubewasm/hooks/nodewatch"
	"github.com/kubewasm/kubewasm/hooks/runtime/cri"
	"github.com/kubewasm/kubewasm/hooks/runtime/hookstate"
	"github.com/kubewasm/kubewasm/hooks/runtime/nri"
	"github.com/kubewasm/kubewasm/hooks/runtime/runtimehook"
	"github.com/kubewasm/kubewasm/hooks/runtime/standalone"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/hostmetrics"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/host/oci/ocimetrics"
	"github.com/kubewasm/kubewasm/host/shadow"
	"github.com/kubewasm/kubewasm/internal/clusterplugins"
	"github.com/kubewasm/kubewasm/internal/management"
	"github.com/kubewasm/kubewasm/internal/program"
	"github.com/kubewasm/kubewasm/internal/program/statusz"
)

// mode is a running mode, or another task that runs as long as the agent.
type mode interface{ Run(context.Context) error }

// probed is a mode that reports its health.
type probed interface {
	// Ready returns the reason that the mode does not serve, nil if it does.
	Ready() error
	// Healthy returns an error if only a restart can help, nil if nothing hangs.
	Healthy() error
}

// agent holds the engine, the decisions, and the modes that share both.
type agent struct {
	runtime  *host.Runtime
	engine   *hooks.Engine
	state    cgroup.State
	applier  *cgroup.Applier
	enforcer *cgroup.Enforcer
	layout   cgroup.Layout
	modes    []mode
	source   *hookstate.Source
	node     *nodewatch.Watch // nil without the node.
	closers  []io.Closer
	registry *prometheus.Registry
	dryRun   bool
	// status keeps the calls.
	status *statusz.Collector
	// everywhere are the plugins for all nodes.
	everywhere []pluginConfig
	// plugins are the plugins for this node, and places their places in the configuration.
	plugins []pluginConfig
	places  []int
	// relabeled signals that the plugins for the node differ from the loaded ones.
	relabeled chan struct{}
	// readiness waits for plugins that could not be loaded yet.
	readiness host.Readiness
	// reload is nil if the configuration is not followed.
	reload *reload
	// cacheless is set once the cache of compiled modules could not be used.
	cacheless atomic.Bool
}

// standalone reports whether the agent has the standalone mode.
func (a *agent) standalone() bool {
	return slices.ContainsFunc(a.modes, func(m mode) bool { _, ok := m.(*standalone.Reconciler); return ok })
}

// checked is a mode that finds mistakes of the node without running.
type checked interface{ Check(context.Context) error }

// check returns the errors on the node that would keep decisions from being in force. It logs the
// errors that concern only some decisions.
func (a *agent) check(ctx context.Context, logger *slog.Logger) error {
	var errs []error
	if !a.standalone() { // Otherwise the standalone mode checks.
		errs = append(errs, a.enforcer.Check(a.layout))
	}
	if lacks := a.applier.Lacks(a.layout, a.engine.Owned()); lacks != 0 && a.enforcer.Check(a.layout) == nil {
		logger.Warn("the node has no cgroup file for fields that plugins own; these decisions are not in force", slog.String("fields", lacks.String()))
	}
	for _, m := range a.modes {
		if c, ok := m.(checked); ok {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			errs = append(errs, c.Check(ctx))
		}
	}
	return errors.Join(errs...)
}

// count registers a counter with a label.
func (a *agent) count(name, help, label, of string, value func() uint64) {
	a.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: name, Help: help, ConstLabels: prometheus.Labels{label: of},
	}, func() float64 { return float64(value()) }))
}

// gauge registers a gauge of a mode.
func (a *agent) gauge(name, help, mode string, value func() float64) {
	a.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: prometheus.Labels{"mode": mode}}, value))
}

// flag registers a gauge that is 1 while set is.
func (a *agent) flag(name, help string, set *atomic.Bool) {
	a.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
		if set.Load() {
			return 1
		}
		return 0
	}))
}

// configErr returns an error while the configuration is not in service as the file has it.
func (a *agent) configErr() error {
	if a.reload != nil && a.reload.stale.Load() {
		return errors.New("the configuration in the file, or the labels of the node, could not be applied")
	}
	return nil
}

// declared returns the plugins for this node.
func (a *agent) declared() (plugins []hostmetrics.Declared) {
	for i := range a.plugins {
		p := &a.plugins[i]
		plugins = append(plugins, hostmetrics.Declared{Plugin: p.Name, Mode: p.Mode, FailurePolicy: p.FailurePolicy})
	}
	return plugins
}

// newAgent loads the plugins and makes the modes, without starting any.
func newAgent(ctx context.Context, cfg *config, logger *slog.Logger) (_ *agent, err error) {
	a := &agent{relabeled: make(chan struct{}, 1), dryRun: cfg.DryRun, readiness: host.Readiness{Timeout: cfg.ReadyTimeout}}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.close())
		}
	}()
	whole := cfg
	if a.status, a.everywhere = cfg.status, cfg.Plugins; a.status == nil {
		a.status = new(statusz.Collector)
	}
	logger = slog.New(cfg.secrets.Handler(a.status.Log(logger.Handler())))
	if cfg, err = a.forNode(ctx, whole); err != nil {
		return nil, err
	}
	registries := cfg.Registries
	registries.Logger = logger
	artifacts, errArtifacts := oci.New(registries)
	driver, errDriver := parse("cgroup.driver", cfg.Cgroup.Driver, cgroup.Cgroupfs, cgroup.Systemd)
	weight, errWeight := parse("cgroup.weight", cfg.Cgroup.Weight, cgroup.WeightQuadratic, cgroup.WeightLinear)
	kubeletWeight, errKubelet := parse("cgroup.kubeletWeight", cfg.Cgroup.KubeletWeight, cgroup.WeightQuadratic, cgroup.WeightLinear)
	// The agent is root on its node, so by default it does not execute pages of a file that may change.
	a.runtime, err = host.NewRuntime(host.RuntimeConfig{
		CacheDir: cfg.CacheDir, CacheBytes: cfg.CacheBytes, CacheCopy: true, KeepModules: true, Engine: cfg.Engine, MinimumIsolation: cfg.MinimumIsolation,
		CacheError: func(err error) {
			a.cacheless.Store(true)
			logger.Error("the agent runs without its cache", slog.Any("err", err))
		},
	})
	if err != nil {
		return nil, err
	}
	var sources host.Sources
	if artifacts != nil { // Otherwise its mistakes are reported separately.
		sources.OCI = artifacts.Source
	}
	a.runtime.AddSources(sources)
	plugins := cfg.plugins()
	mistakes := []error{errArtifacts, errDriver, errWeight, errKubelet}
	for i := range plugins {
		m := &plugins[i].Module
		err := errors.Join(m.Check("module")...)
		if err == nil && (artifacts != nil || m.OCI == "") {
			_, err = a.runtime.Source(*m, "module")
		}
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("plugin %q: %w", plugins[i].Name, err))
		}
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}
	if cfg.Standalone == nil && cfg.NRI == nil && cfg.RuntimeHook == nil {
		return nil, errors.New("the configuration has none of standalone, nri and runtimeHook")
	}
	if _, why := a.runtime.Engine(); why != nil {
		logger.Warn("calls of plugins take about 50 times as long; engine: compiler refuses to start instead", slog.Any("err", why))
	}
	guests, decisions := hostmetrics.NewSparse(a.runtime), hookmetrics.New(&a.state)
	a.registry = prometheus.NewRegistry()
	var metrics prometheus.Registerer = a.registry
	if cfg.HTTP != nil && cfg.HTTP.NativeHistogramsOnly {
		metrics = hostmetrics.NativeOnly(a.registry)
	}
	guests.Declare(a.configErr, a.declared)
	metrics.MustRegister(program.ThisBuild().Collector("kubewasm-agent"), guests, decisions, ocimetrics.New(artifacts), collectors.NewGoCollector(collectors.WithGoCollectorMemStatsMetricsDisabled()), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	a.flag("kubewasm_agent_cache_unusable", "Whether compiled modules could not be read from or written to the cache since the start.", &a.cacheless)
	if h := cfg.hooks; h != nil {
		metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: clusterplugins.StaleMetric, Help: clusterplugins.StaleHelp}, func() float64 { return h.watch.Silent().Seconds() }))
	}
	free := program.FreeAfterBuilds()
	for i := range plugins {
		plugins[i].Observer, plugins[i].Logger = host.Observers(guests, a.status, free), logger
	}
	observer := observers{decisions}
	if cfg.hooks != nil {
		observer = append(observer, cfg.hooks.trialsOf(cfg.Plugins, plugins))
	}
	if cfg.Events != nil {
		events, err := newEvents(*cfg.Events, os.Getenv("NODE_NAME"), logger)
		if err != nil {
			return nil, err
		}
		observer = append(observer, events)
		a.modes = append(a.modes, events)
		for result, n := range map[string]*atomic.Uint64{"written": &events.written, "dropped": &events.dropped, "failed": &events.failed} {
			a.count("kubewasm_agent_events_total", "Events on refused Pods.", "result", result, n.Load)
		}
	}
	if a.engine, err = hooks.NewEngine(ctx, a.runtime, hooks.Config{Plugins: plugins, HostRoot: cfg.HostRoot, Logger: logger, Observer: observer, Node: cfg.Node != nil, StandIn: cfg.standIn}); err != nil {
		return nil, err
	}
	if err := a.followNode(cfg, whole, logger); err != nil {
		return nil, err
	}
	root := cfg.Cgroup.Root
	if root == "" {
		root = "/sys/fs/cgroup"
	}
	if a.applier, err = cgroup.NewApplier(cgroup.ApplierConfig{Root: root, Weight: weight, KubeletWeight: kubeletWeight, Proc: cfg.Cgroup.Proc, Resctrl: cfg.Cgroup.Resctrl}); err != nil {
		return nil, err
	}
	if a.enforcer, err = cgroup.NewEnforcer(cgroup.EnforcerConfig{State: &a.state, Applier: a.applier, DryRun: cfg.DryRun, Logger: logger, Observer: decisions}); err != nil {
		return nil, err
	}
	var wrong []error
	switch {
	case len(whole.Plugins) == 0 && whole.hooks == nil:
		wrong = append(wrong, errors.New("the configuration has no plugins"))
	case len(cfg.Plugins) == 0:
		logger.Info("no plugin of the configuration is for this node")
	}
	if cfg.Cgroup.Driver == "" {
		if driver, err = a.applier.FindDriver(cfg.Cgroup.KubeletRoot); err != nil {
			wrong = append(wrong, fmt.Errorf("cgroup.driver is not named: %w", err))
		} else {
			logger.Info("the kubelet's cgroup driver was found", slog.String("driver", driver.String()))
		}
	}
	a.layout = cgroup.Layout{Driver: driver, Root: cfg.Cgroup.KubeletRoot, Scope: cfg.Cgroup.Scope}
	if a.source, err = hookstate.New(hookstate.Config{Engine: a.engine, State: &a.state, Enforcer: a.enforcer, Layout: a.layout}); err != nil {
		return nil, err
	}
	return a, errors.Join(append(wrong, a.makeModes(cfg, a.layout, logger))...)
}

// forNode returns the configuration with only the plugins for this node.
func (a *agent) forNode(ctx context.Context, whole *config) (*config, error) {
	a.plugins = whole.Plugins
	if err := whole.checkNodes(); err != nil || !whole.selectsNodes() {
		return whole, err
	}
	watch, err := newWatch(whole.Node, nodewatch.Config{Set: func(context.Context, *hookmsg.Node) {}})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, nodeWait)
	defer cancel()
	var of map[string]string
	node, err := watch.Get(ctx)
	if err == nil {
		of = node.Labels
	}
	if whole.hooks != nil {
		of, err = whole.hooks.labels(of, err)
	}
	if err != nil {
		return nil, fmt.Errorf("select the plugins for this node: %w", err)
	}
	own := *whole
	own.Plugins, a.places = nil, whole.forNode(of)
	for _, i := range a.places {
		own.Plugins = append(own.Plugins, whole.Plugins[i])
	}
	a.plugins = own.Plugins
	return &own, nil
}

// newWatch returns a watch of a node.
func newWatch(cfg *nodeConfig, more nodewatch.Config) (*nodewatch.Watch, error) {
	more.Name, more.Sys = cmp.Or(cfg.Name, os.Getenv("NODE_NAME")), cmp.Or(cfg.Sys, "/sys")
	more.URL, more.TokenFile, more.CAFile = cfg.URL, cfg.TokenFile, cfg.CAFile
	return nodewatch.New(more)
}

// followNode creates the watch of the node. whole has the plugins of all nodes.
func (a *agent) followNode(all, whole *config, logger *slog.Logger) (err error) {
	cfg := all.Node
	if cfg == nil {
		return nil
	}
	var objects []string
	for i := range all.Plugins {
		for _, o := range all.Plugins[i].Objects {
			objects = append(objects, o.Resource)
		}
	}
	slices.Sort(objects)
	set := func(ctx context.Context, node *hookmsg.Node) {
		if whole.selectsNodes() && !slices.Equal(whole.forNode(node.Labels), a.places) {
			select {
			case a.relabeled <- struct{}{}:
			default:
			}
		}
		a.engine.SetNode(ctx, node)
	}
	a.node, err = newWatch(cfg, nodewatch.Config{Set: set, Objects: slices.Compact(objects), SetObject: a.engine.SetObject, Logger: logger})
	if err != nil {
		return err
	}
	a.modes = append(a.modes, a.node)
	a.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kubewasm_agent_node_stale_seconds", Help: "Time since the last answer of the API server about the node, whose last state stays in use; 0 while the node is watched.",
	}, func() float64 { return a.node.Since().Seconds() }))
	return nil
}

// nodeWait bounds the time for which the modes wait for the node, so that plugins that read it do
// not fail on the first requests.
const nodeWait = 10 * time.Second

// await waits until a mode can ask plugins.
func (a *agent) await(ctx context.Context, m mode) {
	if a.node == nil {
		return
	}
	switch m.(type) {
	case *standalone.Reconciler, *nri.Plugin, *runtimehook.Server:
		ctx, cancel := context.WithTimeout(ctx, nodeWait)
		defer cancel()
		_ = a.node.Wait(ctx) // Readiness and the plugins report an error.
	}
}

func (a *agent) makeModes(cfg *config, layout cgroup.Layout, logger *slog.Logger) error {
	if err := a.enforcer.Check(layout); err != nil && cfg.Standalone == nil {
		logger.Error("decisions of the plugins are not in force", slog.Any("err", err))
	}
	if s := cfg.Standalone; s != nil {
		discovery, err := a.discovery(cfg, layout)
		if err != nil {
			return err
		}
		m, err := standalone.New(standalone.Config{
			Engine: a.engine, State: &a.state, Enforcer: a.enforcer, Discovery: discovery, Layout: layout, Resync: s.Resync, Logger: logger,
		})
		if err != nil {
			return err
		}
		a.modes = append(a.modes, m)
		a.count("kubewasm_agent_foreign_cgroups_total", "Claims of cgroups that belong to another pod or container.", "mode", "standalone", m.Refused)
		a.gauge("kubewasm_agent_inotify_watches", "Watched cgroup directories; each counts against fs.inotify.max_user_watches.", "standalone", func() float64 {
			n, _ := m.Watches()
			return float64(n)
		})
		a.gauge("kubewasm_agent_inotify_full", "1 while the kernel refuses to watch more cgroups. Their changes are found at the next resync.", "standalone", func() float64 {
			if _, all := m.Watches(); all {
				return 0
			}
			return 1
		})
	}
	if n := cfg.NRI; n != nil {
		m, err := nri.New(nri.Config{
			Engine: a.engine, State: &a.state, Enforcer: a.enforcer, Layout: layout, Socket: n.Socket, Index: n.Index, FailClosed: n.FailClosed, Logger: logger,
		})
		if err != nil {
			return err
		}
		a.modes = append(a.modes, m)
		a.count("kubewasm_agent_foreign_cgroups_total", "Claims of cgroups that belong to another pod or container.", "mode", "nri", m.Refused)
		a.count("kubewasm_agent_connections_total", "Connections to the container runtime.", "mode", "nri", m.Connections)
	}
	if h := cfg.RuntimeHook; h != nil {
		m, err := runtimehook.New(runtimehook.Config{
			Engine: a.engine, State: &a.state, Enforcer: a.enforcer, Layout: layout, Socket: h.Socket, Registration: h.Registration, FailurePolicy: h.FailurePolicy, Logger: logger,
		})
		if err != nil {
			return err
		}
		a.modes = append(a.modes, m)
		a.count("kubewasm_agent_foreign_cgroups_total", "Claims of cgroups that belong to another pod or container.", "mode", "runtimeHook", m.Refused)
	}
	if m := cfg.Management; m != nil {
		if err := m.Check(); err != nil {
			return err
		}
		a.modes = append(a.modes, &managed{m, a, logger})
	}
	if h := cfg.HTTP; h != nil {
		m, err := newServer(h.Address, h.State, a, a.page(cfg), logger)
		if err != nil {
			return err
		}
		a.modes = append(a.modes, m)
	}
	return nil
}

func (a *agent) discovery(cfg *config, layout cgroup.Layout) (standalone.Discovery, error) {
	s := cfg.Standalone
	n := 0
	for _, given := range []bool{s.Kubelet != nil, s.CRI != "", s.File != ""} {
		if given {
			n++
		}
	}
	if n != 1 {
		return nil, fmt.Errorf("standalone has %d of kubelet, cri and file, want one", n)
	}
	switch {
	case s.Kubelet != nil:
		return standalone.Kubelet(standalone.KubeletConfig{
			URL: s.Kubelet.URL, TokenFile: s.Kubelet.TokenFile, CAFile: s.Kubelet.CAFile,
			ServerName: cmp.Or(s.Kubelet.ServerName, os.Getenv("NODE_NAME")),
		})
	case s.CRI != "":
		d, err := cri.New(cri.Config{Endpoint: s.CRI, Layout: layout})
		if err == nil {
			a.closers = append(a.closers, d)
		}
		return d, err
	}
	return standalone.File(s.File), nil
}

// close frees the parts of the agent.
func (a *agent) close() error {
	var errs []error
	for _, c := range a.closers {
		errs = append(errs, c.Close())
	}
	if a.enforcer != nil {
		a.enforcer.Close()
	}
	if a.applier != nil {
		errs = append(errs, a.applier.Close())
	}
	if a.engine != nil {
		errs = append(errs, a.engine.Close(context.Background()))
	}
	if a.runtime != nil {
		errs = append(errs, a.runtime.Close(context.Background()))
	}
	return errors.Join(errs...)
}

// managed is the mode that serves the management routes.
type managed struct {
	cfg    *management.Config
	agent  *agent
	logger *slog.Logger
}

// Run implements mode. The node needs the agent more than the routes: while they cannot be served,
// the other modes go on.
func (m *managed) Run(ctx context.Context) error {
	for {
		err := m.cfg.Run(ctx, m.members, m.logger)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		m.logger.Error("the management routes are not served", slog.Any("err", err))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(host.DefaultFollowInterval):
		}
	}
}

// members returns the plugins of the agent.
func (m *managed) members() (members []management.Member) {
	for i := range m.agent.plugins {
		p := &m.agent.plugins[i]
		if guest := m.agent.engine.Guest(p.Name); guest != nil {
			members = append(members, management.Member{Name: p.Name, Guest: guest, Plugin: hook{m.agent.engine, p.Name}, Mode: p.Mode, FailurePolicy: p.FailurePolicy})
		}
	}
	return members
}

// hook is a plugin of the engine.
type hook struct {
	engine *hooks.Engine
	name   string
}

func (h hook) BeginShadow(ctx context.Context, cfg shadow.Config) error {
	return h.engine.BeginShadow(ctx, h.name, cfg)
}
func (h hook) Shadow() *shadow.Shadow { return h.engine.Shadow(h.name) }
func (h hook) BeginProfile(ctx context.Context, calls int) error {
	return h.engine.BeginProfile(ctx, h.name, calls)
}
func (h hook) Profile() *shadow.Shadow { return h.engine.Profile(h.name) }
