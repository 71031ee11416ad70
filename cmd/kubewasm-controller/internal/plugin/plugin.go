// Package plugin gives the controllers one view of the objects that declare plugins.
package plugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/host"
)

// The kinds of plugins.
const (
	ClusterAdmissionPolicy = "ClusterAdmissionPolicy"
	AdmissionPolicy        = "AdmissionPolicy"
	NodeHook               = "NodeHook"
	SchedulerPlugin        = "SchedulerPlugin"
)

// The components that plugins are for, as the label app.kubernetes.io/component of their Pods has
// them.
const (
	Webhook   = "webhook"
	Agent     = "agent"
	Scheduler = "scheduler"
)

// Kinds returns the kinds.
func Kinds() []string {
	return []string{ClusterAdmissionPolicy, AdmissionPolicy, NodeHook, SchedulerPlugin}
}

// Key names a plugin.
type Key struct{ Kind, Namespace, Name string }

// String returns the kind in lower case, the namespace if there is one, and the name.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Kind + "/" + k.Name
	}
	return k.Kind + "/" + k.Namespace + "/" + k.Name
}

// ObjectKey returns the name of the object.
func (k Key) ObjectKey() client.ObjectKey {
	return client.ObjectKey{Namespace: k.Namespace, Name: k.Name}
}

// Component returns the component of a kind, "" if it is none of plugins.
func Component(kind string) string {
	switch kind {
	case ClusterAdmissionPolicy, AdmissionPolicy:
		return Webhook
	case NodeHook:
		return Agent
	case SchedulerPlugin:
		return Scheduler
	}
	return ""
}

// New returns an empty object of a kind.
func New(kind string) client.Object {
	switch kind {
	case ClusterAdmissionPolicy:
		return &v1alpha1.ClusterAdmissionPolicy{}
	case AdmissionPolicy:
		return &v1alpha1.AdmissionPolicy{}
	case NodeHook:
		return &v1alpha1.NodeHook{}
	case SchedulerPlugin:
		return &v1alpha1.SchedulerPlugin{}
	}
	panic("there is no kind " + kind)
}

// Lists returns an empty list of each kind of a component.
func Lists(component string) []client.ObjectList {
	switch component {
	case Agent:
		return []client.ObjectList{&v1alpha1.NodeHookList{}}
	case Scheduler:
		return []client.ObjectList{&v1alpha1.SchedulerPluginList{}}
	}
	return []client.ObjectList{&v1alpha1.ClusterAdmissionPolicyList{}, &v1alpha1.AdmissionPolicyList{}}
}

// Plugin is an object that declares a plugin. Object has its metadata; what it points to is that of
// the object.
type Plugin struct {
	client.Object
	Key    Key
	Raw    *runtime.RawExtension
	Status *v1alpha1.PluginStatus
}

// Of returns the view of an object; ok is false if it declares no plugin.
func Of(object any) (p Plugin, ok bool) {
	var kind string
	switch o := object.(type) {
	case *v1alpha1.ClusterAdmissionPolicy:
		kind, p = ClusterAdmissionPolicy, Plugin{Object: o, Raw: &o.Spec, Status: &o.Status}
	case *v1alpha1.AdmissionPolicy:
		kind, p = AdmissionPolicy, Plugin{Object: o, Raw: &o.Spec, Status: &o.Status}
	case *v1alpha1.NodeHook:
		kind, p = NodeHook, Plugin{Object: o, Raw: &o.Spec, Status: &o.Status}
	case *v1alpha1.SchedulerPlugin:
		kind, p = SchedulerPlugin, Plugin{Object: o, Raw: &o.Spec, Status: &o.Status}
	default:
		return Plugin{}, false
	}
	p.Key = Key{kind, p.GetNamespace(), p.GetName()}
	return p, true
}

// All returns the plugins of a list.
func All(list client.ObjectList) []Plugin {
	var all []Plugin
	add := func(object any) {
		p, _ := Of(object)
		all = append(all, p)
	}
	switch l := list.(type) {
	case *v1alpha1.ClusterAdmissionPolicyList:
		for i := range l.Items {
			add(&l.Items[i])
		}
	case *v1alpha1.AdmissionPolicyList:
		for i := range l.Items {
			add(&l.Items[i])
		}
	case *v1alpha1.NodeHookList:
		for i := range l.Items {
			add(&l.Items[i])
		}
	case *v1alpha1.SchedulerPluginList:
		for i := range l.Items {
			add(&l.Items[i])
		}
	}
	return all
}

// Spec has the members of a plugin that the controllers read.
type Spec struct {
	admission.PolicyRules
	Enabled  *bool             `json:"enabled,omitempty"`
	Converts []json.RawMessage `json:"converts,omitempty"`
	// AllowedToMutate lets API servers ask the policy to mutate.
	AllowedToMutate bool `json:"allowedToMutate,omitempty"`
	Limits          struct {
		Timeout string `json:"timeout,omitempty"`
	} `json:"limits,omitzero"`
	Module struct {
		OCI    string `json:"oci,omitempty"`
		SHA256 string `json:"sha256,omitempty"`
		Follow bool   `json:"follow,omitempty"`
	} `json:"module,omitzero"`
	NodeSelector string `json:"nodeSelector,omitempty"`
	Schedulers   struct {
		Names    []string `json:"names,omitempty"`
		Selector string   `json:"selector,omitempty"`
	} `json:"schedulers,omitzero"`
	// Rollout, Revision and RevisionHistoryLimit are of the controller alone.
	Rollout              json.RawMessage `json:"rollout,omitempty"`
	Revision             int64           `json:"revision,omitempty"`
	RevisionHistoryLimit *int            `json:"revisionHistoryLimit,omitempty"`
}

// Controlled reports whether processes serve the revisions of the status.
func (s *Spec) Controlled() bool { return len(s.Rollout) != 0 || s.Revision != 0 }

// ErrUndecided is the error of a plugin whose processes serve on what they have, until it is decided
// which revision they serve.
var ErrUndecided = errors.New("the revision to serve is not decided: see the condition RolledOut")

// InForce returns the spec that decides about requests for a policy: that of the stable revision, or of
// the first, which monitors while it is on trial. The error may be [ErrUndecided].
func (p *Plugin) InForce() (*Spec, error) {
	s, err := p.Spec()
	if err != nil || !s.Controlled() || s.Enabled != nil && !*s.Enabled {
		return s, err
	}
	r := p.Status.Rollout
	if r == nil {
		return nil, ErrUndecided
	}
	of := r.Stable
	if of == nil {
		of = r.Candidate
	}
	if of == nil || of.Spec == nil {
		return nil, ErrUndecided
	}
	serves := new(Spec)
	if err := json.Unmarshal(of.Spec.Raw, serves); err != nil {
		return nil, fmt.Errorf("status.rollout: %w", err)
	}
	if serves.Enabled = s.Enabled; r.Stable == nil {
		serves.Mode = host.Monitor
	}
	return serves, nil
}

// Spec returns the spec of the plugin.
func (p *Plugin) Spec() (*Spec, error) {
	s := new(Spec)
	if err := json.Unmarshal(p.Raw.Raw, s); err != nil {
		return nil, fmt.Errorf("spec: %w", err)
	}
	return s, nil
}

// Timeout returns limits.timeout, 0 if it is not set.
func (s *Spec) Timeout() time.Duration {
	d, err := time.ParseDuration(s.Limits.Timeout)
	if err != nil {
		return 0 // The programs refuse it.
	}
	return d
}

// Strip is a transformation of objects for caches. Of plugins it keeps the members of [Spec]: a
// spec may hold a module of a megabyte.
func Strip(object any) (any, error) {
	o, ok := object.(metav1.Object)
	if ok {
		o.SetManagedFields(nil)
	}
	p, ok := Of(object)
	if !ok {
		return object, nil
	}
	s, err := p.Spec()
	if err != nil {
		return object, nil // The reconcilers report it.
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	*p.Raw = runtime.RawExtension{Raw: text}
	annotations := p.GetAnnotations()
	delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
	p.SetAnnotations(annotations)
	return object, nil
}
