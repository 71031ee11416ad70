// Package framework makes what a scheduler passes to the engine of package sched, for programs
// without a scheduler: the quick start, the command's trial runs, tests. It uses no minor's
// Go interface.
package framework

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/kubewasm/kubewasm/codec/schedmsg"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/objects/lookup"
	"github.com/kubewasm/kubewasm/sched"
)

// Of returns the framework of a scheduler without a minor, which calls all functions of a
// guest. handle may be nil.
func Of(handle *Handle) sched.Framework {
	f := sched.Framework{
		Minor:      "of no release",
		AppendPods: func(pods []*corev1.Pod, n sched.NodeInfo) []*corev1.Pod { return append(pods, n.(*NodeInfo).Pods...) },
		Usage:      func(n sched.NodeInfo) schedmsg.NodeInfo { return n.(*NodeInfo).Usage() },
		Images:     func(n sched.NodeInfo) []schedmsg.Image { return slices.Clone(n.(*NodeInfo).Images) },
		Freeze: func(n sched.NodeInfo) sched.NodeInfo {
			frozen := *n.(*NodeInfo)
			frozen.Pods = slices.Clone(frozen.Pods)
			return &frozen
		},
	}
	if handle != nil {
		f.Handle = handle
	}
	return f
}

// NodeInfo is a node of the snapshot.
type NodeInfo struct {
	node       *corev1.Node
	generation int64
	// Pods are those on the node, which Add and Remove change.
	Pods []*corev1.Pod
	// Requested and the others may be set before the NodeInfo is used. Add and Remove count
	// the CPU that Pods request, and nothing else.
	Requested, NonZeroRequested, Allocatable Resource
	UsedPorts                                []schedmsg.HostPort
	PVCRefCounts                             map[string]int
	Images                                   []schedmsg.Image
}

// generations counts the changes of all NodeInfos, as the scheduler does.
var generations atomic.Int64

// NewNodeInfo returns the NodeInfo of node with the Pods.
func NewNodeInfo(node *corev1.Node, pods ...*corev1.Pod) *NodeInfo {
	n := &NodeInfo{node: node, generation: generations.Add(1)}
	for _, p := range pods {
		n.Add(p)
	}
	return n
}

// Node implements sched.NodeInfo.
func (n *NodeInfo) Node() *corev1.Node { return n.node }

// GetGeneration implements sched.NodeInfo.
func (n *NodeInfo) GetGeneration() int64 { return n.generation }

// Usage returns what the scheduler counts of the node.
func (n *NodeInfo) Usage() schedmsg.NodeInfo {
	return schedmsg.NodeInfo{
		Requested: &n.Requested, NonZeroRequested: &n.NonZeroRequested, Allocatable: &n.Allocatable,
		UsedPorts: slices.Clone(n.UsedPorts), PVCRefCounts: n.PVCRefCounts, Pods: len(n.Pods),
	}
}

// Add adds a Pod.
func (n *NodeInfo) Add(pod *corev1.Pod) {
	n.Pods = append(n.Pods, pod)
	n.Requested.MilliCPU += milliCPU(pod)
	n.generation = generations.Add(1)
}

// Remove removes a Pod.
func (n *NodeInfo) Remove(pod *corev1.Pod) error {
	i := slices.IndexFunc(n.Pods, func(p *corev1.Pod) bool { return p.UID == pod.UID && p.Name == pod.Name })
	if i < 0 {
		return fmt.Errorf("no Pod %s on node %s", pod.Name, n.node.Name)
	}
	n.Pods = slices.Delete(slices.Clone(n.Pods), i, i+1)
	n.Requested.MilliCPU -= milliCPU(pod)
	n.generation = generations.Add(1)
	return nil
}

func milliCPU(pod *corev1.Pod) (sum int64) {
	for _, c := range pod.Spec.Containers {
		sum += c.Resources.Requests.Cpu().MilliValue()
	}
	return sum
}

// Resource is a schedmsg.Resource.
type Resource struct {
	MilliCPU, Memory, EphemeralStorage int64
	AllowedPodNumber                   int
	ScalarResources                    map[corev1.ResourceName]int64
}

// GetMilliCPU implements schedmsg.Resource.
func (r *Resource) GetMilliCPU() int64 { return r.MilliCPU }

// GetMemory implements schedmsg.Resource.
func (r *Resource) GetMemory() int64 { return r.Memory }

// GetEphemeralStorage implements schedmsg.Resource.
func (r *Resource) GetEphemeralStorage() int64 { return r.EphemeralStorage }

// GetAllowedPodNumber implements schedmsg.Resource.
func (r *Resource) GetAllowedPodNumber() int { return r.AllowedPodNumber }

// GetScalarResources implements schedmsg.Resource.
func (r *Resource) GetScalarResources() map[corev1.ResourceName]int64 { return r.ScalarResources }

// Nodes is a list of nodes.
type Nodes []*NodeInfo

// Len implements sched.Nodes.
func (n Nodes) Len() int { return len(n) }

// At implements sched.Nodes.
func (n Nodes) At(i int) sched.NodeInfo { return n[i] }

// Score is the score of a node or a placement.
type Score struct {
	Name  string
	Score int64
}

// Scores is a list of scores.
type Scores []Score

// Len implements sched.Scores.
func (s Scores) Len() int { return len(s) }

// Name implements sched.Scores.
func (s Scores) Name(i int) string { return s[i].Name }

// Score implements sched.Scores.
func (s Scores) Score(i int) int64 { return s[i].Score }

// SetScore implements sched.Scores.
func (s Scores) SetScore(i int, score int64) { s[i].Score = score }

// parallelism is that of a scheduler which is not configured.
const parallelism = 16

// Handle is a sched.Handle with a snapshot of nodes, Pods that wait and a recorder.
type Handle struct {
	Snapshot  Nodes
	Waiting   []*WaitingPod
	Recorder  func(regarding, related runtime.Object, eventType, reason, action, note string)
	Informers Informers
	// Synced reports whether the informers have all objects. They have if it is nil.
	Synced func() bool
	// Activated is called with Pods that the queue tries again, and Refuses with those that do
	// not enter it, unless nil.
	Activated func(pods []*corev1.Pod)
	Refuses   func(pod *corev1.Pod, note string)
	// Activates is called with the Pods that a guest activates, unless nil: then they are found by
	// Activated once they are tried.
	Activates func(pods []types.NamespacedName)
	// Applies is called with what a guest has applied to objects, unless nil: then Apply calls AppliesAs
	// once the host gets to it.
	Applies   func(of sched.Applied)
	AppliesAs func(manager string, of sched.Applied) error

	// Nominations are the Pods nominated for nodes, by their names.
	Nominations map[string][]*corev1.Pod

	mu       sync.Mutex
	watchers map[schema.GroupVersionResource][]*func(oldObj, newObj any)
}

// Nodes implements sched.Handle.
func (h *Handle) Nodes() (sched.Nodes, error) { return h.Snapshot, nil }

// Node implements sched.Handle.
func (h *Handle) Node(name string) sched.NodeInfo {
	for _, n := range h.Snapshot {
		if n.node.Name == name {
			return n
		}
	}
	return nil
}

// Parallel implements sched.Handle.
func (h *Handle) Parallel(pieces int, _ string, work func(piece int)) {
	workqueue.ParallelizeUntil(context.Background(), parallelism, pieces, work)
}

// Without implements sched.Handle.
func (h *Handle) Without(pods []*corev1.Pod, f func()) error {
	before := h.Snapshot
	defer func() { h.Snapshot = before }()
	h.Snapshot = make(Nodes, len(before))
	for i, n := range before {
		clone := *n
		h.Snapshot[i] = &clone
	}
	for _, pod := range pods {
		n, ok := h.Node(pod.Spec.NodeName).(*NodeInfo)
		if !ok {
			return fmt.Errorf("no node %q", pod.Spec.NodeName)
		}
		if err := n.Remove(pod); err != nil {
			return err
		}
	}
	f()
	return nil
}

// Eventf implements sched.Handle.
func (h *Handle) Eventf(regarding, related runtime.Object, eventType, reason, action, note string) {
	h.Recorder(regarding, related, eventType, reason, action, note)
}

// Lister implements sched.Handle.
func (h *Handle) Lister(grant host.ObjectGrant) (sched.Objects, error) {
	resource, err := lookup.ParseResource(grant.Resource)
	if err != nil {
		return sched.Objects{}, err
	}
	lister, err := h.Informers.Lister(resource)
	return sched.Objects{
		GenericLister: lister,
		Synced:        func() (bool, error) { return h.Synced == nil || h.Synced(), nil },
		Watch: func(changed func(oldObj, newObj any)) (stop func(), err error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.watchers == nil {
				h.watchers = map[schema.GroupVersionResource][]*func(oldObj, newObj any){}
			}
			h.watchers[resource] = append(h.watchers[resource], &changed)
			return func() {
				h.mu.Lock()
				defer h.mu.Unlock()
				h.watchers[resource] = slices.DeleteFunc(h.watchers[resource], func(w *func(oldObj, newObj any)) bool { return w == &changed })
			}, nil
		},
		Close: func() {},
	}, err
}

// Change changes an object of an informer and tells those who watch it. One of them is nil if the
// object is added or deleted.
func (h *Handle) Change(resource schema.GroupVersionResource, oldObj, newObj any) error {
	store := h.Informers[resource]
	var err error
	if newObj != nil {
		err = store.Update(newObj)
	} else {
		err = store.Delete(oldObj)
	}
	h.mu.Lock()
	watchers := slices.Clone(h.watchers[resource])
	h.mu.Unlock()
	for _, w := range watchers {
		(*w)(oldObj, newObj)
	}
	return err
}

// Pending implements sched.Handle: all Pods without a node are.
func (h *Handle) Pending(pod *corev1.Pod) *corev1.Pod {
	if pod.Spec.NodeName != "" {
		return nil
	}
	return pod
}

// Activate implements sched.Handle.
func (h *Handle) Activate(pods []*corev1.Pod) {
	if h.Activated != nil {
		h.Activated(pods)
	}
}

// Activating takes the Pods that a guest activates, and reports whether it has.
func (h *Handle) Activating(pods []types.NamespacedName) bool {
	if h.Activates == nil {
		return false
	}
	h.Activates(pods)
	return true
}

// Apply implements sched.Handle.
func (h *Handle) Apply(_ context.Context, manager string, of sched.Applied) error {
	if h.AppliesAs == nil {
		return nil
	}
	return h.AppliesAs(manager, of)
}

// Applying takes what a guest has applied, and reports whether it has.
func (h *Handle) Applying(of sched.Applied) bool {
	if h.Applies == nil {
		return false
	}
	h.Applies(of)
	return true
}

// Refused implements sched.Handle.
func (h *Handle) Refused(pod *corev1.Pod, note string) {
	if h.Refuses != nil {
		h.Refuses(pod, note)
	}
}

// WaitingPods implements sched.Handle.
func (h *Handle) WaitingPods() iter.Seq[sched.WaitingPod] {
	return func(yield func(sched.WaitingPod) bool) {
		for _, w := range h.Waiting {
			if !yield(w) {
				return
			}
		}
	}
}

// WaitingPod implements sched.Handle.
func (h *Handle) WaitingPod(uid types.UID) sched.WaitingPod {
	for _, w := range h.Waiting {
		if w.Pod.UID == uid {
			return w
		}
	}
	return nil
}

// WaitingPod is a sched.WaitingPod that records whether it was allowed or rejected.
type WaitingPod struct {
	Pod     *corev1.Pod
	Pending []string

	mu     sync.Mutex
	result []string
}

// Result returns "allowed by PLUGIN" or "rejected by PLUGIN: REASON", empty while
// the Pod waits.
func (w *WaitingPod) Result() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.result, "")
}

// end keeps the strings without copying them, as the scheduler does.
func (w *WaitingPod) end(result ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.result = append(w.result, result...)
}

// GetPod implements sched.WaitingPod.
func (w *WaitingPod) GetPod() *corev1.Pod { return w.Pod }

// GetPendingPlugins implements sched.WaitingPod.
func (w *WaitingPod) GetPendingPlugins() []string { return w.Pending }

// Allow implements sched.WaitingPod.
func (w *WaitingPod) Allow(plugin string) { w.end("allowed by ", plugin) }

// Reject implements sched.WaitingPod.
func (w *WaitingPod) Reject(plugin, msg string) bool {
	w.end("rejected by ", plugin, ": ", msg)
	return true
}
