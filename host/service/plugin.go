package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"google.golang.org/protobuf/reflect/protoreflect"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/codes"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/shadow"
	"github.com/kubewasm/kubewasm/internal/lograte"
	"github.com/kubewasm/kubewasm/internal/nativehost"
	"github.com/kubewasm/kubewasm/internal/objects"
	"github.com/kubewasm/kubewasm/internal/objects/lookup"
	"github.com/kubewasm/kubewasm/internal/serviceschema"
)

// Config configures a plugin: its module, its limits and grants, and its failure policy.
type Config struct {
	// Config is the plugin's module, name and limits. The default of Limits.ResultBytes is
	// 1 MiB. It bounds the memory of a response, too: 32 bytes for each, and 1 MiB.
	host.Config `json:",inline"`
	// FailurePolicy decides on the result of a method if the plugin fails to answer: with
	// [host.Fail] the error, with [host.Ignore] an empty response and [ErrIgnored]. Other errors,
	// such as those of the request, of the caller's context and of a closed plugin, are returned in
	// any case. The same goes for answers: errors whose code is no failure, see
	// [codes.Code.Failure].
	FailurePolicy host.FailurePolicy `json:"failurePolicy,omitempty"`
	// Mode decides whether the answers of the plugin count. With [host.Monitor] it is called, its
	// answers are logged, and each method returns an empty response beside [ErrMonitored].
	Mode host.Mode `json:"mode,omitempty"`
	// Shadow has a candidate called in the background, see [Plugin.BeginShadow]; nil for none.
	Shadow *shadow.Config `json:"shadow,omitempty"`
	// Reads are the fields that the plugin gets of the objects in messages, beside their names,
	// namespaces and UIDs: pod.metadata.labels, deployment.spec.replicas,
	// pod.metadata.annotations[example.com/zone], tenant.spec.plan of a custom resource. All others
	// read as empty. If no path begins with a kind, the plugin gets every field of it. Custom
	// resources without a Go type are an exception: once a path begins with one, the plugin gets
	// only the names, namespaces and UIDs of the others. Their kinds are the names of their
	// messages, in lower case.
	Reads []string `json:"reads,omitempty"`
	// Objects are the objects, and the values of metrics, that the plugin may look up; the default is
	// none. Load waits some seconds for the cluster to have them. Until then, look-ups fail, and so
	// does the plugin. Index and Apply of a grant have no effect.
	Objects []host.ObjectGrant `json:"objects,omitempty"`
	// Cluster keeps the objects that plugins look up; without it, they cannot look objects up. It may
	// be a [github.com/kubewasm/kubewasm/admission/webhook/clustercache.Cluster].
	Cluster interface {
		// Keep begins to keep the objects of a resource, of all namespaces if namespace is empty, until
		// the Objects are closed. query is their source if they are the values of a query.
		Keep(resource schema.GroupVersionResource, namespace string, query host.ObjectQuery) host.Objects
	} `json:"-"`
	// DetectChanges is for tests of programs: a call panics if an object in it was changed since it
	// was passed before, and has the same UID and resource version. No plugin would see the change.
	DetectChanges bool `json:"detectChanges,omitempty"`
}

// defaultResultBytes is the default length of the longest response.
const defaultResultBytes = 1 << 20

// ErrUnimplemented is the error of a method that a plugin's module lacks.
var ErrUnimplemented error = &Error{codes.Unimplemented, errors.New("the plugin does not have the method")}

// Plugin is a plugin of an extension point. It is safe for use by several goroutines; the
// number of calls at a time is Limits.Instances. Swap, Follow and Close are those of
// [host.Plugin].
type Plugin struct {
	*host.Plugin
	name       string
	definition *Definition
	schema     *serviceschema.Schema
	policy     host.FailurePolicy
	// monitored is set in the mode Monitor.
	monitored  bool
	callLogger *slog.Logger
	shadow     shadow.Place
	// cfg, runtime and hosts are those of Load.
	cfg     Config
	runtime *host.Runtime
	hosts   []HostService
	// serving is the plugin whose calls a candidate repeats, nil for others. They share objects.
	serving *Plugin
	// native is set in tests that run the plugin in this process.
	native *native

	// resultBytes is the length of the longest response.
	resultBytes int

	// kept holds the objects that the plugin may look up.
	kept  lookup.Kept
	store *objects.Store
	reads reads
	mu    sync.RWMutex
	kinds map[reflect.Type]*objects.Kind
}

// Load loads a plugin of the extension point d. hosts are the services that it may call.
//
// Errors are those of [host.Runtime.Load], and a *[SchemaError] for a module that lacks the
// extension point, or has a different one of that name.
func Load(ctx context.Context, rt *host.Runtime, cfg Config, d *Definition, hosts ...HostService) (*Plugin, error) {
	return load(ctx, rt, cfg, d, nil, hosts)
}

// load loads a plugin, or a candidate for a serving one.
func load(ctx context.Context, rt *host.Runtime, cfg Config, d *Definition, serving *Plugin, hosts []HostService) (*Plugin, error) {
	p := &Plugin{
		name: cfg.Name, definition: d, policy: cfg.FailurePolicy, monitored: cfg.Mode == host.Monitor,
		cfg: cfg, runtime: rt, hosts: hosts, serving: serving,
		store: objects.NewStore(), kinds: map[reflect.Type]*objects.Kind{},
		resultBytes: cmp.Or(cfg.Limits.ResultBytes, defaultResultBytes),
	}
	switch {
	case serving != nil:
		p.store = serving.store
	case cfg.DetectChanges:
		p.store = objects.NewDetectingStore()
	}
	var err error
	if p.schema, err = serviceschema.Parse([]byte(d.Schema)); err != nil {
		return nil, fmt.Errorf("plugin %q: %s: %w", cfg.Name, d.Name, err)
	}
	p.reads = newReads(cfg.Reads, p.schema)
	mistakes := []error{cfg.FailurePolicy.Check(), cfg.Mode.Check(), p.reads.check(d, hosts)}
	if cfg.Shadow != nil {
		mistakes = append(mistakes, cfg.Shadow.Check(rt, "shadow")...)
	}
	mistakes = append(append(mistakes, lookup.CheckGrants(cfg.Objects)...), lookup.CheckQueries(cfg.Objects)...)
	if len(cfg.Objects) != 0 && cfg.Cluster == nil {
		mistakes = append(mistakes, errors.New("objects need a cluster, which the program does not have"))
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, fmt.Errorf("plugin %q: configuration: %w", cfg.Name, err)
	}
	p.kept = lookup.Keep(cfg.Cluster, cfg.Objects)
	if source, ok := cfg.Module.Source.(nativehost.Service); ok {
		p.native = &native{source: source, hosts: hosts}
		p.callLogger = lograte.Logger(cfg.Logger, lograte.New(cfg.Limits.Or(host.DefaultLimits()).LogBytes))
		return p, nil
	}
	cfg.Grants = lookup.Granted(cfg.Grants, cfg.Objects)
	p.Plugin, err = rt.Load(ctx, cfg.Config, p.adapter(hosts))
	if err != nil {
		p.kept.Close()
		return nil, err
	}
	p.kept.Wait(ctx)
	p.callLogger = p.Plugin.CallLogger()
	p.cfg.Module = host.ModuleConfig{} // It may have the bytes. A candidate has a module of its own.
	if cfg.Shadow != nil {
		if err := p.BeginShadow(ctx, *cfg.Shadow); err != nil {
			return nil, errors.Join(err, p.Close(ctx))
		}
	}
	return p, nil
}

// Close closes the plugin, see [host.Plugin.Close].
func (p *Plugin) Close(ctx context.Context) error {
	defer p.kept.Close()
	if p.native != nil {
		return nil
	}
	return errors.Join(p.shadow.Close(ctx), p.Plugin.Close(ctx))
}

// Name returns the plugin's name.
func (p *Plugin) Name() string { return p.name }

// kind returns the objects of a type, which travel by ref.
func (p *Plugin) kind(t reflect.Type) *objects.Kind {
	if p.serving != nil {
		return p.serving.kind(t)
	}
	p.mu.RLock()
	k := p.kinds[t]
	p.mu.RUnlock()
	if k != nil {
		return k
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if k = p.kinds[t]; k == nil {
		fields, whole, _ := p.reads.of(t) // Load has checked the paths.
		if k = p.store.Kind(t, fields); whole != nil {
			k.Narrow(whole)
		}
		p.kinds[t] = k
	}
	return k
}

// Ref returns the ref of an object, for [Plugin.CallBytes]. It is valid until the object is passed
// again.
func (p *Plugin) Ref(o runtime.Object) (abi.Ref, error) {
	v := reflect.ValueOf(o)
	if v.Kind() != reflect.Pointer || v.IsNil() || !objects.IsObject(v.Type().Elem()) {
		return 0, fmt.Errorf("%T is not an object with metadata", o)
	}
	found, err := p.kind(v.Type().Elem()).Object(v.UnsafePointer())
	if err != nil {
		return 0, err
	}
	return found.Ref, nil
}

// SchemaError is the error of a module whose schema does not fit that of the host.
type SchemaError struct {
	// Service is the full name of the extension point, or of the host service, on which the two
	// disagree.
	Service string
	Err     error
}

func (e *SchemaError) Error() string {
	return fmt.Sprintf("the module does not fit the service %s of this host: %v", e.Service, e.Err)
}

func (e *SchemaError) Unwrap() error { return e.Err }

// check compares the schema of a module with that of the host, before the module runs.
func (p *Plugin) check(m *host.Module) error {
	fail := func(err error) error { return &SchemaError{p.definition.Name, err} }
	section := m.Custom(abi.SchemaSection)
	if section == nil {
		return fail(fmt.Errorf("it has no custom section %s, which kubewasm build adds", abi.SchemaSection))
	}
	guest, err := serviceschema.Parse(section)
	if err != nil {
		return fail(err)
	}
	if guest.Find(p.definition.Name) == nil {
		return fail(fmt.Errorf("it has the extension points %s", list(guest.Names())))
	}
	var errs []error
	for i := range p.schema.Services {
		ours := &p.schema.Services[i]
		name := string(ours.FullName())
		theirs := guest.Find(name)
		if theirs == nil || name != p.definition.Name && !ours.Host {
			continue
		}
		if err := serviceschema.Compatible(theirs, ours); err != nil {
			errs = append(errs, &SchemaError{name, err})
		}
	}
	return errors.Join(errs...)
}

// probe asks the first instance of a version for the services that it implements.
func (p *Plugin) probe(ctx context.Context, inst *host.Instance) error {
	c := inst.State().(*call)
	c.services = nil
	if _, err := inst.Call(ctx, abi.Services); err != nil {
		return err
	}
	if !slices.Contains(c.services, p.definition.Name) {
		return &SchemaError{p.definition.Name, fmt.Errorf("it implements %s", list(c.services))}
	}
	return nil
}

// list returns names from a guest, which may be anything, for an error.
func list(names []string) string {
	const most = 8
	var shown []string
	for _, name := range names[:min(len(names), most)] {
		if !protoreflect.FullName(name).IsValid() {
			name = fmt.Sprintf("%.100q", name)
		}
		shown = append(shown, name)
	}
	if n := len(names) - len(shown); n > 0 {
		shown = append(shown, fmt.Sprintf("and %d others", n))
	}
	return strings.Join(shown, ", ")
}

// pointer returns the address of a message.
func pointer[T any](p *T) unsafe.Pointer { return unsafe.Pointer(p) }
