// Package status adds reports up in the status of plugins.
package status

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/plugin"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/reports"
	"github.com/kubewasm/kubewasm/host"
)

// The labels of Pods that report.
const (
	componentLabel = "app.kubernetes.io/component"
	partOfLabel    = "app.kubernetes.io/part-of"
)

// Pods selects the Pods that report.
func Pods() labels.Selector {
	selector, err := labels.Parse(componentLabel + " in (" + plugin.Webhook + "," + plugin.Agent + "," + plugin.Scheduler + ")," + partOfLabel + "=kubewasm")
	if err != nil {
		panic(err)
	}
	return selector
}

// StripPod is a transformation of Pods for caches: it keeps what this package reads, and the labels of
// schedulers alone, of which there are few.
func StripPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	kept := pod.Labels
	if kept[componentLabel] != plugin.Scheduler {
		kept = map[string]string{componentLabel: pod.Labels[componentLabel]}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion, DeletionTimestamp: pod.DeletionTimestamp,
			Labels: kept,
		},
		Spec:   corev1.PodSpec{NodeName: pod.Spec.NodeName},
		Status: corev1.PodStatus{Phase: pod.Status.Phase},
	}, nil
}

// Processes are the processes of components.
type Processes struct {
	// Client reads Pods and nodes from the cache, which has the Pods of the namespaces of Reports.
	Client  client.Reader
	Reports *reports.Store
}

// process is a Pod with its report, if it has one. A process outside of the cluster has a report
// alone.
type process struct {
	namespace, name, node string
	report                *reports.Report
	labels                labels.Set // Of the Pod of a scheduler.
}

// runs reports whether a Pod is or will be a process.
func runs(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp.IsZero() && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// of returns the processes of a component, in no order.
func (p *Processes) of(ctx context.Context, component string) ([]process, error) {
	if err := p.Reports.Wait(ctx); err != nil {
		return nil, err
	}
	pods := &corev1.PodList{}
	err := p.Client.List(ctx, pods, client.MatchingLabels{componentLabel: component}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, err
	}
	uids := make(map[types.UID]*corev1.Pod, len(pods.Items))
	for i := range pods.Items {
		if pod := &pods.Items[i]; runs(pod) {
			uids[pod.UID] = pod
		}
	}
	all := make([]process, 0, len(uids))
	now := time.Now()
	for _, r := range p.Reports.All(component) {
		uid, owned := r.Pod()
		pod := uids[uid]
		switch {
		case !owned && r.Left(now) <= 0:
		case !owned:
			all = append(all, process{r.Namespace, r.Name, r.Node, r, nil})
		case pod != nil && pod.Name == r.Name && pod.Namespace == r.Namespace:
			all = append(all, process{r.Namespace, r.Name, pod.Spec.NodeName, r, pod.Labels})
			delete(uids, uid)
		} // Otherwise the Pod is gone, or another one of its name.
	}
	for _, pod := range uids {
		all = append(all, process{pod.Namespace, pod.Name, pod.Spec.NodeName, nil, pod.Labels})
	}
	return all, nil
}

// Process is a process that a plugin is for.
type Process struct {
	// Name is the name by which rollouts choose: that of the node, or of the Pod of a webhook.
	Name string
	// Labels are those of the node of an agent.
	Labels labels.Set
	// State is the state of the plugin, nil if the process has not reported on it.
	State *reports.State
}

// Of returns the processes that a plugin is for, in the order of their names. selector selects the nodes
// of agents, and webhooks are those of a namespace: agents of another one could report in their names.
func (p *Processes) Of(ctx context.Context, of plugin.Plugin, selector labels.Selector, webhooks string) ([]Process, error) {
	all, err := p.of(ctx, plugin.Component(of.Key.Kind))
	if err != nil {
		return nil, err
	}
	var list []Process
	labelsOf := p.nodes(ctx)
	for _, process := range all {
		if plugin.Component(of.Key.Kind) == plugin.Webhook && process.namespace != webhooks {
			continue
		}
		one := Process{Name: process.name}
		if plugin.Component(of.Key.Kind) == plugin.Agent {
			one.Name, one.Labels = cmp.Or(process.node, process.name), labelsOf(process.node)
			if process.report != nil { // By the name that it has for itself.
				one.Name = cmp.Or(process.report.Node, process.name)
			}
			if !selector.Matches(one.Labels) {
				continue
			}
		}
		if process.report != nil {
			if s, ok := process.report.State(of.Key, of.GetUID()); ok {
				one.State = &s
			}
		}
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b Process) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// nodes returns a function for the labels of nodes, nil for a node that is unknown. It reads all into
// one object: a reconciliation asks for thousands.
func (p *Processes) nodes(ctx context.Context) func(name string) labels.Set {
	node := &metav1.PartialObjectMetadata{}
	return func(name string) labels.Set {
		*node = metav1.PartialObjectMetadata{}
		node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
		if name == "" || p.Client.Get(ctx, client.ObjectKey{Name: name}, node, client.UnsafeDisableDeepCopy) != nil {
			return nil
		}
		return node.Labels
	}
}

// Snapshot are the processes of a component at one time.
type Snapshot []process

// Snapshot returns the processes of a component in a namespace.
func (p *Processes) Snapshot(ctx context.Context, component, namespace string) (Snapshot, error) {
	all, err := p.of(ctx, component)
	return slices.DeleteFunc(all, func(p process) bool { return p.namespace != namespace }), err
}

// Guards returns the number of processes that requests for a policy may be sent to, and of those that
// can be asked to validate and to mutate. disabled reports whether all that report on it have it
// disabled.
func (s Snapshot) Guards(of plugin.Key, uid types.UID) (all, validate, mutate int, disabled bool) {
	listed, off := 0, 0
	for _, process := range s {
		if process.report == nil {
			continue
		}
		state, ok := process.report.State(of, uid)
		if ok {
			listed++
		}
		if ok && state.State == string(host.Disabled) {
			off++
		}
		if !ok || !state.Guards() {
			continue
		}
		all++
		if state.CanValidate {
			validate++
		}
		if state.CanMutate {
			mutate++
		}
	}
	return all, validate, mutate, listed != 0 && off == listed
}
