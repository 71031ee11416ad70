package hooks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookpb"
	"github.com/kubewasm/kubewasm/host"
)

// Engine holds the plugins of a node agent and asks them. It is safe for use by
// several goroutines; how many run one plugin at a time is that plugin's
// Limits.Instances.
type Engine struct {
	plugins []*plugin
	logger  *slog.Logger
	// requests are buffers of encoded requests, *[]byte.
	requests sync.Pool
}

// Config configures an Engine.
type Config struct {
	// Plugins are the plugins, in any order. An engine without plugins decides
	// nothing.
	Plugins []PluginConfig
	// Logger receives the failures that a policy ignores; nil drops them.
	Logger *slog.Logger
}

// PluginConfig says which module a plugin is and when it is asked.
type PluginConfig struct {
	// Module is the plugin's module, name and limits. Its Kind, Imports and
	// NewState belong to the engine and must be empty. The default of
	// Limits.ResultBytes is DefaultDecisionBytes.
	Module host.Config
	// Order is the plugin's place: lower ones are asked first, those of the
	// same order by their names.
	Order int
	// Stages and Levels are what the plugin is asked about; none means all.
	Stages []hookpb.Stage
	Levels []hookpb.Level
	// FailurePolicy says what becomes of a request on which the plugin fails.
	FailurePolicy FailurePolicy
}

// DefaultDecisionBytes is the length of the longest decision that a guest may
// make, unless its limits say otherwise: what Kubernetes allows the annotations
// of an object.
const DefaultDecisionBytes = 256 << 10

// FailurePolicy says what becomes of a request on which a plugin fails: by an
// error, a trap, or a decision that is malformed, out of range or in conflict
// with an earlier plugin's.
type FailurePolicy uint8

const (
	// Fail fails the request. The default.
	Fail FailurePolicy = iota
	// Ignore goes on as if the plugin had decided nothing, and logs why.
	Ignore
)

var policyNames = [...]string{"Fail", "Ignore"}

// String returns the name of the policy.
func (p FailurePolicy) String() string {
	if int(p) < len(policyNames) {
		return policyNames[p]
	}
	return fmt.Sprintf("failurePolicy(%d)", uint8(p))
}

// plugin is a loaded plugin with what the engine knows of it.
type plugin struct {
	*host.Plugin
	order  int
	stages set[hookpb.Stage]
	levels set[hookpb.Level]
	policy FailurePolicy
}

// set is a set of enum values below 64; the empty one holds everything.
type set[E ~int32] uint64

func (s set[E]) has(e E) bool { return s == 0 || e >= 0 && s&(1<<e) != 0 }

func setOf[E ~int32](values []E) (s set[E]) {
	for _, e := range values {
		s |= 1 << e
	}
	return s
}

// NewEngine loads the plugins in rt. If one cannot be loaded, none stays loaded.
//
// The errors are those of [host.Runtime.Load], for each plugin that fails, and
// all mistakes of the configuration at once.
func NewEngine(ctx context.Context, rt *host.Runtime, cfg Config) (*Engine, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("hooks: configuration: %w", err)
	}
	e := &Engine{logger: cfg.Logger}
	e.requests.New = func() any { return new([]byte) }
	var errs []error
	for i := range cfg.Plugins {
		p, err := load(ctx, rt, cfg.Plugins[i])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		e.plugins = append(e.plugins, p)
	}
	if len(errs) != 0 {
		return nil, errors.Join(append(errs, e.Close(context.WithoutCancel(ctx)))...)
	}
	slices.SortFunc(e.plugins, func(a, b *plugin) int {
		return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.Name(), b.Name()))
	})
	return e, nil
}

// validate reports the mistakes that host.Runtime.Load does not see.
func (c *Config) validate() error {
	var errs []error
	names := map[string]bool{}
	for i := range c.Plugins {
		p := &c.Plugins[i]
		fail := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("plugin %q: "+format, append([]any{p.Module.Name}, args...)...))
		}
		if names[p.Module.Name] {
			fail("the name is used twice")
		}
		names[p.Module.Name] = true
		if p.Module.Kind != 0 || p.Module.Imports != nil || p.Module.NewState != nil {
			fail("kind, imports and newState of the module are the engine's")
		}
		for _, s := range p.Stages {
			if !s.Known() {
				fail("stage %d is not known", int32(s))
			}
		}
		for _, l := range p.Levels {
			if !l.Known() {
				fail("level %d is not known", int32(l))
			}
		}
		if int(p.FailurePolicy) >= len(policyNames) {
			fail("failure policy %d is not known", p.FailurePolicy)
		}
	}
	return errors.Join(errs...)
}

// exchange is the state of an instance: what the guest reads and writes in the
// call that runs.
type exchange struct {
	request  []byte
	decision []byte
}

var imports = []host.Import{
	host.GuestReads(abi.ModuleHooks, abi.ImportRequest, func(inst *host.Instance) []byte {
		return inst.State().(*exchange).request
	}),
	host.GuestWrites(abi.ModuleHooks, abi.ImportDecision, func(inst *host.Instance, data []byte) {
		x := inst.State().(*exchange)
		x.decision = append(x.decision[:0], data...)
	}),
}

func load(ctx context.Context, rt *host.Runtime, cfg PluginConfig) (*plugin, error) {
	module := cfg.Module
	module.Kind = abi.KindHook
	module.Imports = imports
	module.NewState = func() any { return new(exchange) }
	if module.Limits.ResultBytes == 0 {
		module.Limits.ResultBytes = DefaultDecisionBytes
	}
	p, err := rt.Load(ctx, module)
	if err != nil {
		return nil, err
	}
	return &plugin{Plugin: p, order: cfg.Order, stages: setOf(cfg.Stages), levels: setOf(cfg.Levels), policy: cfg.FailurePolicy}, nil
}

// Decide asks the plugins that want the request, in their order, and returns
// what they decide together; it is the caller's. A plugin's decision counts as a
// whole or not at all.
//
// A plugin with the policy Fail that fails is an error; its cause is found by
// errors.As: *[host.TrapError] or *[host.StatusError], *[DecisionError] for a
// decision that is malformed or out of range, *[ConflictError] for two plugins
// that decide a field differently. When ctx ends, the error is its own, whatever
// the policies.
//
// 1 alloc for one plugin that decides numbers: TestDecideAllocatesOnce.
func (e *Engine) Decide(ctx context.Context, req *hookpb.Request) (*hookpb.Decision, error) {
	buf := e.requests.Get().(*[]byte)
	defer e.requests.Put(buf)
	*buf = (*buf)[:0]

	var array [4]part
	parts := array[:0]
	for _, p := range e.plugins {
		if !p.stages.has(req.Stage) || !p.levels.has(req.Level) {
			continue
		}
		if len(*buf) == 0 {
			*buf = hookpb.AppendRequest(*buf, req)
		}
		d, err := p.decide(ctx, *buf)
		if err == nil {
			err = check(p.Name(), d, req, parts)
		}
		switch {
		case err == nil:
			parts = append(parts, part{p.Name(), d})
		case p.policy == Fail || ctx.Err() != nil:
			return nil, fmt.Errorf("decide %s: %w", describe(req), err)
		case e.logger != nil:
			e.logger.LogAttrs(ctx, slog.LevelWarn, "ignored the failure of a runtime hook",
				slog.String("plugin", p.Name()), slog.String("request", describe(req)), slog.Any("error", err))
		}
	}
	return merge(parts), nil
}

// decide runs the guest on an encoded request.
func (p *plugin) decide(ctx context.Context, request []byte) (*hookpb.Decision, error) {
	inst, err := p.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer inst.Release()
	x := inst.State().(*exchange)
	x.request, x.decision = request, x.decision[:0]
	result, err := inst.Call(ctx, abi.Hook)
	x.request = nil // The buffer is somebody else's after the call.
	if err != nil {
		return nil, err
	}
	if code := abi.Code(int32(uint32(result))); code != abi.Success {
		return nil, &host.StatusError{Plugin: p.Name(), Function: abi.Hook.String(), Code: code, Reason: inst.Reason()}
	}
	d, err := hookpb.ParseDecision(x.decision)
	if err != nil {
		return nil, &DecisionError{Plugin: p.Name(), Err: err}
	}
	return d, nil
}

// describe names a request in messages: "PreCreateContainer of container
// default/web/nginx".
func describe(req *hookpb.Request) string {
	switch req.Level {
	case hookpb.LevelQOS:
		return fmt.Sprintf("%s of QoS class %s", req.Stage, req.QOSClass)
	case hookpb.LevelPod:
		return fmt.Sprintf("%s of pod %s/%s", req.Stage, req.Pod.Namespace, req.Pod.Name)
	case hookpb.LevelContainer:
		return fmt.Sprintf("%s of container %s/%s/%s", req.Stage, req.Pod.Namespace, req.Pod.Name, req.Container.Name)
	}
	return fmt.Sprintf("%s at %s", req.Stage, req.Level)
}

// Close closes the plugins, waiting for their calls until ctx ends.
func (e *Engine) Close(ctx context.Context) error {
	var errs []error
	for _, p := range e.plugins {
		errs = append(errs, p.Plugin.Close(ctx))
	}
	return errors.Join(errs...)
}
