package sched

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/minors"
	"github.com/kubewasm/kubewasm/internal/objects"
	"github.com/kubewasm/kubewasm/internal/objects/lookup"
	"github.com/kubewasm/kubewasm/sched/internal/wasmextension"
)

// Load makes a scheduler plugin of a module, from File, URL or OCI unless cfg has a Source, for the
// Go interface that f describes. The guest gets those fields of Pods and Nodes that its module
// declares in its metadata.
//
// Errors are those of [host.Runtime.Load], all mistakes of the configuration at once. A guest is
// refused if it has functions, but none that the scheduler of f's minor calls.
func Load(ctx context.Context, rt *host.Runtime, cfg PluginConfig, f Framework) (*Plugin, error) {
	return load(ctx, rt, cfg, f, nil)
}

// varies reports whether a guest with the grant may answer the same question differently.
func varies(grant string) bool { return grant == host.GrantClock || grant == host.GrantRandom }

// load is Load with defaults of the limits. mistakes are those found earlier in the configuration.
func load(ctx context.Context, rt *host.Runtime, cfg PluginConfig, f Framework, mistakes error) (_ *Plugin, failure error) {
	if cfg.Scope = f.Profile; f.Profile != "" && cfg.Logger != nil {
		cfg.Logger = cfg.Logger.With("profile", f.Profile)
	}
	p := &Plugin{
		framework: f,
		handle:    f.Handle,
		policy:    cfg.FailurePolicy,
		objects:   objects.NewStore(),
		logger:    cfg.Logger,
		observer:  cfg.Observer,
		config:    cfg.GuestConfig,
		closed:    make(chan struct{}),
		cycleFuel: cmp.Or(cfg.CycleFuel, defaultCycleFuel), queueTimeout: cmp.Or(cfg.QueueTimeout, defaultQueueTimeout),
		// The framework cancels a Filter's context as soon as enough nodes were
		// found, and takes an error for a failure of the whole cycle. A call that
		// has begun therefore ends by its own limits only.
		ctx: context.WithoutCancel(ctx),
	}
	_, p.candidate = f.Handle.(*frozenHandle)
	if p.monitored = cfg.Mode == host.Monitor; p.monitored {
		p.policy = host.Ignore
	}
	if p.logger == nil {
		p.logger = slog.New(slog.DiscardHandler)
	}
	p.cache.store, p.cache.logger = p.objects, p.logger.With("plugin", cfg.Name)
	p.cache.disabled.Store(cfg.DisableResultSharing || slices.ContainsFunc(cfg.Grants, varies))
	p.hints.disabled = p.cache.disabled.Load()
	p.peers.logger, p.peers.severity = p.cache.logger, max(cfg.LogSeverity, severityOf(p.logger))
	adapter := host.Adapter{
		Kind:           abi.KindScheduler,
		Imports:        p.imports(),
		Dialects:       wasmextension.Dialects(peerScheduler{p}, wasmextension.Grants{Events: GrantEvents, WaitingPods: GrantWaitingPods}),
		FunctionGrants: []string{GrantPreempt, GrantPreemptAny},
		Probe:          p.declaring(cfg.Reads, p.probe),
		NewState:       func() any { return &instance{} }, Confidential: confide, Again: again,
	}
	guestCfg := cfg.Config
	guestCfg.Grants = lookup.Granted(cfg.Grants, cfg.Objects)
	if err := errors.Join(mistakes, cfg.validate(rt)); err != nil {
		all := []error{fmt.Errorf("plugin %q: arguments: %w", cfg.Name, err), adapter.Validate(&guestCfg)}
		if len(cfg.Module.Check("module")) == 0 { // Validate has reported it otherwise.
			_, err := rt.Source(cfg.Module, "module")
			all = append(all, err)
		}
		return nil, errors.Join(all...)
	}
	defer func() {
		if failure != nil {
			p.closeObjects()
		}
	}()
	if err := p.inform(cfg.Objects); err != nil {
		return nil, fmt.Errorf("plugin %q: %w", cfg.Name, err)
	}
	p.runtime, p.args = rt, cfg
	p.args.Limits = guestCfg.Limits
	guest, err := rt.Load(ctx, guestCfg, adapter)
	if err != nil {
		return nil, err
	}
	if p.callLogger = guest.CallLogger(); p.callLogger == nil {
		p.callLogger = p.logger // It drops everything.
	}
	stats := guest.Stats()
	p.guest, p.label, p.functions, p.instances = guest, stats.Label, guest.Functions(), stats.Limit
	if p.instances > 1 {
		p.binding = make(chan struct{}, p.instances-1)
	}
	offered := p.functions
	if p.peer = guest.Dialect() != ""; p.peer {
		p.cache.disabled.Store(true) // It may keep anything from one call to the next.
		p.functions, offered, err = p.peerFunctions()
	} else if cfg.LogSeverity != 0 {
		err = errors.New("logSeverity is only for guests of kube-scheduler-wasm-extension; the logger's level applies to others")
	}
	if err == nil {
		err = p.leaveOut()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("plugin %q: %w", cfg.Name, err), guest.Close(ctx))
	}
	p.offered = offered &^ f.Lacks
	if err := p.mayPreempt(); err != nil {
		return nil, errors.Join(err, guest.Close(ctx))
	}
	if err := p.watch(); err != nil {
		return nil, errors.Join(fmt.Errorf("plugin %q: %w", cfg.Name, err), p.Close(ctx))
	}
	if cfg.Shadow != nil {
		if err := p.BeginShadow(ctx, *cfg.Shadow); err != nil {
			return nil, errors.Join(err, p.Close(ctx))
		}
	}
	return p, nil
}

// leaveOut leaves out functions of the guest that the minor's scheduler does not call. It returns
// an error if nothing is left.
func (p *Plugin) leaveOut() error {
	missing := p.functions & p.framework.Lacks
	if missing == 0 {
		return nil
	}
	if err := minors.NeverAsked(p.framework.Minor, p.functions, p.framework.Lacks); err != nil {
		return err
	}
	p.functions &^= missing
	if missing &^= minors.Helping; missing == 0 {
		return nil // The functions that they help work without them.
	}
	p.logger.Warn("functions of the guest are not called by this version of Kubernetes", "plugin", p.guest.Name(), "functions", missing.String())
	return nil
}

// Plugin is a guest that is called at the extension points of the scheduler.
//
// Its methods are those of the framework's interfaces, in the types of this package. Where the
// guest has no function, their answers leave everything as it is without the plugin, and the cycle
// may be nil: see [Plugin.Asks].
type Plugin struct {
	framework Framework
	guest     *host.Plugin
	// functions are those of the guest that the scheduler calls, in every dialect, and offered
	// those at whose extension points the plugin has something to do.
	functions, offered abi.Mask
	// peer is set if the guest is of package wasmextension, and peers is used only for such a
	// guest.
	peer  bool
	peers peerCycles
	// instances is the limit of instances, without held ones.
	instances int
	// binding has an element for each call of a binding that has an instance; nil if there is one
	// instance only.
	binding chan struct{}
	config  []byte
	handle  Handle
	ctx     context.Context
	policy  host.FailurePolicy
	// monitored is set in the mode Monitor, and candidate for a plugin that schedules nothing: see
	// [Plugin.BeginShadow].
	monitored, candidate bool
	cache                resultCache
	hints                hintCache
	// cycleFuel and queueTimeout are those of the configuration. queue guards questions about
	// events, and pods those about Pods in the queue.
	cycleFuel    int64
	queueTimeout time.Duration
	queue, pods  queueGuard
	logger       *slog.Logger
	// callLogger is for lines about single calls.
	callLogger *slog.Logger
	observer   host.Observer
	label      string // Of the events of observer.

	objects *objects.Store
	// signature is nil unless the host signs Pods for the guest.
	signature *signature
	cycles    cycleSlots
	// answerBytes is the number of bytes kept of answers to steps.
	answerBytes atomic.Int64
	// calls is the number of calls outside of cycles.
	calls atomic.Uint64
	// trials is the number of running trials.
	trials atomic.Int32
	// pinned is the version on which the latest cycles began.
	pinned atomic.Pointer[pinned]
	// runtime and args load copies of the plugin.
	runtime    *host.Runtime
	args       PluginConfig
	background background
	// informers are those of the objects that the guest may get and list.
	informers map[string]informer
	// budgets are the PodDisruptionBudgets, if the guest names victims.
	budgets   Objects
	selectors lookup.Selectors
	gate      gate
	// activations are the Pods that the guest activates.
	activations activations
	// applies are the changes of objects that the guest wants, and awaiting the objects for which it
	// waits.
	applies  applies
	awaiting awaiting
	// wakes is nil unless the guest registers for events about named resources, and stops end the
	// watches of their objects.
	wakes          *wakes
	stops          []func()
	stopped        bool
	stopsMu        sync.Mutex
	closeInformers sync.Once
	// closed ends the work in the background.
	closed    chan struct{}
	closeOnce sync.Once

	// unsorted is set while the scheduler's own order is used since Less has failed.
	unsorted atomic.Pointer[unsorted]

	mu sync.Mutex
	// registered are the cluster events that the first version of the guest
	// registered for, nil before it was asked.
	registered []event
}

// pinned holds a version for as long as a cycle refers to it. The framework does not always
// report the end of a cycle, so the hold ends with the last reference.
type pinned struct {
	pin *host.Pin
	// apart is set if the version tells equal Nodes apart: it shares no results.
	apart bool
}

// pin returns a hold on the version that serves new cycles, the same for all cycles of
// one version.
func (p *Plugin) pin() *pinned {
	for {
		old := p.pinned.Load()
		if old != nil && old.pin.Current() {
			return old
		}
		pin := p.guest.Pin()
		fresh := &pinned{pin, tellsNodesApart(pin.Module())}
		runtime.AddCleanup(fresh, (*host.Pin).Release, fresh.pin)
		if p.pinned.CompareAndSwap(old, fresh) {
			return fresh
		}
	}
}

// advanceEvery is the number of calls outside of cycles that count as one cycle for dropping unused
// objects.
const advanceEvery = 16

// outside counts a call outside of a cycle: a guest that never sees a cycle must not keep every Pod
// that ever existed.
func (p *Plugin) outside() {
	if p.calls.Add(1)%advanceEvery == 0 {
		p.objects.Advance()
	}
}

// onPod runs f for a Pod outside of a cycle.
func (p *Plugin) onPod(f abi.Function, pod *corev1.Pod, neutral *Status, then func(*instance) *Status) *Status {
	p.outside()
	if err := p.pods.knows(pod); err != nil {
		p.skipped(f)
		if p.policy == host.Ignore {
			return neutral
		}
		return errorStatus(fmt.Errorf("plugin %q: %w", p.guest.Name(), err))
	}
	ctx := p.inQueue()
	defer ctx.stop()
	object := p.objects.Pod(pod)
	inst, err := p.guest.Acquire(ctx)
	if err != nil {
		p.slow(f, p.pods.told(nil, err), err)
		return p.failed(f, err, neutral)
	}
	i := inst.State().(*instance)
	defer p.leave(inst, i)
	ctx.run()
	i.call = call{pod: object, of: pod}
	result, err := p.invoke(ctx, inst, i, f, uint64(object.Ref))
	if !notSynced(err) {
		p.slow(f, p.pods.told(pod, err), err)
	}
	if err != nil {
		return p.failed(f, err, neutral)
	}
	if s := status(abi.Code(result), inst); s != nil || then == nil {
		return s
	}
	return then(i)
}

// Name returns the name under which the plugin was loaded.
func (p *Plugin) Name() string { return p.guest.Name() }

// Functions returns the functions of the guest that the scheduler calls.
func (p *Plugin) Functions() abi.Mask { return p.functions }

// Guest returns the guest, for its state and its versions.
func (p *Plugin) Guest() *host.Plugin { return p.guest }

// Stats returns the state of the guest's instances.
func (p *Plugin) Stats() host.Stats { return p.guest.Stats() }

// Swap replaces the guest's module, as [host.Plugin.Swap] does. Scheduling cycles end on the module
// on which they began. A version that registers for other cluster events than the running one is
// refused, since the scheduler asks for them once.
func (p *Plugin) Swap(ctx context.Context, source host.Source, sha256 string) error {
	return p.guest.Swap(ctx, source, sha256)
}

// Follow swaps the module whenever its source holds a different one, until ctx ends, as
// [host.Plugin.Follow] does.
func (p *Plugin) Follow(ctx context.Context, opts host.FollowOptions) error {
	return p.guest.Follow(ctx, opts)
}

// Close waits until ctx ends for the running calls, and frees the guest.
func (p *Plugin) Close(ctx context.Context) error {
	p.closeOnce.Do(func() {
		close(p.closed)
		p.closeObjects()
	})
	return errors.Join(p.background.close(ctx), p.guest.Close(ctx))
}
