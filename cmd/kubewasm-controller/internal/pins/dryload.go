package pins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/admission/stellar"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/plugin"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/internal/loading"
	"github.com/kubewasm/kubewasm/internal/wasmbin"
	"github.com/kubewasm/kubewasm/sched"
)

const (
	// loadTimeout is the longest time of a dry load. The limits of a plugin are shorter by default.
	loadTimeout = 2 * time.Minute
	// mostMemory is the private memory of the process at most, and leastMemory that without which there
	// is no process: a Go guest of 2.6 MB takes 68 MB, and a program of Go of 28 MB 366 MB.
	// controllerMemory is left to the controller: a container that is full may end as a whole.
	mostMemory, leastMemory, controllerMemory = 1 << 30, 512 << 20, 256 << 20
	// maxRefusals bounds the refusals that are remembered.
	maxRefusals = 1024
)

// DryLoads loads modules to find out whether they can be loaded, one at a time, each in a process
// behind the wall of [host.IsolationProcess]. The controller itself does not look into them: it passes
// bytes on, and gets one line of text.
type DryLoads struct {
	turn   chan struct{}
	memory uint64
	absent sync.Once

	mu sync.Mutex
	// refused are the last refusals, by plugin.
	refused map[plugin.Key]refusal
}

// refusal is the refusal of a module. Another one of the same module and generation would be the same.
type refusal struct {
	uid        types.UID
	generation int64
	digest     string
	err        error
}

// NewDryLoads returns a DryLoads for a process with so many bytes of memory, 0 if that is unknown.
func NewDryLoads(memory uint64) *DryLoads {
	return &DryLoads{turn: make(chan struct{}, 1), memory: memory, refused: map[plugin.Key]refusal{}}
}

// notLoadableError is the error of a module that the process has refused, or that has ended it.
type notLoadableError struct{ error }

// before returns the refusal of a plugin's generation and the module's digest, nil if there was none.
func (d *DryLoads) before(p plugin.Plugin) (digest string, err error) {
	if d == nil {
		return "", nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.refused[p.Key]
	if was.uid != p.GetUID() || was.generation != p.GetGeneration() {
		return "", nil
	}
	return was.digest, was.err
}

// check loads the module of an artifact as a plugin. The error is a notLoadableError if it cannot be loaded.
func (d *DryLoads) check(ctx context.Context, reader client.Reader, p plugin.Plugin, artifact *oci.Artifact) error {
	if d == nil {
		return nil
	}
	// The cache has not the whole spec.
	object := plugin.New(p.Key.Kind)
	if err := reader.Get(ctx, p.Key.ObjectKey(), object); err != nil {
		return err
	}
	whole, _ := plugin.Of(object)
	if whole.GetUID() != p.GetUID() || whole.GetGeneration() != p.GetGeneration() {
		return errors.New("the object has changed")
	}
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	memory := min(mostMemory, d.memory-min(d.memory, controllerMemory))
	err := fmt.Errorf("the controller has %d bytes of memory, want %d", d.memory, leastMemory+controllerMemory)
	if d.memory == 0 {
		memory = mostMemory
	}
	if memory >= leastMemory {
		err = loadDry(ctx, dryLoad{Kind: p.Key.Kind, Name: p.Key.Name, MemoryBytes: memory}, whole.Raw.Raw, artifact.Module, loadTimeout)
	}
	refused := errors.As(err, new(notLoadableError))
	switch {
	case err == nil || refused:
	case ctx.Err() != nil:
		return ctx.Err()
	default: // There is no process, and it had no module yet.
		d.absent.Do(func() {
			log.FromContext(ctx).Info("modules are pinned without being loaded first", "err", err.Error())
		})
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.refused, p.Key)
	if refused {
		if len(d.refused) >= maxRefusals {
			clear(d.refused)
		}
		d.refused[p.Key] = refusal{p.GetUID(), p.GetGeneration(), artifact.Digest, err}
	}
	return err
}

// dryLoad is what the process needs beside the spec and the module.
type dryLoad struct {
	Kind, Name             string
	MemoryBytes            uint64
	SpecBytes, ModuleBytes int
}

// drySpec has the members of a spec that decide whether a module can be loaded.
type drySpec struct {
	GuestConfig host.GuestConfig `json:"guestConfig"`
	Args        []string         `json:"args"`
	Grants      []string         `json:"grants"`
	Limits      host.Limits      `json:"limits"`
	Module      struct {
		SHA256 string `json:"sha256"`
	} `json:"module"`
	GuestConfigFrom json.RawMessage   `json:"guestConfigFrom"`
	Objects         []json.RawMessage `json:"objects"`
	// The others are those of policies, of hooks, and of plugins of the scheduler.
	Converts       []metav1.GroupKind `json:"converts"`
	DecisionGrants hooks.Grants       `json:"decisionGrants"`
	Owns           []string           `json:"owns"`
	Reads          []string           `json:"reads"`
	LogSeverity    int32              `json:"logSeverity"`
}

// run loads the module as the programs do, in the process that is there for it. compiled is called
// before any code of the module runs.
//
// The guest is configured unless its configuration is not that of the spec alone, and unless it may ask
// for objects of the cluster then.
func (d *dryLoad) run(ctx context.Context, spec, module []byte, compiled func() error) error {
	var s drySpec
	if err := json.Unmarshal(spec, &s); err != nil {
		return fmt.Errorf("spec: %w", err)
	}
	// Of the guests' memory the process has as much as of its own.
	rt, err := host.NewRuntime(host.RuntimeConfig{MemoryBytes: math.MaxUint64, IdleAfter: -1})
	if err != nil {
		return err
	}
	if len(s.Objects) != 0 && !slices.Contains(s.Grants, host.GrantObjects) {
		s.Grants = append(s.Grants, host.GrantObjects)
	}
	s.Limits.Instances = 1
	cfg := host.Config{
		Name: d.Name, Module: host.ModuleConfig{Bytes: module, SHA256: s.Module.SHA256}, GuestConfig: s.GuestConfig, Args: s.Args, Grants: s.Grants, Limits: s.Limits,
		// No snapshot is taken, for which the process has no files.
		Reset: host.ResetNever,
	}
	ctx = loading.With(ctx, loading.Settings{Compiled: compiled, Unconfigured: s.GuestConfigFrom != nil || len(s.Objects) != 0})
	switch d.Kind {
	case plugin.NodeHook:
		_, err = hooks.NewEngine(ctx, rt, hooks.Config{Node: true, Plugins: []hooks.PluginConfig{{Config: cfg, DecisionGrants: s.DecisionGrants, Owns: s.Owns, Reads: s.Reads}}})
	case plugin.SchedulerPlugin:
		_, err = sched.Load(ctx, rt, sched.PluginConfig{Config: cfg, Reads: s.Reads, LogSeverity: s.LogSeverity}, sched.Framework{})
	default:
		_, err = admission.Load(ctx, rt, admission.PluginConfig{Config: cfg, Converts: s.Converts, Dialects: []*dialect.Dialect{stellar.New(), other(module)}})
	}
	if errors.Is(err, host.ErrMemory) {
		return nil // It says nothing about other processes.
	}
	return err
}

// other returns a dialect for policies of Kubewarden's and of Rego, of which the controller knows no
// more than how to recognize them: they are compiled, and not started.
func other(module []byte) *dialect.Dialect {
	return &dialect.Dialect{
		Name: "another ABI", Member: "other",
		Detect: func(m *host.Module) bool {
			return slices.ContainsFunc([]string{"__guest_call", "opa_eval", "opa_eval_ctx_new", "_start"}, func(name string) bool { return m.Export(name) != "" })
		},
		Bind: func(dialect.Plugin) (*dialect.Binding, error) {
			of := host.Dialect{Start: []string{""}}
			decoded, err := wasmbin.Decode(module)
			if err != nil {
				return &dialect.Binding{Host: of}, nil // The load says so.
			}
			var types []wasmbin.FuncType
			for _, group := range decoded.Types {
				types = append(types, group.Types...)
			}
			values := func(of []wasmbin.ValType) (list []abi.ValueType) {
				for _, t := range of {
					list = append(list, abi.ValueType(t))
				}
				return list
			}
			for _, im := range decoded.Imports {
				switch {
				case im.Kind == wasmbin.ExternMemory:
					of.DefineMemory = true
				case im.Kind == wasmbin.ExternFunc && int(im.Type) < len(types):
					of.Imports = append(of.Imports, host.Import{
						Module: im.Module, Name: im.Name, Params: values(types[im.Type].Params), Results: values(types[im.Type].Results),
						Func: func(inst *host.Instance, _ []uint64) { inst.Abort(errors.New("the module is not started")) },
					})
				}
			}
			return &dialect.Binding{Host: of}, nil
		},
	}
}
