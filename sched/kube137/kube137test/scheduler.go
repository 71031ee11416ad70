package kube137test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// CycleState is a fwk.CycleState that keeps the data written by plugins. Its other methods, which
// only the framework itself calls, panic.
type CycleState struct {
	fwk.CycleState
	data sync.Map
}

// NewCycleState returns an empty CycleState.
func NewCycleState() *CycleState { return &CycleState{} }

// Read implements fwk.CycleState.
func (s *CycleState) Read(key fwk.StateKey) (fwk.StateData, error) {
	v, ok := s.data.Load(key)
	if !ok {
		return nil, fwk.ErrNotFound
	}
	return v.(fwk.StateData), nil
}

// Write implements fwk.CycleState.
func (s *CycleState) Write(key fwk.StateKey, value fwk.StateData) { s.data.Store(key, value) }

// Delete implements fwk.CycleState.
func (s *CycleState) Delete(key fwk.StateKey) { s.data.Delete(key) }

// Clone implements fwk.CycleState.
func (s *CycleState) Clone() fwk.CycleState {
	clone := NewCycleState()
	s.data.Range(func(k, v any) bool {
		clone.data.Store(k, v.(fwk.StateData).Clone())
		return true
	})
	return clone
}

// NodeInfo is a fwk.NodeInfo. Its methods for affinity and for declared features
// panic.
type NodeInfo struct {
	fwk.NodeInfo
	node       *corev1.Node
	pods       []fwk.PodInfo
	generation int64
	// Requested and the others may be set before the NodeInfo is used. AddPodInfo
	// and RemovePod count the CPU that Pods request, and nothing else.
	Requested, NonZeroRequested, Allocatable Resource
	UsedPorts                                fwk.HostPortInfo
	ImageStates                              map[string]*fwk.ImageStateSummary
	PVCRefCounts                             map[string]int
}

// generations counts the changes of all NodeInfos, as the scheduler does.
var generations atomic.Int64

// NewNodeInfo returns the NodeInfo of node with the Pods.
func NewNodeInfo(node *corev1.Node, pods ...*corev1.Pod) *NodeInfo {
	n := &NodeInfo{node: node, generation: generations.Add(1)}
	for _, p := range pods {
		n.AddPodInfo(PodInfo{Pod: p})
	}
	return n
}

// Node implements fwk.NodeInfo.
func (n *NodeInfo) Node() *corev1.Node { return n.node }

// GetPods implements fwk.NodeInfo.
func (n *NodeInfo) GetPods() []fwk.PodInfo { return n.pods }

// GetUsedPorts implements fwk.NodeInfo.
func (n *NodeInfo) GetUsedPorts() fwk.HostPortInfo { return n.UsedPorts }

// GetRequested implements fwk.NodeInfo.
func (n *NodeInfo) GetRequested() fwk.Resource { return &n.Requested }

// GetNonZeroRequested implements fwk.NodeInfo.
func (n *NodeInfo) GetNonZeroRequested() fwk.Resource { return &n.NonZeroRequested }

// GetAllocatable implements fwk.NodeInfo.
func (n *NodeInfo) GetAllocatable() fwk.Resource { return &n.Allocatable }

// GetImageStates implements fwk.NodeInfo.
func (n *NodeInfo) GetImageStates() map[string]*fwk.ImageStateSummary { return n.ImageStates }

// GetPVCRefCounts implements fwk.NodeInfo.
func (n *NodeInfo) GetPVCRefCounts() map[string]int { return n.PVCRefCounts }

// GetGeneration implements fwk.NodeInfo.
func (n *NodeInfo) GetGeneration() int64 { return n.generation }

// Snapshot implements fwk.NodeInfo.
func (n *NodeInfo) Snapshot() fwk.NodeInfo {
	clone := *n
	clone.pods = slices.Clone(n.pods)
	return &clone
}

// AddPodInfo implements fwk.NodeInfo.
func (n *NodeInfo) AddPodInfo(p fwk.PodInfo) {
	n.pods = append(n.pods, p)
	n.Requested.MilliCPU += milliCPU(p.GetPod())
	n.generation = generations.Add(1)
}

// RemovePod implements fwk.NodeInfo.
func (n *NodeInfo) RemovePod(_ klog.Logger, pod *corev1.Pod) error {
	for i, p := range n.pods {
		if p.GetPod().UID == pod.UID && p.GetPod().Name == pod.Name {
			n.pods = slices.Delete(n.pods, i, i+1)
			n.Requested.MilliCPU -= milliCPU(pod)
			n.generation = generations.Add(1)
			return nil
		}
	}
	return fmt.Errorf("no Pod %s on node %s", pod.Name, n.node.Name)
}

func milliCPU(pod *corev1.Pod) (sum int64) {
	for _, c := range pod.Spec.Containers {
		sum += c.Resources.Requests.Cpu().MilliValue()
	}
	return sum
}

// Resource is a fwk.Resource. Its other methods panic.
type Resource struct {
	fwk.Resource
	MilliCPU, Memory, EphemeralStorage int64
	AllowedPodNumber                   int
	ScalarResources                    map[corev1.ResourceName]int64
}

// GetMilliCPU implements fwk.Resource.
func (r *Resource) GetMilliCPU() int64 { return r.MilliCPU }

// GetMemory implements fwk.Resource.
func (r *Resource) GetMemory() int64 { return r.Memory }

// GetEphemeralStorage implements fwk.Resource.
func (r *Resource) GetEphemeralStorage() int64 { return r.EphemeralStorage }

// GetAllowedPodNumber implements fwk.Resource.
func (r *Resource) GetAllowedPodNumber() int { return r.AllowedPodNumber }

// GetScalarResources implements fwk.Resource.
func (r *Resource) GetScalarResources() map[corev1.ResourceName]int64 { return r.ScalarResources }

// PodInfo is a fwk.PodInfo. Its other methods panic.
type PodInfo struct {
	fwk.PodInfo
	Pod *corev1.Pod
}

// GetPod implements fwk.PodInfo.
func (p PodInfo) GetPod() *corev1.Pod { return p.Pod }

// QueuedPod is the fwk.QueuedEntityInfo of a Pod. Its other methods panic.
type QueuedPod struct {
	fwk.QueuedEntityInfo
	Pod  *corev1.Pod
	Came time.Time
}

// GetPodInfo is the method of fwk.QueuedPodInfo beyond those of fwk.QueuedEntityInfo.
func (q QueuedPod) GetPodInfo() fwk.PodInfo { return PodInfo{Pod: q.Pod} }

// GetTimestamp implements fwk.QueuedEntityInfo.
func (q QueuedPod) GetTimestamp() time.Time { return q.Came }

// GetInitialAttemptTimestamp implements fwk.QueuedEntityInfo, and GetAttempts, too: of a Pod that was
// tried once.
func (q QueuedPod) GetInitialAttemptTimestamp() *time.Time { return &q.Came }
func (q QueuedPod) GetAttempts() int                       { return 1 }

// GetPriority implements fwk.QueuedEntityInfo.
//
//minor:since 1.37
func (q QueuedPod) GetPriority() int32 {
	if q.Pod.Spec.Priority == nil {
		return 0
	}
	return *q.Pod.Spec.Priority
}

// NodeStatuses is a fwk.NodeToStatusReader that holds the statuses of nodes by their names, like
// the framework's own type. Its methods of the interface panic.
type NodeStatuses struct {
	fwk.NodeToStatusReader
	ByName map[string]*fwk.Status
}

// ForEachExplicitNode calls f with each node that has a status.
func (s NodeStatuses) ForEachExplicitNode(f func(string, *fwk.Status)) {
	for name, status := range s.ByName {
		f(name, status)
	}
}

// Handle is a fwk.Handle with a snapshot of nodes, waiting Pods and a recorder. Its other methods
// panic.
type Handle struct {
	fwk.Handle
	Profile   string
	Nodes     []*NodeInfo
	Waiting   []*WaitingPod
	Recorder  events.EventRecorderLogger
	Informers informers.SharedInformerFactory
	// Activated, unless nil, is called with the Pods that the queue tries again, by their names.
	Activated func(pods map[string]*corev1.Pod)
}

// ProfileName implements fwk.Handle.
func (h *Handle) ProfileName() string { return h.Profile }

// Activate implements fwk.Handle.
func (h *Handle) Activate(_ klog.Logger, pods map[string]*corev1.Pod) {
	if h.Activated != nil {
		h.Activated(pods)
	}
}

// SnapshotSharedLister implements fwk.Handle.
func (h *Handle) SnapshotSharedLister() fwk.SharedLister { return sharedLister{h: h} }

// MutableSnapshotSharedLister implements fwk.Handle.
//
//minor:since 1.37
func (h *Handle) MutableSnapshotSharedLister() fwk.MutableSnapshotSharedLister {
	return &mutableLister{sharedLister: sharedLister{h: h}}
}

// mutableLister is a fwk.MutableSnapshotSharedLister. AddPod panics.
//
//minor:since 1.37
type mutableLister struct {
	sharedLister
	fwk.MutableSnapshotSharedLister
	before []*NodeInfo
}

// NodeInfos implements fwk.SharedLister.
//
//minor:since 1.37
func (l *mutableLister) NodeInfos() fwk.NodeInfoLister { return l.sharedLister.NodeInfos() }

// StartMutations implements fwk.MutableSnapshotSharedLister.
//
//minor:since 1.37
func (l *mutableLister) StartMutations() error {
	l.before = l.h.Nodes
	l.h.Nodes = slices.Clone(l.h.Nodes)
	for i, n := range l.h.Nodes {
		l.h.Nodes[i] = n.Snapshot().(*NodeInfo)
	}
	return nil
}

// EndMutations implements fwk.MutableSnapshotSharedLister.
//
//minor:since 1.37
func (l *mutableLister) EndMutations() error {
	l.h.Nodes = l.before
	return nil
}

// RemovePod implements fwk.MutableSnapshotSharedLister.
//
//minor:since 1.37
func (l *mutableLister) RemovePod(logger klog.Logger, pod *corev1.Pod, nodeName string) error {
	n, err := l.NodeInfos().Get(nodeName)
	if err != nil {
		return err
	}
	return n.RemovePod(logger, pod)
}

// EventRecorder implements fwk.Handle.
func (h *Handle) EventRecorder() events.EventRecorderLogger { return h.Recorder }

// SharedInformerFactory implements fwk.Handle.
func (h *Handle) SharedInformerFactory() informers.SharedInformerFactory { return h.Informers }

// IterateOverWaitingPods implements fwk.Handle.
func (h *Handle) IterateOverWaitingPods(callback func(fwk.WaitingPod)) {
	for _, w := range h.Waiting {
		callback(w)
	}
}

// GetWaitingPod implements fwk.Handle.
func (h *Handle) GetWaitingPod(uid types.UID) fwk.WaitingPod {
	for _, w := range h.Waiting {
		if w.Pod.UID == uid {
			return w
		}
	}
	return nil
}

type sharedLister struct {
	fwk.SharedLister
	h *Handle
}

func (s sharedLister) NodeInfos() fwk.NodeInfoLister { return nodeInfoLister{h: s.h} }

type nodeInfoLister struct {
	fwk.NodeInfoLister
	h *Handle
}

func (l nodeInfoLister) List() (list []fwk.NodeInfo, _ error) {
	for _, n := range l.h.Nodes {
		list = append(list, n)
	}
	return list, nil
}

func (l nodeInfoLister) Get(name string) (fwk.NodeInfo, error) {
	for _, n := range l.h.Nodes {
		if n.node.Name == name {
			return n, nil
		}
	}
	return nil, fmt.Errorf("no node %q", name)
}

// WaitingPod is a fwk.WaitingPod that records whether it was allowed or rejected.
type WaitingPod struct {
	fwk.WaitingPod
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

// GetPod implements fwk.WaitingPod.
func (w *WaitingPod) GetPod() *corev1.Pod { return w.Pod }

// GetPendingPlugins implements fwk.WaitingPod.
func (w *WaitingPod) GetPendingPlugins() []string { return w.Pending }

// Allow implements fwk.WaitingPod.
func (w *WaitingPod) Allow(plugin string) { w.end("allowed by ", plugin) }

// Reject implements fwk.WaitingPod.
func (w *WaitingPod) Reject(plugin, msg string) bool {
	w.end("rejected by ", plugin, ": ", msg)
	return true
}
