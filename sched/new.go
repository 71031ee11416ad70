package sched

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/configfile"
	"github.com/kubewasm/kubewasm/host/shadow"
	"github.com/kubewasm/kubewasm/internal/objects"
	"github.com/kubewasm/kubewasm/internal/objects/lookup"
)

// PluginConfig configures a plugin: its module, its permissions and its failure policy. It is the
// args of the plugin in KubeSchedulerConfiguration:
//
//	profiles:
//	- plugins:
//	    multiPoint:
//	      enabled:
//	      - name: zone
//	  pluginConfig:
//	  - name: zone
//	    args:
//	      module:
//	        file: /etc/kubernetes/plugins/zone.wasm
//	        sha256: 0123…
//	      guestConfig:
//	        defaultZones: [eu-central-1a]
type PluginConfig struct {
	// Config is the module with its guestConfig, args, grants, limits, reset and circuitBreaker. A
	// followed module is replaced between two scheduling cycles. The name is that of the plugin and
	// stands elsewhere in KubeSchedulerConfiguration. Grants may be GrantEvents, GrantWaitingPods,
	// GrantActivate, GrantApply, GrantPreempt, GrantPreemptAny beside those of host. Limits.Instances is the number of nodes that are
	// filtered or scored at the same time. Limits.HeldInstances is for guests of
	// kube-scheduler-wasm-extension: the number of Pods that may be bound, or wait for that, at the
	// same time, plus one that is scheduled. Each has a separate instance from Reserve to PostBind
	// or Unreserve. A Pod for which there is none is tried again later.
	host.Config `json:",inline"`
	// LogSeverity is the minimum severity that a guest of kube-scheduler-wasm-extension logs: 0 for
	// all, 1 for warnings, 2 for errors, 3 for none of them. Whatever this value is, such a guest
	// logs nothing that the program's logger would drop; it asks once, when it starts.
	LogSeverity int32 `json:"logSeverity,omitempty"`
	// Objects are the objects that a guest may get and list; they imply [host.GrantObjects]. The scheduler
	// must be allowed to watch their resources.
	Objects []host.ObjectGrant `json:"objects,omitempty"`
	// Reads are the fields of Pods and Nodes that the guest gets, such as
	// "node.metadata.labels[topology.kubernetes.io/zone]"; empty means those that its module
	// declares.
	Reads []string `json:"reads,omitempty"`
	// DisableResultSharing calls the guest for each node and each pending Pod. Otherwise a result
	// of Filter or Score is shared, within a state of a scheduling cycle, between all nodes that
	// are equal in every field that the guest has read of Nodes. The result of a hint is shared,
	// within an event, between all Pods that are equal in the fields that it has read of Pods. The
	// option is for a guest whose results depend on more, such as the number of calls. The fields
	// are logged at level debug, and shared results are counted, see [host.Observer].
	DisableResultSharing bool `json:"disableResultSharing,omitempty"`
	// CycleFuel is the fuel that all calls of one scheduling cycle may use, preemption included:
	// when it is used up the cycle has failed. Default 1,000,000,000, about half a second; a
	// cycle over 5,000 nodes takes a twentieth. After the first failure of a cycle its guest is not
	// called again in it.
	CycleFuel int64 `json:"cycleFuel,omitempty"`
	// QueueTimeout is the maximum duration of a call that holds up the scheduling queue: hints,
	// PreEnqueue, SignPod and Less, each with its wait for an instance. Default
	// 10 ms. A guest may use 5,000,000 of fuel even after that time, which may have
	// gone to other processes. All hints of one event may take some 50 ms.
	QueueTimeout time.Duration `json:"queueTimeout,omitzero"`
	// FailurePolicy decides on a Pod whose guest trapped, was stopped or is disabled. With
	// [host.Fail] the Pod is tried again later. With [host.Ignore] the node passes, the score is 0,
	// the Pod may be bound, and the failure is logged.
	FailurePolicy host.FailurePolicy `json:"failurePolicy,omitempty"`
	// Mode decides whether the guest's answers count. With [host.Monitor] the guest is called, but has
	// no effect: the scheduler gets the answers of a guest whose failures are ignored, and answers
	// that differ are logged, of Filter the first for a Pod. Events and decisions on waiting Pods are
	// dropped. A profile with such a guest that scores still searches for more nodes than one that
	// fits.
	Mode host.Mode `json:"mode,omitempty"`
	// Shadow has a candidate called in the background, see [Plugin.BeginShadow]; nil for none.
	Shadow *shadow.Config `json:"shadow,omitempty"`
}

// fields is PluginConfig without its methods.
type fields PluginConfig

// MarshalJSON writes durations as texts, such as "5ms".
func (c PluginConfig) MarshalJSON() ([]byte, error) { return configfile.Marshal(fields(c)) }

// UnmarshalJSON reads the output of MarshalJSON, see package configfile.
func (c *PluginConfig) UnmarshalJSON(data []byte) error { return configfile.JSON(data, (*fields)(c)) }

// LoadArgs acts as a factory of the scheduler: it makes the plugin name of args, the plugin's
// arguments in the scheduler's configuration, which are a [PluginConfig]. Before, each of set sets
// what the program has for the plugin: a Logger, an Observer, a Module.Source in the place of a
// module that the arguments name, and values for members that the arguments do not have.
//
// It fails on arguments that are missing, malformed or have unknown fields, all mistakes at
// once, and as [Load] does. The plugin is closed when ctx ends.
func LoadArgs(ctx context.Context, rt *host.Runtime, name string, args runtime.Object, f Framework, set ...func(*PluginConfig)) (*Plugin, error) {
	cfg, err := decodeArgs(args, set)
	if cfg == nil {
		return nil, fmt.Errorf("plugin %q: arguments: %w", name, err)
	}
	if cfg.Name != "" && cfg.Name != name {
		err = errors.Join(err, fmt.Errorf("name is %q, and the plugin's is %q", cfg.Name, name))
	}
	cfg.Name = name
	p, err := load(ctx, rt, *cfg, f, err)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = p.Close(context.WithoutCancel(ctx)) })
	return p, nil
}

// decodeArgs reads the arguments in the form that the scheduler hands over: the raw bytes from its
// configuration. Arguments may be returned even with an error, so that other mistakes in them are
// also found.
func decodeArgs(object runtime.Object, set []func(*PluginConfig)) (*PluginConfig, error) {
	args := &PluginConfig{}
	for _, f := range set {
		f(args)
	}
	source := args.Module.Source
	unknown, ok := object.(*runtime.Unknown)
	switch {
	case ok && unknown != nil:
		args.Module.Source = nil
		err := configfile.YAML(unknown.Raw, (*fields)(args))
		if mistakes := (*configfile.Error)(nil); err != nil && !errors.As(err, &mistakes) {
			return nil, err
		}
		if source != nil && !args.Module.IsZero() {
			err = errors.Join(err, errors.New("module: the program provides the module"))
		}
		args.Module.Source = source
		return args, err
	case object != nil || source == nil:
		return nil, fmt.Errorf("got %T, want the args of a pluginConfig", object)
	}
	return args, nil
}

// validate reports every mistake that is one of this package alone.
func (c *PluginConfig) validate(rt *host.Runtime) error {
	var errs []error
	mistake := func(wrong bool, text string, values ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(text, values...))
		}
	}
	mistake(c.LogSeverity < 0 || c.LogSeverity > 3, "logSeverity is %d, want 0 to 3", c.LogSeverity)
	mistake(c.CycleFuel < 0, "cycleFuel is %d, less than 0", c.CycleFuel)
	mistake(c.QueueTimeout < 0, "queueTimeout is %s, less than 0", c.QueueTimeout)
	if err := c.FailurePolicy.Check(); err != nil {
		errs = append(errs, err)
	}
	if err := c.Mode.Check(); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, lookup.CheckGrants(c.Objects)...)
	errs = append(errs, lookup.CheckQueries(c.Objects)...)
	if c.Shadow != nil {
		errs = append(errs, c.Shadow.Check(rt, "shadow")...)
	}
	_, err := objects.ParseFieldSet(c.Reads)
	mistake(err != nil, "reads: %w", err)
	return errors.Join(errs...)
}
