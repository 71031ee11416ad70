package sched

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

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
	// MemoryBytes is the most memory that an instance may have; 0 means
	// host.DefaultMemoryBytes.
	MemoryBytes uint64 `json:"memoryBytes,omitempty"`
	// Instances is how many nodes are filtered or scored at the same time; 0
	// means GOMAXPROCS.
	Instances int `json:"instances,omitempty"`
}

// Factory is what app.WithPlugin takes: the PluginFactory of
// k8s.io/kubernetes/pkg/scheduler/framework/runtime.
type Factory = func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error)

// New returns the factory of the plugin name, for app.WithPlugin. The plugin's
// module and limits come from the scheduler's configuration, see [Args]; guests
// log to logger, or nowhere if it is nil.
//
//	app.NewSchedulerCommand(app.WithPlugin("zone", sched.New("zone", rt, slog.Default())))
//
// The factory fails on arguments that are missing, malformed or have unknown
// fields, and as [Load] does.
func New(name string, rt *host.Runtime, logger *slog.Logger) Factory {
	return func(ctx context.Context, object runtime.Object, _ fwk.Handle) (fwk.Plugin, error) {
		args, err := decodeArgs(object)
		if err != nil {
			return nil, fmt.Errorf("plugin %q: arguments: %w", name, err)
		}
		p, err := Load(ctx, rt, host.Config{
			Name:   name,
			Source: host.File(args.File),
			SHA256: args.SHA256,
			Guest:  args.Config,
			Logger: logger,
			Limits: host.Limits{MemoryBytes: args.MemoryBytes, Instances: args.Instances},
		})
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
