package hooks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/shadow"
	"github.com/kubewasm/kubewasm/internal/lograte"
)

// Engine calls the plugins of a node agent. It is safe for use by several goroutines.
// Limits.Instances of a plugin bounds the simultaneous calls of that plugin.
type Engine struct {
	plugins []*plugin
	logger  *slog.Logger
	// observer is the Observer of Config, or nil.
	observer Observer
	// requests holds buffers of type *encoding.
	requests sync.Pool
	standing standing

	// changed is closed, and replaced, when a plugin was swapped or the node has changed.
	changed atomic.Pointer[chan struct{}]
	// node is the node given to [Engine.SetNode], nil before.
	node atomic.Pointer[hookmsg.Node]
	// objects are the objects given to [Engine.SetObject]; setObject is held while they change.
	objects   atomic.Pointer[objects]
	setObject sync.Mutex
}

// Config configures an Engine.
type Config struct {
	// Plugins are the plugins, in any order. An engine without plugins decides
	// nothing.
	Plugins []PluginConfig
	// Logger receives failures ignored by a policy, and the fields decided in dry runs; nil drops
	// them.
	Logger *slog.Logger
	// Observer receives the results of decisions; nil for none. The Observer of a plugin's Config
	// receives the calls of its guest.
	Observer Observer
	// HostRoot is the root of the node's file system: "/host" for an agent in a container that
	// mounts it there. Below it, the engine looks up the sources of mounts and the devices that
	// plugins add to containers. Default "/".
	HostRoot string
	// StandIn makes the Engine although modules of plugins cannot be fetched or loaded: such a plugin
	// fails on its requests, so that its failure policy decides, until the module can be loaded; it
	// is tried again. [Engine.Unavailable] returns the reasons.
	StandIn bool
	// Node declares that [Engine.SetNode] is called. Without it, a plugin whose module or
	// configuration declares a read of the node is refused, unless Audit is set.
	Node bool
	// Audit, if not nil, is called for each part of a decision that is not granted, and the
	// decision passes. It is for tools and tests, which apply no decision. On a node, leave it nil.
	Audit func(ctx context.Context, req *hookmsg.Request, plugin string, err *GrantError)
}

// PluginConfig configures a plugin: its module, its requests, and its possible decisions.
type PluginConfig struct {
	// Config is the plugin's module, name and limits. The default of
	// Limits.ResultBytes is 256 KiB, that of Limits.Timeout is 500 ms.
	host.Config `json:",inline"`
	// Order is the place of the plugin. Plugins with a lower number are asked first, and plugins
	// with equal numbers in the order of their names.
	Order int `json:"order,omitempty"`
	// Stages and Levels are the stages and levels of the requests passed to the plugin; none means
	// all.
	Stages []abi.Stage `json:"stages,omitempty"`
	Levels []abi.Level `json:"levels,omitempty"`
	// Selector selects the pods that the plugin is asked about; the zero value selects all.
	Selector Selector `json:"selector,omitzero"`
	// Owns are the fields owned by this plugin alone, by their names in hook.proto: "cpu_shares",
	// "unified[io.weight]", "container_envs[GOGC]". Two plugins that own one field and may be asked
	// about the same request are a mistake of the configuration. If Owns is not empty, a decision
	// that sets another field is an error. So is a decision that sets a field owned by another
	// plugin. The standalone mode resets an owned field that the plugin no longer sets.
	Owns []string `json:"owns,omitempty"`
	// DecisionGrants allow decisions beyond the resources of a cgroup; the default is none.
	// Deciding or owning anything else is an error.
	DecisionGrants Grants `json:"decisionGrants,omitzero"`
	// Objects are the objects of the node that the plugin may look up, see [Engine.SetObject]. They
	// have no namespaces.
	Objects []host.ObjectGrant `json:"objects,omitempty"`
	// Reads are the fields of the request that the plugin reads, as hook.proto names them, or
	// entries of its maps: "pod", "pod_labels[app]". None means the fields declared by its module,
	// or all. Fields that it does not read cost time.
	Reads []string `json:"reads,omitempty"`
	// Mode determines whether decisions count.
	Mode host.Mode `json:"mode,omitempty"`
	// Shadow configures a candidate that is asked in the background, see [Engine.BeginShadow]; nil
	// for none.
	Shadow *shadow.Config `json:"shadow,omitempty"`
	// FailurePolicy applies to a request on which the plugin fails: by an error, a trap, or an
	// invalid decision. A decision is invalid if it is malformed, out of range, not granted or in
	// conflict with that of an earlier plugin. With [host.KeepLast] the subject is the QoS class,
	// the pod or the container.
	FailurePolicy host.FailurePolicy `json:"failurePolicy,omitempty"`
}

// NewEngine loads the plugins in rt. If one of them cannot be loaded, no plugin stays loaded,
// unless Config.StandIn is set.
//
// The errors are those of [host.Runtime.Load], for each plugin that fails, and
// all mistakes of the configuration at once: two plugins that own one field are
// an error that names both.
func NewEngine(ctx context.Context, rt *host.Runtime, cfg Config) (*Engine, error) {
	plugins, err := cfg.parse(rt)
	if err != nil {
		return nil, fmt.Errorf("hooks: configuration: %w", err)
	}
	e := &Engine{logger: lograte.Logger(cfg.Logger, lograte.New(lograte.DefaultBytes)), observer: cfg.Observer}
	e.changed.Store(new(make(chan struct{})))
	e.objects.Store(new(objects{}))
	e.requests.New = func() any { return new(encoding) }
	errs := make([]error, len(plugins))
	var loading sync.WaitGroup
	for i, p := range plugins { // The Runtime bounds the simultaneous compilations.
		p.swapped, p.standIn = e.signal, cfg.StandIn
		loading.Go(func() { errs[i] = p.load(ctx, rt, cfg.Plugins[i].Config) })
	}
	loading.Wait()
	for i, p := range plugins {
		if errs[i] == nil {
			e.plugins = append(e.plugins, p)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, e.Close(context.WithoutCancel(ctx)))
	}
	slices.SortFunc(e.plugins, func(a, b *plugin) int {
		return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.Name(), b.Name()))
	})
	clear(errs)
	for i := range cfg.Plugins {
		if s := cfg.Plugins[i].Shadow; s != nil {
			errs[i] = e.BeginShadow(ctx, cfg.Plugins[i].Name, *s)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, e.Close(context.WithoutCancel(ctx)))
	}
	return e, nil
}

// Check returns the mistakes that can be found without the modules: also two plugins that decide the
// same field.
func (c *Config) Check(rt *host.Runtime) error {
	_, err := c.parse(rt)
	return err
}

// parse reports the mistakes that host.Runtime.Load does not check.
func (c *Config) parse(rt *host.Runtime) ([]*plugin, error) {
	var errs []error
	var plugins []*plugin
	names := map[string]bool{}
	root := cmp.Or(c.HostRoot, "/")
	if root != "/" { // That is there, also for a process that may not look.
		if info, err := os.Stat(root); err != nil {
			errs = append(errs, fmt.Errorf("host root: %w", err))
		} else if !info.IsDir() {
			errs = append(errs, fmt.Errorf("host root: %s is not a directory", root))
		}
	}
	for i := range c.Plugins {
		cfg := &c.Plugins[i]
		fail := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("plugin %q: "+format, append([]any{cfg.Name}, args...)...))
		}
		if names[cfg.Name] {
			fail("the name is used twice")
		}
		names[cfg.Name] = true
		for _, s := range cfg.Stages {
			if !s.Known() {
				fail("stage %d is not known", int32(s))
			}
		}
		for _, l := range cfg.Levels {
			if !l.Known() {
				fail("level %d is not known", int32(l))
			}
		}
		if err := cfg.FailurePolicy.Check(host.KeepLast); err != nil {
			fail("%w", err)
		}
		if err := cfg.Mode.Check(); err != nil {
			fail("%w", err)
		}
		p := &plugin{order: cfg.Order, stages: setOf(cfg.Stages), levels: setOf(cfg.Levels), policy: cmp.Or(cfg.FailurePolicy, host.Fail), monitored: cfg.Mode == host.Monitor}
		var err error
		if p.selector, err = cfg.Selector.parse(); err != nil {
			fail("%w", err)
		}
		if len(cfg.Reads) != 0 {
			reads, err := hookmsg.ParseReads(cfg.Reads)
			if err != nil {
				fail("%w", err)
			}
			p.configured = &reads
		}
		var ownErrs []error
		if cfg.Shadow != nil {
			for _, err := range cfg.Shadow.Check(rt, "shadow") {
				fail("%w", err)
			}
		}
		p.owns, ownErrs = parseOwnership(cfg.Owns)
		for _, err := range ownErrs {
			fail("owns: %w", err)
		}
		for _, err := range checkObjects(cfg.Objects) {
			fail("%w", err)
		}
		for _, o := range cfg.Objects {
			p.resources = append(p.resources, o.Resource)
		}
		for _, err := range cfg.DecisionGrants.validate() {
			fail("%w", err)
		}
		p.grants, p.audit = &cfg.DecisionGrants, c.Audit
		if p.nodeless = !c.Node && c.Audit == nil; p.nodeless && p.configured != nil {
			if err := p.checkNode(p.configured); err != nil {
				fail("%w", err)
			}
		}
		if c.Audit == nil {
			p.node = &node{root: root}
			for _, err := range p.grants.owned(&p.owns) {
				fail("owns: %w", err)
			}
		}
		for j, q := range plugins {
			if p.monitored || q.monitored || !p.overlaps(q) {
				continue
			}
			other := c.Plugins[j].Name
			if fields := p.owns.overlap(&q.owns); len(fields) != 0 {
				slices.Sort(fields)
				for _, field := range slices.Compact(fields) {
					errs = append(errs, &ownerError{Field: field, Plugins: [2]string{other, cfg.Name}})
				}
			}
			p.foreign, q.foreign = append(p.foreign, q), append(q.foreign, p)
		}
		plugins = append(plugins, p)
	}
	return plugins, errors.Join(errs...)
}

// Lack declares the fields of containers that a running mode cannot provide at the stage Reconcile:
// "container_annotations" or "container_envs". A plugin that reads them would decide differently in
// that mode. The error names each plugin whose module or configuration declares a read of one, and
// later swaps to such a version are refused. Plugins without declared reads get none of the fields
// at any stage, which is logged.
//
// mode is for messages: "the standalone mode with a file". Plugins that are not asked about
// containers, or not at that stage, are not affected. Call Lack once, before the first Decide.
func (e *Engine) Lack(ctx context.Context, mode string, fields ...string) error {
	if _, err := hookmsg.ParseReads(fields); err != nil || len(fields) == 0 {
		return err
	}
	var errs []error
	for _, p := range e.plugins {
		if !p.levels.has(abi.LevelContainer) || !p.stages.has(abi.Reconcile) {
			continue
		}
		p.lacks.Store(&lack{mode: mode, fields: fields, rest: hookmsg.Reads{}.Without(fields...)})
		inst, err := p.Acquire(ctx)
		if errors.As(err, new(*host.UnavailableError)) {
			continue // Its first version is checked by the probe.
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		reads, _, _ := declared(inst) // The probe has checked for errors.
		inst.Release()
		if err := p.checkLacks(&reads); err != nil {
			errs = append(errs, fmt.Errorf("plugin %q: %w", p.Name(), err))
		} else if p.configured == nil && !reads.Limited() && e.logger != nil {
			e.logger.LogAttrs(ctx, slog.LevelWarn, "fields are withheld from a runtime hook that does not declare what it reads",
				slog.String("plugin", p.Name()), slog.Any("fields", fields), slog.String("mode", mode))
		}
	}
	return errors.Join(errs...)
}

// Decide calls the plugins that want the request, in their order, and returns their merged
// decision. A plugin's decision counts as a whole or not at all. The result must not be changed,
// since requests may share it.
//
// If a plugin with the policy Fail fails, Decide returns an error that wraps one of these:
//
//   - *[host.TrapError] or *[host.StatusError]: the call failed.
//   - *[DecisionError]: the decision is malformed, out of range, or sets fields owned by another
//     plugin. It wraps a *[GrantError] for each part that is not granted.
//   - *[ConflictError]: two plugins decide a field differently.
//
// After ctx has ended, the error is that of ctx, regardless of policies.
//
// For one plugin: 0 allocs after a hit in the cache of its instance, 1 after a miss:
// TestDecideAllocations.
func (e *Engine) Decide(ctx context.Context, req *hookmsg.Request) (decision *hookmsg.Decision, err error) {
	decision, _, err = e.DecideOwned(ctx, req)
	return decision, err
}

// DecideOwned is like Decide, and also returns the fields owned by the plugins that have answered.
// If the decision does not set one of them, its plugin has chosen not to set it. Nothing is known
// about other fields.
func (e *Engine) DecideOwned(ctx context.Context, req *hookmsg.Request) (decision *hookmsg.Decision, owned hookmsg.Fields, err error) {
	decision, answered, err := e.DecideAnswered(ctx, req)
	return decision, answered.whole, err
}

// DecideAnswered is like DecideOwned, and also distinguishes the files of unified, which plugins
// may own one by one.
func (e *Engine) DecideAnswered(ctx context.Context, req *hookmsg.Request) (decision *hookmsg.Decision, answered Answered, err error) {
	if e.observer != nil {
		start := time.Now()
		defer func() { e.observer.Decided(ctx, req, time.Since(start), decision, err) }()
	}
	encoded := e.requests.Get().(*encoding)
	encoded.of = nil
	defer e.release(encoded)
	asked := e.onNode(req, &encoded.request)
	encoded.objects = *e.objects.Load()
	if ends.has(req.Stage) {
		defer e.forget(req) // The subject has ended, regardless of the plugins' decisions.
	}

	var array [4]part
	parts := array[:0]
	var failed []string
	for _, p := range e.plugins {
		if !p.wants(req) {
			continue
		}
		late := ctx.Err() != nil // The end of ctx is not a failure of the plugin.
		d, err := p.decide(ctx, encoded, asked, parts)
		if b := &p.background; b.shadow.Shadow() != nil || b.profile.Shadow() != nil {
			b.offer(asked, encoded.objects, parts, d, err)
		}
		if err == nil && !p.monitored {
			answered.whole |= p.owns.whole
			if p.owns.partly&hookmsg.FieldUnified != 0 {
				answered.partly = append(answered.partly, &p.owns)
			}
		}
		if err != nil && p.policy == host.KeepLast && ctx.Err() == nil {
			e.failed(ctx, p, asked, false, err)
			failed = append(failed, p.Name())
			d, err = p.keep(ctx, req, parts), nil
		}
		switch {
		case err == nil && p.monitored:
			e.tell(ctx, p, req, d)
		case err == nil && d != nil:
			parts = append(parts, part{p.Name(), d})
		case err == nil:
		case (p.policy == host.Fail && !p.monitored) || ctx.Err() != nil:
			if !late && !errors.Is(err, context.Canceled) {
				e.failed(ctx, p, asked, true, err)
			}
			return nil, Answered{}, fmt.Errorf("decide %s: %w", describe(req), p.quiet(asked, err))
		default:
			e.failed(ctx, p, asked, false, err)
			failed = append(failed, p.Name())
		}
	}
	e.decided(req, parts, failed)
	return merge(parts), answered, nil
}

// Owned returns the fields owned by plugins, including plugins in the mode Monitor.
func (e *Engine) Owned() (owned hookmsg.Fields) {
	for _, p := range e.plugins {
		owned |= p.owns.whole
	}
	return owned
}

// failed reports the failure of a plugin. refused is set if the failure fails the request.
func (e *Engine) failed(ctx context.Context, p *plugin, req *hookmsg.Request, refused bool, err error) {
	err = p.quiet(req, err)
	e.standing.note(req, p.Name(), p.policy, refused, err)
	if e.observer != nil {
		e.observer.Failed(ctx, req, p.Name(), p.policy, refused, err)
	}
	if e.logger == nil {
		return
	}
	message := "ignored the failure of a runtime hook"
	if refused {
		message = "refused by the failure of a runtime hook"
	}
	e.logger.LogAttrs(ctx, slog.LevelWarn, message, slog.String("plugin", p.Name()), slog.String("request", describe(req)),
		slog.Any("err", err), slog.String("cause", CauseOf(err)))
}

// tell reports the decision of a dry run.
func (e *Engine) tell(ctx context.Context, p *plugin, req *hookmsg.Request, d *hookmsg.Decision) {
	if d.Fields() == 0 {
		return
	}
	if e.observer != nil {
		e.observer.Monitored(ctx, req, p.Name(), d)
	}
	if e.logger != nil {
		e.logger.LogAttrs(ctx, slog.LevelInfo, "a runtime hook in the mode Monitor decided",
			slog.String("plugin", p.Name()), slog.String("request", describe(req)), slog.String("decided", d.Fields().String()))
	}
}

// Swap replaces the module of a plugin while it serves, see [host.Plugin.Swap]. If the new version
// cannot be loaded, the current one keeps serving.
func (e *Engine) Swap(ctx context.Context, name string, source host.Source, sha256 string) error {
	return e.swap(ctx, name, source, sha256, func() error { return nil })
}

// swap implements Swap, with a last step as in [host.Plugin.SwapIf].
func (e *Engine) swap(ctx context.Context, name string, source host.Source, sha256 string, final func() error) error {
	i := slices.IndexFunc(e.plugins, func(p *plugin) bool { return p.Name() == name })
	if i < 0 {
		return fmt.Errorf("swap: there is no plugin %q", name)
	}
	if err := e.plugins[i].Plugin.SwapIf(ctx, source, sha256, final); err != nil {
		return err
	}
	return nil
}

func (e *Engine) signal() { close(*e.changed.Swap(new(make(chan struct{})))) }

// Changed returns a channel that is closed when, after the call, a plugin was swapped or the node
// changed in a field that a plugin reads. Earlier decisions may then be outdated.
func (e *Engine) Changed() <-chan struct{} { return *e.changed.Load() }

// Warm creates the maximum number of instances of the plugins, so that the first requests do not
// wait for them.
func (e *Engine) Warm(ctx context.Context) error {
	var errs []error
	for _, p := range e.plugins {
		n := p.instances
		if n == 0 {
			n = runtime.GOMAXPROCS(0)
		}
		var taken []*host.Instance
		for range n {
			inst, err := p.Acquire(ctx)
			if err != nil {
				if !errors.As(err, new(*host.UnavailableError)) {
					errs = append(errs, err)
				}
				break
			}
			taken = append(taken, inst)
		}
		for _, inst := range taken {
			inst.Release()
		}
	}
	return errors.Join(errs...)
}

// Unavailable returns the joined reasons of the plugins without a version in service, each an
// *[host.UnavailableError], or nil.
func (e *Engine) Unavailable() error {
	var errs []error
	for _, p := range e.plugins {
		if state, err := p.State(); state == host.Unavailable {
			errs = append(errs, &host.UnavailableError{Plugin: p.Name(), Err: err})
		}
	}
	return errors.Join(errs...)
}

// describe names a request in messages: "PreCreateContainer of container
// default/web/nginx".
func describe(req *hookmsg.Request) string {
	switch req.Level {
	case abi.LevelQOS:
		return fmt.Sprintf("%s of QoS class %s", req.Stage, req.QOSClass)
	case abi.LevelPod:
		return fmt.Sprintf("%s of pod %s/%s", req.Stage, req.Pod.Namespace, req.Pod.Name)
	case abi.LevelContainer:
		return fmt.Sprintf("%s of container %s/%s/%s", req.Stage, req.Pod.Namespace, req.Pod.Name, req.Container.Name)
	}
	return fmt.Sprintf("%s at %s", req.Stage, req.Level)
}

// Close closes the plugins. It waits for their calls until ctx ends.
func (e *Engine) Close(ctx context.Context) error {
	var errs []error
	for _, p := range e.plugins {
		errs = append(errs, p.background.close(ctx), p.Plugin.Close(ctx))
	}
	return errors.Join(errs...)
}
