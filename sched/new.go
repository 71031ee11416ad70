package sched

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/lookup"
	"github.com/kubewasm/kubewasm/internal/strict"
)

// Args are the arguments of a plugin in KubeSchedulerConfiguration:
//
//	profiles:
//	- plugins:
//	    multiPoint:
//	      enabled:
//	      - name: zone
//	  pluginConfig:
//	  - name: zone
//	    args:
//	      file: /etc/kubernetes/plugins/zone.wasm
//	      sha256: 0123…
//	      config:
//	        defaultZones: [eu-central-1a]
type Args struct {
	// File is the path of the module, URL its address, which needs SHA256. One
	// of them is required.
	File string `json:"file,omitempty"`
	URL  string `json:"url,omitempty"`
	// SHA256 is the digest that the module must have, in hexadecimal; empty
	// means any.
	SHA256 string `json:"sha256,omitempty"`
	// Follow swaps the module whenever the file holds another, between two
	// scheduling cycles. It needs File, and no SHA256.
	Follow bool `json:"follow,omitempty"`
	// Config is the guest's own configuration, handed to it as JSON.
	Config json.RawMessage `json:"config,omitempty"`
	// GuestConfig is the same for a configuration that is no JSON: the guest gets the
	// text as it is. Only one of the two may be set.
	GuestConfig string `json:"guestConfig,omitempty"`
	// Args are those of host.Config: what the guest finds in os.Args, the name first.
	Args []string `json:"args,omitempty"`
	// LogSeverity is what a guest of kube-scheduler-wasm-extension logs at least: 0 for
	// all, 1 for warnings, 2 for errors, 3 for none of them. What the logger of the
	// program does not take such a guest does not log either, whatever stands here; it
	// asks once, when it starts.
	LogSeverity int32 `json:"logSeverity,omitempty"`
	// MemoryBytes, Fuel and Instances are those of host.Limits; 0 means what the
	// options of New say, or the default. Instances is how many nodes are filtered
	// or scored at the same time.
	MemoryBytes uint64 `json:"memoryBytes,omitempty"`
	Fuel        int64  `json:"fuel,omitempty"`
	Instances   int    `json:"instances,omitempty"`
	// HeldInstances is that of host.Limits: how many Pods may be bound, or wait for that,
	// at the same time, and one more that is scheduled, if the guest is one of
	// kube-scheduler-wasm-extension. Each has an instance of its own from Reserve to
	// PostBind or Unreserve. A Pod for which there is none is tried again later.
	HeldInstances int `json:"heldInstances,omitempty"`
	// Timeout and Compile are those of host.Limits, as in "100ms".
	Timeout metav1.Duration `json:"timeout,omitempty"`
	Compile metav1.Duration `json:"compile,omitempty"`
	// Grants are those of host.Config, and GrantEvents, GrantWaitingPods and
	// GrantObjects.
	Grants []string `json:"grants,omitempty"`
	// Objects are the resources that a guest with GrantObjects may get and list,
	// as in "v1/persistentvolumeclaims" or "apps/v1/replicasets". The scheduler
	// must be allowed to watch them.
	Objects []string `json:"objects,omitempty"`
	// Projection are the fields of Pods and Nodes that the guest gets, such as
	// "node.metadata.labels[topology.kubernetes.io/zone]", see
	// codec.ParseFieldSet; empty means what its module declares.
	Projection []string `json:"projection,omitempty"`
	// DisableResultSharing calls the guest for each node. Otherwise its answer about a
	// node is that about all nodes that are equal in what it has read of Nodes, in one
	// state of a scheduling cycle. It is for a guest whose answers depend on more than
	// what it reads: on how often it is called, say. What it reads is logged at level
	// debug.
	DisableResultSharing bool `json:"disableResultSharing,omitempty"`
	// FailurePolicy says what becomes of a Pod whose guest trapped, was stopped
	// or is disabled. Default Fail.
	FailurePolicy FailurePolicy `json:"failurePolicy,omitempty"`
	// Disable is that of host.Config: when a plugin that keeps failing is taken
	// out of service for a while.
	Disable *DisableArgs `json:"disable,omitempty"`
}

// DisableArgs are those of host.Disable.
type DisableArgs struct {
	After      int             `json:"after"`
	Ratio      float64         `json:"ratio,omitempty"`
	Backoff    metav1.Duration `json:"backoff,omitempty"`
	MaxBackoff metav1.Duration `json:"maxBackoff,omitempty"`
}

// FailurePolicy says what becomes of a request that a guest did not answer.
type FailurePolicy string

const (
	// Fail makes it an error: the Pod is tried again later.
	Fail FailurePolicy = "Fail"
	// Ignore goes on as if the plugin had nothing to say: the node passes, the
	// score is 0, the Pod may be bound. The failure is logged.
	Ignore FailurePolicy = "Ignore"
)

// Option changes how [New] loads a plugin.
type Option func(*host.Config)

// WithLogger hands what guests log and print to logger.
func WithLogger(logger *slog.Logger) Option { return func(c *host.Config) { c.Logger = logger } }

// WithObserver tells o of calls, builds and resets: metrics, traces.
func WithObserver(o host.Observer) Option { return func(c *host.Config) { c.Observer = o } }

// WithSource takes the module from source instead of the arguments' file or URL:
// a ConfigMap, bytes that the program embeds.
func WithSource(source host.Source) Option { return func(c *host.Config) { c.Source = source } }

// Factory is what app.WithPlugin takes: the PluginFactory of
// k8s.io/kubernetes/pkg/scheduler/framework/runtime.
type Factory = func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error)

// New returns the factory of the plugin name, for app.WithPlugin. The plugin's
// module and limits come from the scheduler's configuration, see [Args]. Several
// plugins have a factory each, and share rt.
//
//	app.NewSchedulerCommand(app.WithPlugin("zone", sched.New("zone", rt, sched.WithLogger(slog.Default()))))
//
// The factory fails on arguments that are missing, malformed or have unknown
// fields, all mistakes at once, and as [Load] does. The plugin is closed when the
// factory's context ends.
func New(name string, rt *host.Runtime, opts ...Option) Factory {
	return func(ctx context.Context, object runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		cfg := host.Config{Name: name}
		for _, option := range opts {
			option(&cfg)
		}
		hasSource := cfg.Source != nil
		args, err := decodeArgs(object, hasSource)
		if args == nil {
			return nil, fmt.Errorf("plugin %q: arguments: %w", name, err)
		}
		args.configure(&cfg)
		if err := errors.Join(err, args.validate(hasSource)); err != nil {
			return nil, errors.Join(fmt.Errorf("plugin %q: arguments: %w", name, err), complete(cfg).Validate())
		}
		p, err := load(ctx, rt, cfg, handle, options{failurePolicy: args.FailurePolicy, objects: args.Objects, projection: args.Projection, disableResultSharing: args.DisableResultSharing, severity: args.LogSeverity})
		if err != nil {
			return nil, err
		}
		context.AfterFunc(ctx, func() { _ = p.Close(context.WithoutCancel(ctx)) })
		if args.Follow {
			logger := cfg.Logger
			go func() {
				_ = p.Follow(ctx, host.FollowOptions{Failed: func(err error) {
					if logger != nil {
						logger.Error("the module was not swapped", "plugin", name, "err", err)
					}
				}})
			}()
		}
		return p, nil
	}
}

// configure sets what the arguments say.
func (a *Args) configure(cfg *host.Config) {
	if cfg.Source == nil {
		if a.File != "" {
			cfg.Source = host.File(a.File)
		}
		if a.URL != "" {
			cfg.Source = host.HTTPS(a.URL, host.HTTPSOptions{})
		}
	}
	cfg.SHA256 = a.SHA256
	cfg.Guest, cfg.Args = a.Config, a.Args
	if a.GuestConfig != "" {
		cfg.Guest = []byte(a.GuestConfig)
	}
	cfg.Grants = a.Grants
	l := &cfg.Limits
	l.MemoryBytes, l.Fuel = cmp.Or(a.MemoryBytes, l.MemoryBytes), cmp.Or(a.Fuel, l.Fuel)
	l.Compile = cmp.Or(a.Compile.Duration, l.Compile)
	l.Timeout, l.Instances = cmp.Or(a.Timeout.Duration, l.Timeout), cmp.Or(a.Instances, l.Instances)
	l.HeldInstances = cmp.Or(a.HeldInstances, l.HeldInstances)
	if d := a.Disable; d != nil {
		cfg.Disable = host.Disable{After: d.After, Ratio: d.Ratio, Backoff: d.Backoff.Duration, MaxBackoff: d.MaxBackoff.Duration}
	}
}

// decodeArgs reads the arguments as the scheduler hands them over: the raw bytes
// of what stands in its configuration. hasSource says that the program has the
// module already. With an error there may be arguments all the same, so that other
// mistakes in them are found, too.
func decodeArgs(object runtime.Object, hasSource bool) (*Args, error) {
	args := &Args{}
	unknown, ok := object.(*runtime.Unknown)
	switch {
	case ok && unknown != nil:
		text, err := yaml.YAMLToJSONStrict(unknown.Raw)
		if err != nil {
			return nil, err
		}
		mistakes, err := strict.Unmarshal(text, args)
		if err != nil {
			return nil, err
		}
		return args, errors.Join(mistakes...)
	case object != nil || !hasSource:
		return nil, fmt.Errorf("got %T, want the args of a pluginConfig", object)
	}
	return args, nil
}

// complete sets what load sets, as far as it matters for mistakes.
func complete(cfg host.Config) host.Config {
	cfg.Kind, cfg.Imports = abi.KindScheduler, (&plugin{}).imports()
	if cfg.Source == nil {
		cfg.Source = host.Bytes(nil) // Reported already.
	}
	return cfg
}

// validate reports every mistake that is one of the arguments alone.
func (args *Args) validate(hasSource bool) error {
	var errs []error
	mistake := func(wrong bool, text string, values ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(text, values...))
		}
	}
	mistake(args.File == "" && args.URL == "" && !hasSource, "file is missing")
	mistake(args.File != "" && args.URL != "", "file and url exclude one another")
	mistake(hasSource && (args.File != "" || args.URL != ""), "the program has the module: file and url must be empty")
	mistake(len(args.Config) > 0 && args.GuestConfig != "", "config and guestConfig exclude one another")
	mistake(args.LogSeverity < 0 || args.LogSeverity > 3, "logSeverity is %d, want 0 to 3", args.LogSeverity)
	mistake(args.Follow && args.URL != "", "follow needs a file: what a url holds is fixed by its sha256")
	mistake(args.Follow && args.SHA256 != "", "follow and sha256 exclude one another")
	mistake(args.FailurePolicy != "" && args.FailurePolicy != Fail && args.FailurePolicy != Ignore,
		"failurePolicy is %q, want Fail or Ignore", args.FailurePolicy)
	for _, name := range args.Objects {
		_, err := lookup.ParseResource(name)
		mistake(err != nil, "%w", err)
	}
	_, err := codec.ParseFieldSet(args.Projection)
	mistake(err != nil, "projection: %w", err)
	mistake(args.Disable != nil && args.Disable.After <= 0, "disable.after must be more than 0")
	return errors.Join(errs...)
}
