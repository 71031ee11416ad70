package admission

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/admission/internal/policy"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/confidential"
	"github.com/kubewasm/kubewasm/host/shadow"
	"github.com/kubewasm/kubewasm/internal/answers"
	"github.com/kubewasm/kubewasm/internal/objects/lookup"
	"github.com/kubewasm/kubewasm/internal/serving"
)

// Plugin is a guest that validates or mutates, or one that converts. It is safe for use by several
// goroutines.
type Plugin struct {
	guest     *host.Plugin
	cfg       PluginConfig
	match     *matcher
	monitors  serving.Monitor
	functions abi.Mask
	// dialect is the ABI of the guest, and binding binds it to the plugin; nil for the ABI of package
	// abi.
	dialect *dialect.Dialect
	binding *dialect.Binding
	// kept holds the objects that a guest of package abi may look up.
	kept lookup.Kept
	// bindings are those of all dialects.
	bindings []*dialect.Binding
	// volatile reports whether the guest may depend on more than its requests, regardless of its
	// calls.
	volatile bool
	// seals is set if the guest may know an object that is entirely confidential.
	seals bool

	described  atomic.Pointer[described]
	runtime    *host.Runtime
	background background
}

// PluginConfig configures a Plugin: its module, when it is asked, and the effect of its failures.
type PluginConfig struct {
	// Config is the plugin's module, name, configuration and limits. The default
	// of Limits.ResultBytes is defaultResultBytes.
	host.Config `json:",inline"`
	// PolicyRules determine when the plugin is asked and how its verdict counts.
	PolicyRules `json:",inline"`
	// AllowedToMutate allows the plugin to change objects. Without it, a plugin that changes one
	// fails. A guest of another ABI is asked as a mutator if it is set, and as a validator
	// otherwise.
	AllowedToMutate bool `json:"allowedToMutate,omitempty"`
	// Dialects are the ABIs, beside that of package abi, that the module may have. The first that
	// detects the module counts.
	Dialects []*dialect.Dialect `json:"-"`
	// Dialect configures the plugin for one of the Dialects, by its name, such as
	// {rego: {gatekeeper: true}}. For a module of another ABI it is a mistake.
	Dialect dialect.Config `json:"dialect,omitempty"`
	// Cluster answers look-ups of guests; without it, they cannot look objects up.
	Cluster Cluster `json:"-"`
	// Objects are the objects that a guest of package abi may look up; the default is none. Load
	// waits a few seconds for the cluster to have them. Until then, look-ups fail, and so does the
	// plugin. For a guest of another ABI they are a mistake.
	Objects []host.ObjectGrant `json:"objects,omitempty"`
	// Converts are the kinds of custom resources that the plugin converts between versions. A
	// plugin with Converts does nothing else: it has no rules, and its failure policy is
	// [host.Fail]. Load a module that also decides twice, under two names.
	Converts []metav1.GroupKind `json:"converts,omitempty"`
	// Shadow configures a candidate that is asked in the background, see [Plugin.BeginShadow]; nil
	// for none.
	Shadow *shadow.Config `json:"shadow,omitempty"`
	// Promote makes a candidate serve; nil swaps the plugin's module.
	Promote func(ctx context.Context, p *shadow.Promotion) error `json:"-"`
	// Swapped is called whenever another module of the plugin has begun to serve, by the goroutine
	// that swaps; nil is not called.
	Swapped func() `json:"-"`
}

// Cluster answers look-ups of policies, from informers or by a client. It is safe for use by
// several goroutines.
type Cluster interface {
	// Get returns an object in JSON, nil if there is none. namespace is empty for objects that have
	// none. If fresh is set, the API server is asked. Neither the Cluster nor the caller may change
	// the returned bytes, also those of List.
	Get(ctx context.Context, kind schema.GroupVersionKind, namespace, name string, fresh bool) ([]byte, error)
	// List returns the objects matched by the selectors, in JSON, from all namespaces if namespace
	// is empty.
	List(ctx context.Context, kind schema.GroupVersionKind, namespace string, labels labels.Selector, fields fields.Selector) ([][]byte, error)
	// Resource returns the resource of a kind of objects, or the reason that it is unknown.
	Resource(ctx context.Context, kind schema.GroupVersionKind) (schema.GroupVersionResource, error)
	// Hold announces that Get and List may be called for a kind of objects until release is called.
	// Caches kept for their answers end with the last hold. Hold itself takes no time and keeps
	// nothing.
	Hold(kind schema.GroupVersionKind) (release func())
	// Keep begins to keep the objects of a resource, of all namespaces if namespace is
	// empty, until the Objects are closed. It does not wait for them. query is their source if they
	// are the values of a query, which services have; the zero value for others.
	Keep(resource schema.GroupVersionResource, namespace string, query host.ObjectQuery) host.Objects
	// Review asks whether a user may do something, as a SubjectAccessReview.
	Review(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error)
}

// defaultResultBytes is the default of Limits.ResultBytes, 16 MiB. It allows for the largest object
// of a review, plus 4 MiB added by a mutator or sent in a guest's requests to its host.
const defaultResultBytes = expansion*storedBytes + 4<<20

// Check returns all mistakes in Objects, Converts and Dialect. [Load] checks them too. Dialect is
// not checked if Dialects is nil.
func (cfg *PluginConfig) Check() (errs []error) {
	errs = append(lookup.CheckGrants(cfg.Objects), lookup.RefuseQueries(cfg.Objects)...)
	if err := checkConverts(cfg); err != nil {
		errs = append(errs, err)
	}
	if cfg.Dialects != nil {
		if _, _, err := cfg.Dialect.Decode(cfg.Dialects); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// Load loads a module as a plugin: a guest of package abi, or of one of cfg.Dialects. It recognizes
// the ABI by the module's imports and exports. The guest validates its settings if it can.
//
// Errors are those of [host.Runtime.Load], and the mistakes of the configuration, joined.
func Load(ctx context.Context, rt *host.Runtime, cfg PluginConfig) (*Plugin, error) {
	var errs []error
	match, err := cfg.PolicyRules.compile()
	if err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, cfg.Check()...)
	errs = append(errs, cfg.checkShadow(rt)...)
	if len(cfg.Objects) != 0 && cfg.Cluster == nil {
		errs = append(errs, errors.New("objects need a cluster, which the server does not have"))
	}
	member, own, err := cfg.Dialect.Decode(cfg.Dialects)
	if err != nil && cfg.Dialects == nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("plugin %q: configuration: %w", cfg.Name, err)
	}
	p := &Plugin{cfg: cfg, match: match, runtime: rt}
	p.volatile = slices.Contains(cfg.Grants, host.GrantClock) || slices.Contains(cfg.Grants, host.GrantRandom)
	if err := p.bind(member, own); err != nil {
		p.forget()
		return nil, fmt.Errorf("plugin %q: configuration: %w", cfg.Name, err)
	}
	p.kept = lookup.Keep(cfg.Cluster, cfg.Objects)
	adapter := host.Adapter{
		Kind:       abi.KindAdmission,
		Imports:    p.hostFunctions(),
		Defaults:   host.Limits{ResultBytes: defaultResultBytes},
		ResetGrown: true,
		NewState:   func() any { return new(policy.Call) },
		Swapped:    cfg.Swapped,
		Confidential: func(inst *host.Instance, s *confidential.Stain) {
			if req := policy.CallOf(inst).Request; req != nil {
				p.findConfidential(req, s)
			}
		},
		Probe: func(ctx context.Context, inst *host.Instance) error {
			if err := p.checkMember(member, inst.Module()); err != nil {
				return err
			}
			if b := p.bindingOf(inst.Module()); b != nil && b.Check != nil {
				defer policy.CallOf(inst).Reset()
				return b.Check(ctx, inst.Dialect())
			}
			return nil
		},
	}
	for _, b := range p.bindings {
		adapter.Dialects = append(adapter.Dialects, b.Host)
	}
	guestCfg := cfg.Config
	guestCfg.Grants = lookup.Granted(cfg.Grants, cfg.Objects)
	guest, err := rt.Load(ctx, guestCfg, adapter)
	if err != nil {
		p.forget()
		return nil, err
	}
	p.guest, p.functions = guest, guest.Functions()
	if guest.Dialect() != "" {
		p.dialect, p.binding = dialect.Of(guest.Module(), cfg.Dialects), p.bindingOf(guest.Module())
		p.seals, p.volatile = p.binding.Sealed, p.volatile || p.binding.Volatile
	}
	refuse := func(err error) (*Plugin, error) {
		return nil, errors.Join(&host.LoadError{Plugin: p.Name(), SHA256: guest.Digest(), Reference: guest.Stats().Reference, Err: err}, p.Close(ctx))
	}
	if len(cfg.Objects) != 0 && p.dialect != nil {
		return refuse(fmt.Errorf("plugin %q: configuration: objects are for guests of package abi, and the module is of %s", p.Name(), guest.Dialect()))
	}
	if err := p.checkFunctions(); err != nil {
		return refuse(err)
	}
	p.kept.Wait(ctx)
	if p.binding != nil && p.binding.Wait != nil {
		p.binding.Wait(ctx)
	}
	if cfg.Shadow != nil {
		if err := p.BeginShadow(ctx, *cfg.Shadow); err != nil {
			return nil, errors.Join(err, p.Close(ctx))
		}
	}
	return p, nil
}

// bind binds all dialects to the plugin. own is the configuration of those of a member.
func (p *Plugin) bind(member string, own any) error {
	for _, d := range p.cfg.Dialects {
		of := dialect.Plugin{Name: p.cfg.Name, Logger: p.cfg.Logger, Settings: p.cfg.GuestConfig, Grants: p.cfg.Grants, Confidential: &p.cfg.Confidential}
		if d.Member == member {
			of.Config = own
		}
		b, err := d.Bind(of)
		if err != nil {
			return fmt.Errorf("dialect.%s: %w", d.Member, err)
		}
		b.Host.Name, b.Host.Detect = d.Name, d.Detect
		p.bindings = append(p.bindings, b)
	}
	return nil
}

// bindingOf returns the binding of the dialect of a module, nil for the ABI of package abi.
func (p *Plugin) bindingOf(m *host.Module) *dialect.Binding {
	if d := dialect.Of(m, p.cfg.Dialects); d != nil {
		return p.bindings[slices.Index(p.cfg.Dialects, d)]
	}
	return nil
}

// checkMember returns an error if a dialect is configured and a module is of another ABI.
func (p *Plugin) checkMember(member string, m *host.Module) error {
	d := dialect.Of(m, p.cfg.Dialects)
	if member == "" || d != nil && d.Member == member {
		return nil
	}
	is := "a guest of package abi"
	if d != nil {
		is = "of " + d.Name
	}
	return fmt.Errorf("dialect.%s is for modules of that dialect, and the module is %s", member, is)
}

// Name returns the name under which the plugin was loaded.
func (p *Plugin) Name() string { return p.guest.Name() }

// Digest returns the SHA-256 of the module, in hexadecimal.
func (p *Plugin) Digest() string { return p.guest.Digest() }

// Dialect returns the name of the ABI of the guest, empty for that of package abi.
func (p *Plugin) Dialect() string { return p.guest.Dialect() }

// Guest returns the plugin's module in the host.
func (p *Plugin) Guest() *host.Plugin { return p.guest }

// Validates reports whether the plugin decides about requests.
func (p *Plugin) Validates() bool { return p.validates() }

// Mutates reports whether the plugin changes objects.
func (p *Plugin) Mutates() bool { return p.mutates() }

// Converts reports whether the plugin converts custom resources.
func (p *Plugin) Converts() bool { return len(p.cfg.Converts) != 0 }

// Close waits until ctx ends for running calls, and frees the guest.
func (p *Plugin) Close(ctx context.Context) error {
	defer p.forget()
	return errors.Join(p.background.close(ctx), p.guest.Close(ctx))
}

// forget ends the plugin's uses of the cluster and of the capabilities.
func (p *Plugin) forget() {
	p.kept.Close()
	for _, b := range p.bindings {
		if b.Close != nil {
			b.Close()
		}
	}
}

func (p *Plugin) rules() *PolicyRules       { return &p.cfg.PolicyRules }
func (p *Plugin) matcher() *matcher         { return p.match }
func (p *Plugin) monitor() *serving.Monitor { return &p.monitors }
func (p *Plugin) logger() *slog.Logger      { return p.guest.CallLogger() }

func (p *Plugin) validates() bool {
	if len(p.cfg.Converts) != 0 {
		return false
	}
	if p.dialect != nil {
		return !p.mutates()
	}
	return p.functions.Has(abi.Validate)
}

func (p *Plugin) mutates() bool {
	if len(p.cfg.Converts) != 0 {
		return false
	}
	if p.dialect != nil {
		return p.binding.Mutating && p.cfg.AllowedToMutate
	}
	return p.functions.Has(abi.Mutate)
}

// decide asks the guest, and passes the call to the shadows that sample it.
//
// 0 allocs when the guest allows the request: TestAllowAllocatesTheAnswerOnly.
func (p *Plugin) decide(ctx context.Context, req *policy.Request, mutating bool) (v verdict) {
	if !p.background.none() {
		if sampled, any := p.background.sample(bytesOf(req)); any {
			told := new(answers.Answers)
			ctx = answers.With(ctx, told)
			defer func() {
				offer(ctx, sampled, told, bytesOf(req), bytesOfVerdict(&v), p.repeat(req, mutating, v, told))
			}()
		}
	}
	// The caller is known here, also for a member of a group.
	defer func() {
		if r := recover(); r != nil {
			v = panicked(p, r)
		}
	}()
	if req.Raw != nil && (p.binding == nil || !p.binding.Raw) {
		return failed(fmt.Errorf("plugin %q: takes no raw requests", p.Name()))
	}
	inst, err := p.guest.Acquire(ctx)
	if err != nil {
		return failed(err)
	}
	defer inst.Release()
	if p.dialect != nil {
		v, err = p.foreign(ctx, inst, req)
	} else {
		v, err = p.native(ctx, inst, req, mutating)
	}
	switch {
	case err != nil:
		v = failed(err)
	case v.Allowed && v.Mutates() && !p.cfg.AllowedToMutate:
		v = failed(&mutationError{p.Name()})
	default:
		v.volatile = v.volatile || p.volatile
	}
	v.sealed = inst.Confided() || p.seals
	return v
}

// mutationError is the failure of a plugin that changes an object without permission.
type mutationError struct{ plugin string }

func (e *mutationError) Error() string {
	return fmt.Sprintf("plugin %q: changes the object, which allowedToMutate does not allow", e.plugin)
}

// foreign asks a guest of another ABI.
func (p *Plugin) foreign(ctx context.Context, inst *host.Instance, req *policy.Request) (verdict, error) {
	c := policy.CallOf(inst)
	c.Begin(req)
	defer c.Reset()
	v, err := p.binding.Ask(ctx, inst.Dialect(), &req.Request)
	if n := resultBytes(&v); err == nil && n > maxResultBytes {
		return verdict{}, fmt.Errorf("plugin %q: its message, warnings and annotations have %d bytes, more than %d", p.Name(), n, maxResultBytes)
	}
	return verdict{Verdict: v}, err
}

// resultBytes returns the length of a guest's messages about a verdict.
func resultBytes(v *dialect.Verdict) int {
	n := len(v.Message)
	if v.Result == nil {
		return n
	}
	n += len(v.Result.Reason)
	for _, warning := range v.Result.Warnings {
		n += len(warning) + 1
	}
	for key, value := range v.Result.AuditAnnotations {
		n += len(key) + len(value) + 2
	}
	for _, e := range v.Result.FieldErrors {
		if n += len(e.Field) + len(e.Type) + len(e.Message) + 3; e.BadValue != nil {
			n += len(*e.BadValue)
		}
	}
	return n
}

// native asks a guest of package abi.
func (p *Plugin) native(ctx context.Context, inst *host.Instance, req *policy.Request, mutating bool) (verdict, error) {
	function := abi.Validate
	if mutating {
		function = abi.Mutate
	}
	c := policy.CallOf(inst)
	c.Begin(req)
	c.Mutating = mutating
	defer c.Reset()
	packed, err := inst.Call(ctx, function)
	if err != nil {
		return verdict{}, err
	}
	v := verdict{Verdict: dialect.Verdict{Result: c.Result}, volatile: c.Looked != nil}
	switch code, number := abi.Unpack[abi.Verdict](packed); number {
	case abi.VerdictAllow:
		v.Allowed, v.Patch, v.Object = true, c.Patch, c.Mutant
	case abi.VerdictDeny:
		v.Code, v.Message = code, inst.Reason()
	case abi.VerdictError:
		reason := inst.Reason()
		if reason == "" {
			reason = "no reason given"
		}
		return verdict{}, fmt.Errorf("plugin %q: could not decide: %s", p.Name(), reason)
	default:
		return verdict{}, fmt.Errorf("plugin %q: %s returned verdict %d, want %d, %d or %d", p.Name(), function, number, abi.VerdictAllow, abi.VerdictError, abi.VerdictDeny)
	}
	return v, nil
}
