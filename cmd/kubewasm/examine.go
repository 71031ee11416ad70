package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/manifest"
	"github.com/kubewasm/kubewasm/internal/wasmbin"
	"github.com/kubewasm/kubewasm/sched"
)

// examination describes a module: its kind, its needs and its exports.
type examination struct {
	File   string `json:"file,omitempty"`
	Bytes  int    `json:"bytes"`
	SHA256 string `json:"sha256"`
	// ABI is the ABI of the guest: that of package abi, or the name of a dialect.
	ABI string `json:"abi,omitempty"`
	// Kinds and Functions are those that the guest registered when it was started, or
	// those of its exports in a dialect. They are empty if it could not be started, for
	// the reasons in Problems.
	Kinds     []string `json:"kinds"`
	Functions []string `json:"functions"`
	// NotAs is the reason why the guest is not of a kind, for each other kind.
	NotAs map[string]string `json:"notAs,omitempty"`
	// Kubernetes has the supported minors, the oldest first. It is empty if the guest could
	// not be started.
	Kubernetes []onMinor `json:"kubernetes,omitempty"`
	// Grants are those that the guest needs, Fakes those without which it gets a fake.
	// Lookups are the kinds of objects that its metadata declare, such as
	// apps/v1/Deployment.
	Grants  []string `json:"grants,omitempty"`
	Fakes   []string `json:"fakes,omitempty"`
	Lookups []string `json:"lookups,omitempty"`
	// EventsOf are the resources of events that the guest registers for by name. The configuration
	// must name them, as those that it looks up.
	EventsOf []string `json:"eventsOf,omitempty"`
	// Services are the services of the schema that the module carries.
	Services []serviceInfo `json:"services,omitempty"`
	// Settings is the error with which the guest refused to start without a
	// configuration. It may run with one.
	Settings string             `json:"settings,omitempty"`
	Metadata *metadata.Metadata `json:"metadata,omitempty"`
	Imports  []imported         `json:"imports"`
	Exports  []exported         `json:"exports"`
	Memory   memory             `json:"memory"`
	// StartFuel is the number of instructions of the start, configuration included.
	StartFuel int64 `json:"startFuel"`
	// Problems are the reasons why the module cannot be loaded without changes.
	Problems []string `json:"problems,omitempty"`

	mask abi.Mask
	// events are those that a scheduler plugin registers.
	events []sched.Event
	err    error
	// foreign reports whether the guest is of a dialect.
	foreign bool
}

// trying is a module and the parameters for loading it.
type trying struct {
	module, config []byte
	gatekeeper     bool
	// sees are the kinds that a policy may look up besides those that it declares.
	sees []schema.GroupVersionKind
	// there are the kinds of the objects that are for lookups alone.
	there []schema.GroupVersionKind
	// converts are the kinds that an admission plugin converts, none if it decides.
	converts []metav1.GroupKind
}

type imported struct {
	Module    string `json:"module"`
	Name      string `json:"name"`
	Signature string `json:"signature"`
	// Grant is the grant that the import needs. If Optional is set, the guest gets a
	// fake without it.
	Grant    string `json:"grant,omitempty"`
	Optional bool   `json:"optional,omitempty"`
}

type exported struct {
	Name      string `json:"name"`
	Signature string `json:"signature"`
}

// memory is in bytes.
type memory struct {
	Initial uint64 `json:"initialBytes"`
	// Maximum is the limit that the module declares, 0 for none.
	Maximum uint64 `json:"maximumBytes,omitempty"`
	// Started is the size of an instance that is ready to be called.
	Started uint64 `json:"startedBytes,omitempty"`
}

const pageBytes = 64 << 10

// readConfig reads a plugin's configuration as JSON; "" is none.
func readConfig(file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if data, err = manifest.JSON(data); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return data, nil
}

// examine decodes a module and starts it in the host. The error is for bytes that are not a module;
// every other mistake is in the examination.
func (t *tool) examine(ctx context.Context, try trying) (*examination, error) {
	decoded, err := wasmbin.Decode(try.module)
	if err != nil {
		return nil, err
	}
	about, err := host.Inspect(try.module)
	if err != nil {
		return nil, err
	}
	r := &examination{Bytes: len(try.module), SHA256: about.Digest(), Kinds: []string{}, Functions: []string{}, NotAs: map[string]string{}}
	if r.Metadata, err = metadata.Find(try.module); err != nil {
		r.problem(err)
	}
	r.describe(decoded)
	if section := about.Custom(abi.SchemaSection); section != nil {
		if r.Services, err = servicesOf(section); err != nil {
			r.problem(err)
		}
	}
	rt, err := t.newRuntime()
	if err != nil {
		return nil, err
	}
	scheduler, policy := sched.DialectOf(about), ""
	if d := policyDialect(about); d != nil {
		policy = d.Name
	}
	if r.foreign = scheduler != "" || policy != ""; r.foreign {
		err = r.tryDialects(ctx, rt, about, try, scheduler, policy)
	} else {
		if about.Export(abi.Marker) != "" {
			r.ABI = abi.Marker
		}
		if err = r.start(ctx, rt, decoded, try); r.mask != 0 {
			err = r.offer(ctx, rt, try)
		}
	}
	if status := (*host.StatusError)(nil); errors.As(err, &status) && try.config == nil && r.mask != 0 {
		r.Settings = status.Reason
		r.err = err
	} else if err != nil {
		r.err = err
		r.problem(err)
	}
	for _, im := range r.Imports {
		list := &r.Grants
		if im.Optional {
			list = &r.Fakes
		}
		if im.Grant != "" && !slices.Contains(*list, im.Grant) {
			*list = append(*list, im.Grant)
		}
	}
	slices.Sort(r.Grants)
	slices.Sort(r.Fakes)
	for _, e := range r.events {
		if e.Resource == abi.EventNamed && !slices.Contains(r.EventsOf, e.Object) {
			r.EventsOf = append(r.EventsOf, e.Object)
		}
	}
	if r.mask != 0 {
		r.Kubernetes = onMinors(r.mask, r.events)
	}
	for _, kind := range extensionKinds {
		if name := kind.String(); !slices.Contains(r.Kinds, name) && r.NotAs[name] == "" {
			r.NotAs[name] = "it implements no function of this kind"
			if r.foreign {
				r.NotAs[name] = "it is of no ABI that there is for this kind"
			}
		}
	}
	return r, rt.Close(context.WithoutCancel(ctx))
}

// tryDialects loads a guest that may be of dialects, empty if it is of none, of a scheduler
// and of admission: both may be, by the exports alone.
func (r *examination) tryDialects(ctx context.Context, rt *host.Runtime, about *host.Module, try trying, scheduler, policy string) error {
	declared, err := kubewardenOf(about)
	if err != nil {
		r.problem(err)
	}
	var errs []error
	for _, d := range []struct {
		kind abi.Kind
		name string
	}{{abi.KindScheduler, scheduler}, {abi.KindAdmission, policy}} {
		if d.name == "" {
			continue
		}
		kind := d.kind.String()
		mask, err := r.grant(ctx, rt, d.kind, try)
		refused := settingsRefused(err)
		if try.config == nil && refused != "" {
			// It was started, and asked for its configuration.
			r.Settings, mask, r.err = refused, abi.MaskOf(abi.Validate), err
		} else if err != nil {
			all := each(err)
			r.NotAs[kind] = fmt.Sprintf("as a guest of %s: %s", d.name, unnamed(all[0]))
			if len(all) > 1 {
				r.NotAs[kind] += fmt.Sprintf(", and %d more", len(all)-1)
			}
			// Every module with a _start may be a program of Kubewarden's. One that also has
			// the exports of a scheduler plugin is taken for the latter.
			for _, err := range all {
				if d.name == cmp.Or(scheduler, policy) {
					errs = append(errs, fmt.Errorf("%s, as a guest of %s: %w", kind, d.name, err))
				}
			}
			continue
		}
		r.ABI = d.name
		r.implements(mask)
		if d.kind == abi.KindAdmission {
			for _, kind := range declared.kinds() {
				r.Lookups = append(r.Lookups, kind.GroupVersion().String()+"/"+kind.Kind)
			}
		}
	}
	if len(r.Kinds) != 0 {
		return nil
	}
	r.ABI = cmp.Or(scheduler, policy)
	return errors.Join(errs...)
}

// each returns the errors that err joins.
func each(err error) (all []error) {
	if load, ok := err.(*host.LoadError); ok { //nolint:errorlint // The tree of errors is walked.
		err = load.Err
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	for _, err := range joined.Unwrap() {
		all = append(all, each(err)...)
	}
	return all
}

// settingsRefused returns the reason why a policy refused its settings, empty for any other
// error.
func settingsRefused(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	if i := strings.Index(text, "settings are not valid"); i >= 0 && strings.Contains(text, ": probe: ") {
		return text[i:]
	}
	return ""
}

// kubewardenMetadata are the declarations in the metadata of a Kubewarden policy.
type kubewardenMetadata struct {
	Mutating              bool `json:"mutating"`
	ContextAwareResources []struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	} `json:"contextAwareResources"`
}

// kubewardenOf returns the metadata of a Kubewarden policy, which are empty if the module has
// none.
func kubewardenOf(about *host.Module) (declared kubewardenMetadata, err error) {
	const name = "io.kubewarden.metadata"
	section := about.Custom(name)
	if section == nil {
		return declared, nil
	}
	if err := json.Unmarshal(section, &declared); err != nil {
		return declared, fmt.Errorf("read the custom section %s: %w", name, err)
	}
	return declared, nil
}

// kinds returns the kinds of objects for lookups.
func (m *kubewardenMetadata) kinds() (kinds []schema.GroupVersionKind) {
	for _, r := range m.ContextAwareResources {
		kinds = append(kinds, schema.FromAPIVersionAndKind(r.APIVersion, r.Kind))
	}
	return kinds
}

// problem adds each error that err joins to Problems.
func (r *examination) problem(err error) {
	for _, err := range each(err) {
		if text := unnamed(err); !slices.Contains(r.Problems, text) {
			r.Problems = append(r.Problems, text)
		}
	}
}

// unnamed returns the text of an error without the name that the plugin has here.
func unnamed(err error) string {
	return strings.ReplaceAll(err.Error(), `plugin "`+pluginName+`": `, "")
}

// describe records the imports, the exports and the memory of a module.
func (r *examination) describe(m *wasmbin.Module) {
	var types []wasmbin.FuncType
	for _, group := range m.Types {
		types = append(types, group.Types...)
	}
	signature := func(index uint32) string {
		if int(index) < len(types) {
			return types[index].String()
		}
		return "?"
	}
	var functions []uint32 // The type of each, imported or not.
	for _, i := range m.Imports {
		s := i.Kind.String()
		if i.Kind == wasmbin.ExternFunc {
			s = signature(i.Type)
			functions = append(functions, i.Type)
		}
		im := imported{Module: i.Module, Name: i.Name, Signature: s}
		switch {
		case i.Module != "wasi_snapshot_preview1":
		case i.Name == "clock_time_get":
			im.Grant, im.Optional = host.GrantClock, true
		case i.Name == "random_get":
			im.Grant, im.Optional = host.GrantRandom, true
		}
		r.Imports = append(r.Imports, im)
	}
	functions = append(functions, m.Functions...)
	for _, e := range m.Exports {
		s := e.Kind.String()
		if e.Kind == wasmbin.ExternFunc && int(e.Index) < len(functions) {
			s = signature(functions[e.Index])
		}
		r.Exports = append(r.Exports, exported{e.Name, s})
	}
	for _, memory := range m.Memories {
		r.Memory.Initial = uint64(memory.Min) * pageBytes
		if memory.HasMax {
			r.Memory.Maximum = uint64(memory.Max) * pageBytes
		}
	}
}

// pluginName stands in the host's messages.
const pluginName = "guest"

// extensionKinds are the kinds of plugins.
var extensionKinds = []abi.Kind{abi.KindScheduler, abi.KindAdmission, abi.KindHook, abi.KindService}

// start loads the module into a host that offers everything it imports, and records the functions
// that it implements.
func (r *examination) start(ctx context.Context, rt *host.Runtime, m *wasmbin.Module, try trying) error {
	var types []wasmbin.FuncType
	for _, group := range m.Types {
		types = append(types, group.Types...)
	}
	var offered []host.Import
	for _, i := range m.Imports {
		if i.Kind != wasmbin.ExternFunc || int(i.Type) >= len(types) || i.Module == "wasi_snapshot_preview1" || i.Module == abi.KindCommon.Module() {
			continue
		}
		codes := func(types []wasmbin.ValType) []abi.ValueType {
			var list []abi.ValueType
			for _, t := range types {
				list = append(list, abi.ValueType(t))
			}
			return list
		}
		offered = append(offered, host.Import{
			Module: i.Module, Name: i.Name, Params: codes(types[i.Type].Params), Results: codes(types[i.Type].Results),
			Func: func(inst *host.Instance, _ []uint64) {
				inst.Abort(errors.New("a guest that starts must not ask for what its calls are about"))
			},
		})
	}
	fuel := &fuelCounter{}
	var last error
	for _, kind := range extensionKinds {
		*fuel = fuelCounter{}
		p, err := rt.Load(ctx, host.Config{
			Name: pluginName, Module: host.ModuleConfig{Bytes: try.module}, GuestConfig: try.config, Observer: fuel,
			Limits: host.Limits{Instances: 1},
		}, host.Adapter{Kind: kind, Imports: offered})
		if err == nil {
			r.implements(p.Functions())
			r.Memory.Started, r.StartFuel = p.Stats().MemoryBytes, fuel.total
			return p.Close(ctx)
		}
		var status *host.StatusError
		if errors.As(err, &status) {
			r.implements(status.Functions)
			r.StartFuel = fuel.total
			return err
		}
		if last = err; !strings.Contains(err.Error(), "the guest implements no ") {
			return err
		}
	}
	if strings.HasSuffix(last.Error(), ": ") || strings.HasSuffix(last.Error(), abi.Configure.String()) {
		return errNothingRegistered
	}
	return last
}

var errNothingRegistered = errors.New("the guest registers no plugin: call Register of guest/sched, guest/admission or guest/hooks in func init, or that of a service")

// registered returns an error unless the guest registered a plugin. A guest that refuses to
// start without a configuration did.
func (r *examination) registered() error {
	var status *host.StatusError
	if r.mask != 0 || errors.As(r.err, &status) {
		return nil
	}
	return r.err
}

func (r *examination) implements(mask abi.Mask) {
	r.mask |= mask
	for _, kind := range extensionKinds {
		if of := mask.Of(kind); of != 0 {
			r.Kinds = append(r.Kinds, kind.String())
		}
	}
	for _, f := range mask.Functions() {
		r.Functions = append(r.Functions, f.String())
	}
}

// offer loads the module into the hosts of its kinds, and records the grants that it needs.
// The error names the imports that the hosts do not offer.
func (r *examination) offer(ctx context.Context, rt *host.Runtime, try trying) error {
	if onlyConverts(r.mask) {
		try.converts = anyKind
	}
	var errs []error
	for _, kind := range extensionKinds {
		if r.mask.Of(kind) == 0 {
			continue
		}
		if _, err := r.grant(ctx, rt, kind, try); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// grant loads the module into the host of a kind with every grant that it needs. It records the
// grants, and returns the functions that the guest implements.
func (r *examination) grant(ctx context.Context, rt *host.Runtime, kind abi.Kind, try trying) (abi.Mask, error) {
	var grants []string
	for {
		fuel := &fuelCounter{}
		loaded, err := load(ctx, rt, kind, try, host.Config{
			Name: pluginName, Module: host.ModuleConfig{Bytes: try.module}, GuestConfig: try.config, Grants: grants, Observer: fuel, Limits: host.Limits{Instances: 1},
		})
		wanted := len(grants)
		for _, missing := range importErrors(err) {
			if missing.Grant == "" {
				continue
			}
			if !slices.Contains(grants, missing.Grant) {
				grants = append(grants, missing.Grant)
			}
			for i := range r.Imports {
				if r.Imports[i].Module == missing.Module && r.Imports[i].Name == missing.Name {
					r.Imports[i].Grant = missing.Grant
				}
			}
		}
		if len(grants) != wanted {
			continue
		}
		// No further grant would help.
		if err == nil && r.foreign {
			r.Memory.Started, r.StartFuel = loaded.memory, fuel.total
		}
		r.events = append(r.events, loaded.events...)
		return loaded.functions, err
	}
}

// importErrors returns the import errors among the errors that err joins.
func importErrors(err error) (all []*host.ImportError) {
	for _, err := range each(err) {
		if e := (*host.ImportError)(nil); errors.As(err, &e) {
			all = append(all, e)
		}
	}
	return all
}

// loaded is a host's description of a loaded module.
type loaded struct {
	functions abi.Mask
	events    []sched.Event
	// memory is that of an instance, in bytes.
	memory uint64
}

// load loads a module into the host of a kind, and closes it.
func load(ctx context.Context, rt *host.Runtime, kind abi.Kind, try trying, cfg host.Config) (of loaded, err error) {
	var p interface{ Close(context.Context) error }
	switch kind {
	case abi.KindScheduler:
		var plugin *sched.Plugin
		if plugin, err = sched.Load(ctx, rt, sched.PluginConfig{Config: cfg}, sched.Framework{}); err == nil {
			p, of.functions, of.events = plugin, plugin.Functions(), plugin.EventsToRegister()
		}
	case abi.KindAdmission:
		var policy *admission.Plugin
		if policy, err = try.policy(ctx, rt, cfg, nil, nil); err == nil {
			p, of.functions = policy, abi.MaskOf(abi.Validate)
			if policy.Mutates() {
				of.functions |= abi.MaskOf(abi.Mutate)
			}
		}
	case abi.KindService:
		var services *loadedServices
		if services, err = loadServices(ctx, rt, try, cfg); err == nil {
			p, of.functions = services, abi.MaskOf(abi.Services)
		}
	default:
		p, err = hooks.NewEngine(ctx, rt, hooks.Config{
			Plugins: []hooks.PluginConfig{{Config: cfg}},
			// The declarations are printed here, and granted by the operator of a node.
			Audit: func(context.Context, *hookmsg.Request, string, *hooks.GrantError) {},
		})
	}
	if err != nil {
		return loaded{}, err
	}
	for _, p := range rt.Plugins() {
		of.memory = p.Stats().MemoryBytes
	}
	return of, p.Close(ctx)
}

// policy loads a policy, which may mutate. It may look up the objects in cluster, or otherwise
// those in objects; both may be nil. Kinds that its metadata declare need no grant. The imports of
// the ABI need a cluster or the grant.
func (try *trying) policy(ctx context.Context, rt *host.Runtime, cfg host.Config, objects *manifest.Objects, cluster *manifest.Cluster) (*admission.Plugin, error) {
	if len(try.converts) != 0 {
		return admission.Load(ctx, rt, admission.PluginConfig{Config: cfg, Converts: try.converts})
	}
	about, err := host.Inspect(try.module)
	if err != nil {
		return nil, err
	}
	declared, err := kubewardenOf(about)
	if err != nil {
		return nil, err
	}
	byKind := looksUpByKind(policyDialect(about))
	granted := cluster != nil && !byKind || slices.Contains(cfg.Grants, host.GrantObjects)
	if cluster == nil {
		named := &manifest.Objects{}
		if objects != nil {
			for _, o := range objects.All {
				if o.Name != "" { // An object without a name is about to be created.
					named.All = append(named.All, o)
				}
			}
		}
		if cluster, err = manifest.NewCluster(named); err != nil {
			return nil, err
		}
	}
	c := admission.PluginConfig{Config: cfg, AllowedToMutate: true, Cluster: cluster, Dialects: dialects(cluster, nil)}
	sees := append(declared.kinds(), try.sees...)
	if len(sees) == 0 && byKind {
		sees = try.there
	}
	var kinds []dialect.Kind
	for _, kind := range sees {
		apiVersion, name := kind.ToAPIVersionAndKind()
		if !slices.ContainsFunc(kinds, func(o dialect.Kind) bool { return o.GroupVersionKind() == kind }) {
			kinds = append(kinds, dialect.Kind{APIVersion: apiVersion, Kind: name})
		}
	}
	// Of a Kubewarden policy's operations those of the cluster and of certificates work here.
	if c.Dialect, err = dialectConfig(about, try.gatekeeper, kinds, "*"); err != nil {
		return nil, err
	}
	if granted {
		c.Objects = cluster.Grants()
	}
	return admission.Load(ctx, rt, c)
}
