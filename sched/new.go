package sched

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/host"
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
	// File is the path of the module. Required.
	File string `json:"file"`
	// SHA256 is the digest that the module must have, in hexadecimal; empty
	// means any.
	SHA256 string `json:"sha256,omitempty"`
	// Config is the guest's own configuration, handed to it as JSON.
	Config json.RawMessage `json:"config,omitempty"`
	// MemoryBytes, Fuel and Instances are those of host.Limits; 0 means the
	// default. Instances is how many nodes are filtered or scored at the same
	// time.
	MemoryBytes uint64 `json:"memoryBytes,omitempty"`
	Fuel        int64  `json:"fuel,omitempty"`
	Instances   int    `json:"instances,omitempty"`
	// Timeout is that of host.Limits, as in "100ms".
	Timeout metav1.Duration `json:"timeout,omitempty"`
	// Grants are those of host.Config.
	Grants []string `json:"grants,omitempty"`
	// Projection are the fields of Pods and Nodes that the guest gets, such as
	// "node.metadata.labels", see codec.ParseProjection; empty means what its
	// module declares.
	Projection []string `json:"projection,omitempty"`
}

// Option changes how [New] loads a plugin.
type Option func(*host.Config)

// WithLogger hands what guests log and print to logger.
func WithLogger(logger *slog.Logger) Option { return func(c *host.Config) { c.Logger = logger } }

// WithObserver tells o of calls, builds and resets: metrics, traces.
func WithObserver(o host.Observer) Option { return func(c *host.Config) { c.Observer = o } }

// Factory is what app.WithPlugin takes: the PluginFactory of
// k8s.io/kubernetes/pkg/scheduler/framework/runtime.
type Factory = func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error)

// New returns the factory of the plugin name, for app.WithPlugin. The plugin's
// module and limits come from the scheduler's configuration, see [Args].
//
//	app.NewSchedulerCommand(app.WithPlugin("zone", sched.New("zone", rt, sched.WithLogger(slog.Default()))))
//
// The factory fails on arguments that are missing, malformed or have unknown
// fields, and as [Load] does.
func New(name string, rt *host.Runtime, options ...Option) Factory {
	return func(ctx context.Context, object runtime.Object, _ fwk.Handle) (fwk.Plugin, error) {
		args, err := decodeArgs(object)
		if err != nil {
			return nil, fmt.Errorf("plugin %q: arguments: %w", name, err)
		}
		cfg := host.Config{
			Name:   name,
			Source: host.File(args.File),
			SHA256: args.SHA256,
			Guest:  args.Config,
			Grants: args.Grants,
			Limits: host.Limits{
				MemoryBytes: args.MemoryBytes, Fuel: args.Fuel, Timeout: args.Timeout.Duration, Instances: args.Instances,
			},
		}
		for _, option := range options {
			option(&cfg)
		}
		p, err := load(ctx, rt, cfg, args.Projection)
		if err != nil {
			return nil, err
		}
		return p, nil
	}
}

// decodeArgs reads the arguments as the scheduler hands them over: the raw bytes
// of what stands in its configuration.
func decodeArgs(object runtime.Object) (*Args, error) {
	unknown, ok := object.(*runtime.Unknown)
	if !ok || unknown == nil {
		return nil, fmt.Errorf("got %T, want the args of a pluginConfig", object)
	}
	args := &Args{}
	if err := yaml.UnmarshalStrict(unknown.Raw, args); err != nil {
		return nil, err
	}
	if args.File == "" {
		return nil, errors.New("file is missing")
	}
	return args, nil
}
