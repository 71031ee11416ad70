// Package reports keeps the PluginReports of namespaces in memory.
//
// 5,000 reports on 200 plugins are a million states, of which few differ. Each is two pointers here,
// to the plugin's key and to the state, which all reports share.
package reports

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/plugin"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/cut"
	"github.com/kubewasm/kubewasm/internal/foreign"
)

const (
	// maxStates bounds the states of a report; further ones are dropped.
	maxStates = 4096
	// maxMessageBytes bounds the message of a state.
	maxMessageBytes = 512
)

// State is the state of a plugin in one process.
type State struct {
	UID             types.UID
	Generation      int64
	State           string
	Digest, Message string
	// Revision, Trial and Failing are those of a plugin with a rollout.
	Revision, Trial        int64
	Failing                string
	CanValidate, CanMutate bool
}

// Guards reports whether requests may be sent to the process for the policy.
func (s *State) Guards() bool {
	return s.State == string(host.Serving) || s.State == string(host.Stale)
}

// Report is the report of one process.
type Report struct {
	// ObjectMeta has the name, the namespace, the identity and the owners.
	metav1.ObjectMeta
	// Component is that of the process: see package plugin.
	Component, Node string
	plugins         []unique.Handle[plugin.Key] // Sorted.
	states          []unique.Handle[State]
}

// GetObjectKind implements runtime.Object.
func (*Report) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. Reports do not change.
func (r *Report) DeepCopyObject() runtime.Object { return r }

// Pod returns the uid of the Pod that owns the report; ok is false if none does.
func (r *Report) Pod() (uid types.UID, ok bool) {
	for _, o := range r.OwnerReferences {
		if o.APIVersion == "v1" && o.Kind == "Pod" {
			return o.UID, o.Name == r.Name
		}
	}
	return "", false
}

// State returns the state of a plugin. ok is false if the report does not have it, or if it has that
// of an earlier object of the name.
func (r *Report) State(of plugin.Key, uid types.UID) (s State, ok bool) {
	i, ok := slices.BinarySearchFunc(r.plugins, of, func(h unique.Handle[plugin.Key], k plugin.Key) int { return compare(h.Value(), k) })
	if !ok {
		return State{}, false
	}
	s = r.states[i].Value()
	return s, s.UID == "" || s.UID == uid
}

// Changed calls changed with the plugins whose state differs between two reports of a process, either
// of which may be nil.
func Changed(before, after *Report, changed func(plugin.Key)) {
	if before == nil {
		before = &Report{}
	}
	if after == nil {
		after = &Report{}
	}
	all := before.Component != after.Component || before.Node != after.Node
	i, j := 0, 0
	for i < len(before.plugins) || j < len(after.plugins) {
		order := 0
		switch {
		case i == len(before.plugins):
			order = 1
		case j == len(after.plugins):
			order = -1
		case before.plugins[i] != after.plugins[j]:
			order = compare(before.plugins[i].Value(), after.plugins[j].Value())
		}
		switch {
		case order < 0:
			changed(before.plugins[i].Value())
			i++
		case order > 0:
			changed(after.plugins[j].Value())
			j++
		default:
			if all || before.states[i] != after.states[j] {
				changed(after.plugins[j].Value())
			}
			i, j = i+1, j+1
		}
	}
}

func compare(a, b plugin.Key) int {
	return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// Of returns a PluginReport in the form of this package. What it has too much of, and what its
// component cannot have, is dropped.
func Of(r *v1alpha1.PluginReport) *Report {
	out := &Report{
		ObjectMeta: metav1.ObjectMeta{Name: r.Name, Namespace: r.Namespace, UID: r.UID, ResourceVersion: r.ResourceVersion, OwnerReferences: r.OwnerReferences},
		Component:  unique.Make(strings.TrimPrefix(cut.Text(r.Component, 64), "kubewasm-")).Value(), Node: cut.Text(r.Node, 253),
	}
	type entry struct {
		plugin unique.Handle[plugin.Key]
		state  unique.Handle[State]
	}
	var all []entry
	for i := range r.Plugins[:min(len(r.Plugins), maxStates)] {
		p := &r.Plugins[i]
		if plugin.Component(p.Kind) != out.Component || out.Component == "" || len(p.Name) > 253 || len(p.Namespace) > 63 || len(p.UID) > 64 || len(p.Digest) > 64 || len(p.State) > 32 {
			continue
		}
		all = append(all, entry{unique.Make(plugin.Key{Kind: p.Kind, Namespace: p.Namespace, Name: p.Name}), unique.Make(State{
			UID: p.UID, Generation: p.Generation, State: p.State, Digest: foreign.Line(p.Digest), Message: cut.Text(foreign.Line(cut.Text(p.Message, maxMessageBytes)), maxMessageBytes),
			Revision: p.Revision, Trial: p.Trial, Failing: cut.Text(foreign.Line(cut.Text(p.Failing, maxMessageBytes)), maxMessageBytes),
			CanValidate: slices.Contains(p.Webhooks, "validate"), CanMutate: slices.Contains(p.Webhooks, "mutate"),
		})})
	}
	slices.SortStableFunc(all, func(a, b entry) int { return compare(a.plugin.Value(), b.plugin.Value()) })
	all = slices.CompactFunc(all, func(a, b entry) bool { return a.plugin == b.plugin })
	out.plugins, out.states = make([]unique.Handle[plugin.Key], len(all)), make([]unique.Handle[State], len(all))
	for i, e := range all {
		out.plugins[i], out.states[i] = e.plugin, e.state
	}
	return out
}

// Store has the reports of namespaces. It is a Runnable of a manager, in each of its processes.
type Store struct {
	informers map[string]cache.SharedIndexInformer
}

// New returns the Store of namespaces.
func New(config *rest.Config, client *http.Client, scheme *runtime.Scheme, namespaces []string) (*Store, error) {
	r, err := apiutil.RESTClientForGVK(v1alpha1.GroupVersion.WithKind("PluginReport"), false, false, config, serializer.NewCodecFactory(scheme), client)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	s := &Store{map[string]cache.SharedIndexInformer{}}
	for _, namespace := range namespaces {
		all := cache.NewListWatchFromClient(r, "pluginreports", namespace, fields.Everything())
		informer := cache.NewSharedIndexInformer(all, &v1alpha1.PluginReport{}, 0, nil)
		err := informer.SetTransform(func(object any) (any, error) {
			if r, ok := object.(*v1alpha1.PluginReport); ok {
				return Of(r), nil
			}
			return object, nil // It is one already.
		})
		if err != nil {
			return nil, err
		}
		s.informers[namespace] = informer
	}
	return s, nil
}

// Start follows the reports until ctx ends.
func (s *Store) Start(ctx context.Context) error {
	var all sync.WaitGroup
	for _, informer := range s.informers {
		all.Go(func() { informer.RunWithContext(ctx) })
	}
	all.Wait()
	return nil
}

// NeedLeaderElection returns false: a process that becomes the leader has the reports already.
func (s *Store) NeedLeaderElection() bool { return false }

// Check is a check of readiness: the error is nil once the Store has all reports.
func (s *Store) Check(*http.Request) error {
	for namespace, informer := range s.informers {
		if !informer.HasSynced() {
			return fmt.Errorf("the reports of the namespace %s are being read", namespace)
		}
	}
	return nil
}

// Wait waits until the Store has all reports: before, every plugin would be without processes. The
// error is that of ctx.
func (s *Store) Wait(ctx context.Context) error {
	for _, informer := range s.informers {
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return context.Cause(ctx)
		}
	}
	return nil
}

// OnChange has changed called with each change: before or after is nil if there is none.
func (s *Store) OnChange(changed func(before, after *Report)) error {
	of := func(object any) *Report {
		if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		r, _ := object.(*Report)
		return r
	}
	for _, informer := range s.informers {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { changed(nil, of(object)) },
			UpdateFunc: func(before, after any) { changed(of(before), of(after)) },
			DeleteFunc: func(object any) { changed(of(object), nil) },
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Get returns the report of a process, nil if there is none.
func (s *Store) Get(namespace, name string) *Report {
	informer := s.informers[namespace]
	if informer == nil {
		return nil
	}
	object, ok, err := informer.GetStore().GetByKey(namespace + "/" + name)
	if err != nil || !ok {
		return nil
	}
	return object.(*Report)
}

// All returns the reports of a component.
func (s *Store) All(component string) []*Report {
	var all []*Report
	for _, informer := range s.informers {
		for _, object := range informer.GetStore().List() {
			if r := object.(*Report); r.Component == component {
				all = append(all, r)
			}
		}
	}
	return all
}
