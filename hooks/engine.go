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
	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/shadow"
	"github.com/kubewasm/kubewasm/internal/hookwire"
)

// Engine asks the plugins of a node agent. It is safe for use by several goroutines; the
// number of those that run one plugin at a time is that plugin's Limits.Instances.
type Engine struct {
	plugins []*plugin
	logger  *slog.Logger
	// observer is that of Config, or nil.
	observer Observer
	// requests are buffers, *encoding.
	requests sync.Pool

	mu sync.Mutex
	// changed is closed when a plugin was swapped.
	changed chan struct{}
}

// Config configures an Engine.
type Config struct {
	// Plugins are the plugins, in any order. An engine without plugins decides
	// nothing.
	Plugins []PluginConfig
	// Logger receives the failures that a policy ignores, and which fields were decided
	// in dry runs; nil drops them.
	Logger *slog.Logger
	// Observer receives the results of decisions; nil is none. The Observer of a
	// plugin's Config receives the calls of its guest.
	Observer Observer
	// HostRoot is the root of the node's file system: "/host" for an agent in a container
	// that mounts it there. The engine looks up the sources of mounts and the devices in
	// it that plugins add to containers. Default "/".
	HostRoot string
	// Audit, if it is not nil, is called with each part of a decision that is not
	// granted, and the decision passes. It is for tools and tests, which apply no
	// decision. On a node, leave it nil.
	Audit func(ctx context.Context, req *hookmsg.Request, plugin string, err *GrantError)
}

// PluginConfig is the module of a plugin, when it is asked and what it may decide.
type PluginConfig struct {
	// Config is the plugin's module, name and limits. The default of
	// Limits.ResultBytes is 256 KiB, that of Limits.Timeout is 500 ms.
	host.Config `json:",inline"`
	// Order is the plugin's place: plugins with a lower one are asked first, those with
	// the same in the order of their names.
	Order int
	// Stages and Levels are those of the requests that the plugin is asked; none means
	// all.
	Stages []hookmsg.Stage
	Levels []hookmsg.Level
	// Selector is the pods that the plugin is asked about; the zero value is all.
	Selector Selector
	// Owns are the fields that are this plugin's alone, by their names in
	// hook.proto: "cpu_shares", "unified[io.weight]", "container_envs[GOGC]". Two
	// plugins that own one field and may be asked about the same request are a
	// mistake of the configuration. Once any are given, a decision that sets
	// another field is an error; so is one that sets a field of another plugin's.
	Owns []string
	// DecisionGrants are what the plugin may decide beyond the resources of a cgroup: none by
	// default. A decision with anything else is an error, and so is to own it.
	DecisionGrants Grants
	// Reads are the fields of the request that the plugin reads, as hook.proto names
	// them, or entries of its maps: "pod", "pod_labels[app]". None means what its module
	// declares, or all. What it does not read costs time.
	Reads []string
	// DryRun asks the plugin, checks what it decides and tells Config.Observer, and
	// does nothing else with it.
	DryRun bool
	// Shadow has a candidate asked in the background, see [Engine.BeginShadow]; nil for none.
	Shadow *shadow.Config
	// FailurePolicy says what becomes of a request on which the plugin fails: by an
	// error, a trap, or a decision that is malformed, out of range, not granted or in
	// conflict with an earlier plugin's. With [host.KeepLast] the subject is the QoS
	// class, the pod or the container.
	FailurePolicy host.FailurePolicy
}

// defaultDecisionBytes is the default length of the longest decision: what Kubernetes
// allows the annotations of an object.
const defaultDecisionBytes = 256 << 10

// defaultTimeout is the default time for a decision: well below the two seconds after
// which a runtime drops a plugin (NRI's default).
const defaultTimeout = 500 * time.Millisecond

// plugin is a loaded plugin with what the engine knows of it.
type plugin struct {
	*host.Plugin
	order  int
	stages set[hookmsg.Stage]
	levels set[hookmsg.Level]
	policy host.FailurePolicy

	selector selector
	// configured is what the configuration declares to read, nil if nothing.
	configured *hookwire.Reads
	dryRun     bool
	owns       ownership
	grants     *Grants
	// node is where mounts and devices are looked up, audit that of Config.
	node  *node
	audit func(context.Context, *hookmsg.Request, string, *GrantError)
	// foreign is what others own that may be asked about the same requests.
	foreign []*plugin
	last    lastDecisions
	// instances is the limit of the configuration, 0 for the default.
	instances int
	// source is where the module comes from; pinned says that it cannot change.
	source host.Source
	pinned bool
	// lacks are what a running mode does not know.
	lacks atomic.Pointer[lack]

	runtime    *host.Runtime
	cfg        host.Config
	background background
}

// lack is what a running mode does not know of containers.
type lack struct {
	mode   string
	fields []string
	// rest is what travels to a plugin that does not declare what it reads.
	rest hookwire.Reads
}

// wants reports whether the plugin is asked about the request.
func (p *plugin) wants(req *hookmsg.Request) bool {
	return p.stages.has(req.Stage) && p.levels.has(req.Level) && p.selector.matches(req)
}

// overlaps reports whether there may be a request that both plugins are asked
// about.
func (p *plugin) overlaps(q *plugin) bool {
	return p.stages.overlaps(q.stages) && p.levels.overlaps(q.levels) && !p.selector.disjoint(&q.selector, p.levels.and(q.levels))
}

// set is a set of enum values below 64; the empty one holds everything.
type set[E ~int32] uint64

func (s set[E]) has(e E) bool { return s == 0 || e >= 0 && s&(1<<e) != 0 }

func (s set[E]) overlaps(t set[E]) bool { return s == 0 || t == 0 || s&t != 0 }

// and returns what both hold; the sets must overlap.
func (s set[E]) and(t set[E]) set[E] {
	if s == 0 || t == 0 {
		return s | t
	}
	return s & t
}

func setOf[E ~int32](values []E) (s set[E]) {
	for _, e := range values {
		s |= 1 << e
	}
	return s
}

// NewEngine loads the plugins in rt. If one cannot be loaded, none stays loaded.
//
// The errors are those of [host.Runtime.Load], for each plugin that fails, and
// all mistakes of the configuration at once: two plugins that own one field are
// an *[OwnerError].
func NewEngine(ctx context.Context, rt *host.Runtime, cfg Config) (*Engine, error) {
	plugins, err := cfg.parse()
	if err != nil {
		return nil, fmt.Errorf("hooks: configuration: %w", err)
	}
	e := &Engine{logger: cfg.Logger, observer: cfg.Observer, changed: make(chan struct{})}
	e.requests.New = func() any { return new(encoding) }
	errs := make([]error, len(plugins))
	var loading sync.WaitGroup
	for i, p := range plugins { // The Runtime bounds how many it compiles at a time.
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

// parse reports the mistakes that host.Runtime.Load does not see.
func (c *Config) parse() ([]*plugin, error) {
	var errs []error
	var plugins []*plugin
	names := map[string]bool{}
	root := cmp.Or(c.HostRoot, "/")
	if info, err := os.Stat(root); err != nil {
		errs = append(errs, fmt.Errorf("host root: %w", err))
	} else if !info.IsDir() {
		errs = append(errs, fmt.Errorf("host root: %s is not a directory", root))
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
		p := &plugin{order: cfg.Order, stages: setOf(cfg.Stages), levels: setOf(cfg.Levels), policy: cmp.Or(cfg.FailurePolicy, host.Fail), dryRun: cfg.DryRun}
		var err error
		if p.selector, err = cfg.Selector.parse(); err != nil {
			fail("%w", err)
		}
		if len(cfg.Reads) != 0 {
			reads, err := hookwire.ParseReads(cfg.Reads)
			if err != nil {
				fail("%w", err)
			}
			p.configured = &reads
		}
		var ownErrs []error
		if cfg.Shadow != nil {
			for _, err := range cfg.Shadow.Check("shadow") {
				fail("%w", err)
			}
		}
		p.owns, ownErrs = parseOwnership(cfg.Owns)
		for _, err := range ownErrs {
			fail("owns: %w", err)
		}
		for _, err := range cfg.DecisionGrants.validate() {
			fail("%w", err)
		}
		p.grants, p.audit = &cfg.DecisionGrants, c.Audit
		if c.Audit == nil {
			p.node = &node{root: root}
			for _, err := range p.grants.owned(&p.owns) {
				fail("owns: %w", err)
			}
		}
		for j, q := range plugins {
			if p.dryRun || q.dryRun || !p.overlaps(q) {
				continue
			}
			other := c.Plugins[j].Name
			if fields := p.owns.overlap(&q.owns); len(fields) != 0 {
				slices.Sort(fields)
				for _, field := range slices.Compact(fields) {
					errs = append(errs, &OwnerError{Field: field, Plugins: [2]string{other, cfg.Name}})
				}
			}
			p.foreign, q.foreign = append(p.foreign, q), append(q.foreign, p)
		}
		plugins = append(plugins, p)
	}
	return plugins, errors.Join(errs...)
}

// exchange is the state of an instance: what the guest reads and writes in the
// call that runs.
type exchange struct {
	// request is the engine's, until the call ends.
	request []byte
	// decision is a copy of what the guest wrote, until its next call.
	decision []byte
	// reads is what the instance's module declares, nil before it was looked
	// up: two versions of a plugin may serve at the same time.
	reads *hookwire.Reads
	cache decisionCache
}

var imports = []host.Import{
	host.ToGuest(abi.KindHook.Module(), "request", func(inst *host.Instance) []byte {
		return inst.State().(*exchange).request
	}),
	host.FromGuest(abi.KindHook.Module(), "decision", func(inst *host.Instance, data []byte) {
		x := inst.State().(*exchange)
		x.decision = append(x.decision[:0], data...)
	}),
}

func (p *plugin) load(ctx context.Context, rt *host.Runtime, cfg host.Config) (err error) {
	p.runtime, p.cfg = rt, cfg
	p.instances, p.source, p.pinned = cfg.Limits.Instances, cfg.Source, cfg.SHA256 != ""
	p.Plugin, err = rt.Load(ctx, cfg, host.Adapter{
		Kind:       abi.KindHook,
		Imports:    imports,
		Defaults:   host.Limits{ResultBytes: defaultDecisionBytes, Timeout: defaultTimeout},
		ResetGrown: true,
		NewState:   func() any { return new(exchange) },
		Probe:      p.probe,
	})
	return err
}

// probe checks what a version of the module declares.
func (p *plugin) probe(_ context.Context, inst *host.Instance) error {
	reads, decides, err := declared(inst)
	if err != nil {
		return err
	}
	if err := p.checkLacks(&reads); err != nil {
		return err
	}
	if p.audit == nil {
		var errs []error
		for _, err := range p.grants.owned(&decides) {
			errs = append(errs, err)
		}
		if errs != nil {
			return fmt.Errorf("the module declares what it decides: %w", errors.Join(errs...))
		}
	}
	return nil
}

// declared returns what a module says in its metadata that it reads, and that it
// decides.
func declared(inst *host.Instance) (reads hookwire.Reads, decides ownership, err error) {
	section := inst.Module().Custom(abi.MetadataSection)
	if section == nil {
		return reads, decides, nil
	}
	m, err := metadata.Parse(section)
	if err != nil {
		return reads, decides, err
	}
	if reads, err = hookwire.ParseReads(m.Reads); err != nil {
		return reads, decides, fmt.Errorf("the module declares what it reads: %w", err)
	}
	decides, errs := parseOwnership(m.Decides)
	if err = errors.Join(errs...); err != nil {
		return reads, decides, fmt.Errorf("the module declares what it decides: %w", err)
	}
	return reads, decides, nil
}

// reads returns what travels to an instance of the plugin.
func (p *plugin) reads(inst *host.Instance) *hookwire.Reads {
	if p.configured != nil {
		return p.configured
	}
	x := inst.State().(*exchange)
	if x.reads == nil {
		// The probe has seen that there is no error.
		reads, _, _ := declared(inst)
		x.reads = &reads
	}
	if l := p.lacks.Load(); l != nil && !x.reads.Limited() {
		return &l.rest
	}
	return x.reads
}

// Lack declares the fields that a running mode does not know of containers at the stage
// Reconcile: "container_annotations" or "container_envs". A plugin that reads them would
// decide otherwise in that mode. The error names each plugin whose module or configuration
// declares that it reads one, and no such version is swapped in later. Plugins that do not
// declare what they read get none of the fields at any stage, which is logged.
//
// mode is for messages: "the standalone mode with a file". Plugins that are not asked
// about containers, or not at that stage, are left alone. Call Lack once, before the
// first Decide.
func (e *Engine) Lack(ctx context.Context, mode string, fields ...string) error {
	if _, err := hookwire.ParseReads(fields); err != nil || len(fields) == 0 {
		return err
	}
	var errs []error
	for _, p := range e.plugins {
		if !p.levels.has(hookmsg.LevelContainer) || !p.stages.has(hookmsg.Reconcile) {
			continue
		}
		p.lacks.Store(&lack{mode: mode, fields: fields, rest: hookwire.Reads{}.Without(fields...)})
		inst, err := p.Acquire(ctx)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		reads, _, _ := declared(inst) // The probe has seen that there is no error.
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

// checkLacks reports what a plugin declares to read and a running mode does not know.
func (p *plugin) checkLacks(reads *hookwire.Reads) error {
	l := p.lacks.Load()
	if l == nil {
		return nil
	}
	if p.configured != nil {
		reads = p.configured
	}
	if !reads.Limited() {
		return nil
	}
	for _, field := range l.fields {
		if reads.Has(field) {
			return fmt.Errorf("it reads %s, which %s does not know", field, l.mode)
		}
	}
	return nil
}

// encoding is a request as it travels.
type encoding struct {
	bytes []byte
	// of are the fields that the bytes have, nil if there are no bytes.
	of *hookwire.Reads
}

func (e *encoding) encode(req *hookmsg.Request, reads *hookwire.Reads) []byte {
	if e.of == nil || e.of != reads && !e.of.Equal(reads) {
		e.bytes, e.of = reads.AppendRequest(e.bytes[:0], req), reads
	}
	return e.bytes
}

// Decide asks the plugins that want the request, in their order, and returns their merged
// decision. A plugin's decision counts as a whole or not at all. The result must not be
// changed: it may be that of another request, too.
//
// If a plugin with the policy Fail fails, Decide returns an error that wraps one of these:
//
//   - *[host.TrapError] or *[host.StatusError]: the call failed.
//   - *[DecisionError]: the decision is malformed, out of range, or sets fields of another
//     plugin. It wraps a *[GrantError] for each part that is not granted.
//   - *[ConflictError]: two plugins decide a field differently.
//
// After ctx has ended, the error is that of ctx for all policies.
//
// For one plugin: 0 allocs after a hit in the cache of its instance, 1 after a miss:
// TestDecideAllocations.
func (e *Engine) Decide(ctx context.Context, req *hookmsg.Request) (*hookmsg.Decision, error) {
	if e.observer == nil {
		return e.decide(ctx, req)
	}
	start := time.Now()
	d, err := e.decide(ctx, req)
	e.observer.Decided(ctx, req, time.Since(start), d, err)
	return d, err
}

func (e *Engine) decide(ctx context.Context, req *hookmsg.Request) (*hookmsg.Decision, error) {
	encoded := e.requests.Get().(*encoding)
	encoded.of = nil
	defer e.requests.Put(encoded)
	if forgets(req.Stage) {
		defer e.forget(req) // It is over, whatever the plugins say of it.
	}

	var array [4]part
	parts := array[:0]
	for _, p := range e.plugins {
		if !p.wants(req) {
			continue
		}
		d, err := p.decide(ctx, encoded, req, parts)
		if b := &p.background; b.shadow.Shadow() != nil || b.profile.Shadow() != nil {
			b.offer(req, parts, d, err)
		}
		if err != nil && p.policy == host.KeepLast && ctx.Err() == nil {
			e.ignored(ctx, p, req, err)
			d, err = p.keep(ctx, req, parts), nil
		}
		switch {
		case err == nil && p.dryRun:
			e.tell(ctx, p, req, d)
		case err == nil && d != nil:
			parts = append(parts, part{p.Name(), d})
		case err == nil:
		case (p.policy == host.Fail && !p.dryRun) || ctx.Err() != nil:
			return nil, fmt.Errorf("decide %s: %w", describe(req), err)
		default:
			e.ignored(ctx, p, req, err)
		}
	}
	return merge(parts), nil
}

func (e *Engine) ignored(ctx context.Context, p *plugin, req *hookmsg.Request, err error) {
	if e.observer != nil {
		e.observer.Ignored(ctx, req, p.Name(), p.policy, err)
	}
	if e.logger != nil {
		e.logger.LogAttrs(ctx, slog.LevelWarn, "ignored the failure of a runtime hook",
			slog.String("plugin", p.Name()), slog.String("request", describe(req)), slog.Any("err", err))
	}
}

// tell reports the decision of a dry run.
func (e *Engine) tell(ctx context.Context, p *plugin, req *hookmsg.Request, d *hookmsg.Decision) {
	if d.Fields() == 0 {
		return
	}
	if e.observer != nil {
		e.observer.DryRun(ctx, req, p.Name(), d)
	}
	if e.logger != nil {
		e.logger.LogAttrs(ctx, slog.LevelInfo, "dry run of a runtime hook",
			slog.String("plugin", p.Name()), slog.String("request", describe(req)), slog.String("decided", d.Fields().String()))
	}
}

// decide runs the guest on an encoded request and checks what it decides.
func (p *plugin) decide(ctx context.Context, encoded *encoding, req *hookmsg.Request, earlier []part) (*hookmsg.Decision, error) {
	inst, err := p.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer inst.Release()
	x := inst.State().(*exchange)
	x.request, x.decision = encoded.encode(req, p.reads(inst)), x.decision[:0]
	result, err := inst.Call(ctx, abi.Hook)
	x.request = nil // The buffer is another call's afterwards.
	if err != nil {
		return nil, err
	}
	if code := abi.Code(int32(uint32(result))); code != abi.Success {
		return nil, &host.StatusError{Plugin: p.Name(), Function: abi.Hook.String(), Code: code, Reason: inst.Reason()}
	}
	d, err := p.accept(ctx, x.decision, req, earlier, &x.cache)
	if err == nil && p.policy == host.KeepLast && !forgets(req.Stage) {
		p.last.put(req, x.decision)
	}
	return d, err
}

// accept returns a decision that is valid, in itself and beside those of earlier plugins.
func (p *plugin) accept(ctx context.Context, encoded []byte, req *hookmsg.Request, earlier []part, cache *decisionCache) (*hookmsg.Decision, error) {
	d := cache.get(encoded, req.Level)
	if d == nil {
		var err error
		if d, err = p.parse(encoded, req.Level); err != nil {
			return nil, err
		}
		cache.put(encoded, req.Level, d)
	}
	if err := p.checkGrants(ctx, req, d); err != nil {
		return nil, err
	}
	if err := p.compatible(d, earlier); err != nil {
		return nil, err
	}
	return d, nil
}

// checkGrants reports what a decision sets that the plugin has no grant for. What it
// finds on the node may be something else the next time.
func (p *plugin) checkGrants(ctx context.Context, req *hookmsg.Request, d *hookmsg.Decision) error {
	var errs []error
	for _, err := range p.grants.check(d, p.node) {
		if p.audit != nil {
			p.audit(ctx, req, p.Name(), err)
			continue
		}
		errs = append(errs, err)
	}
	if errs != nil {
		return &DecisionError{Plugin: p.Name(), Err: errors.Join(errs...)}
	}
	return nil
}

// parse parses a decision and checks it in itself.
func (p *plugin) parse(encoded []byte, level hookmsg.Level) (*hookmsg.Decision, error) {
	d, err := hookwire.ParseDecision(encoded)
	if err == nil {
		err = p.checkOwners(d)
	}
	if err == nil {
		err = errors.Join(invalid(d, level)...)
	}
	if err != nil {
		return nil, &DecisionError{Plugin: p.Name(), Err: err}
	}
	return d, nil
}

// checkOwners reports a field that is not the plugin's to set.
func (p *plugin) checkOwners(d *hookmsg.Decision) error {
	if !p.owns.none() {
		if field := p.owns.outside(d); field != "" {
			return fmt.Errorf("it sets %s, which is not among the fields that it owns", field)
		}
		return nil
	}
	for _, q := range p.foreign {
		if field := q.owns.inside(d); field != "" {
			return &OwnerError{Field: field, Plugins: [2]string{q.Name(), p.Name()}}
		}
	}
	return nil
}

// keep returns what the plugin decided last, nil if there is nothing or if it
// does not go together with what earlier plugins decide now, or with the node.
func (p *plugin) keep(ctx context.Context, req *hookmsg.Request, earlier []part) *hookmsg.Decision {
	encoded, ok := p.last.get(req)
	if !ok {
		return nil
	}
	d, err := p.parse(encoded, req.Level)
	if err != nil || p.checkGrants(ctx, req, d) != nil || p.compatible(d, earlier) != nil {
		return nil
	}
	return d
}

// Swap replaces the module of a plugin while it serves, see [host.Plugin.Swap].
// A version that cannot be loaded leaves the running one serving.
func (e *Engine) Swap(ctx context.Context, name string, source host.Source, sha256 string) error {
	i := slices.IndexFunc(e.plugins, func(p *plugin) bool { return p.Name() == name })
	if i < 0 {
		return fmt.Errorf("swap: there is no plugin %q", name)
	}
	if err := e.plugins[i].Plugin.Swap(ctx, source, sha256); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.changed)
	e.changed = make(chan struct{})
	return nil
}

// Follow keeps the plugins at what their sources hold, as [Engine.Swap] does, until
// ctx ends. A version that fails is told to opts.Failed and leaves the running one
// serving. Plugins whose digest the configuration has stay as they are;
// opts.Applied is ignored.
func (e *Engine) Follow(ctx context.Context, opts host.FollowOptions) error {
	var all sync.WaitGroup
	errs := make([]error, len(e.plugins))
	for i, p := range e.plugins {
		if p.pinned {
			continue
		}
		opts := opts
		opts.Applied = p.Digest()
		all.Go(func() {
			errs[i] = host.Follow(ctx, p.source, opts, func(ctx context.Context, module []byte, sha256 string) error {
				return e.Swap(ctx, p.Name(), host.Bytes(module), sha256)
			})
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// Changed returns a channel that is closed when a plugin was swapped since the
// call: what was decided before may be decided otherwise now.
func (e *Engine) Changed() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.changed
}

// Warm makes the instances that the plugins may have, so that the first requests
// do not wait for them.
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
				errs = append(errs, err)
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

// describe names a request in messages: "PreCreateContainer of container
// default/web/nginx".
func describe(req *hookmsg.Request) string {
	switch req.Level {
	case hookmsg.LevelQOS:
		return fmt.Sprintf("%s of QoS class %s", req.Stage, req.QOSClass)
	case hookmsg.LevelPod:
		return fmt.Sprintf("%s of pod %s/%s", req.Stage, req.Pod.Namespace, req.Pod.Name)
	case hookmsg.LevelContainer:
		return fmt.Sprintf("%s of container %s/%s/%s", req.Stage, req.Pod.Namespace, req.Pod.Name, req.Container.Name)
	}
	return fmt.Sprintf("%s at %s", req.Stage, req.Level)
}

// Close closes the plugins, waiting for their calls until ctx ends.
func (e *Engine) Close(ctx context.Context) error {
	var errs []error
	for _, p := range e.plugins {
		errs = append(errs, p.background.close(ctx), p.Plugin.Close(ctx))
	}
	return errors.Join(errs...)
}
