package sched

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/schedmsg"
	"github.com/kubewasm/kubewasm/host"
)

// Framework describes the Go interface of scheduler plugins in one minor of Kubernetes for a
// [Plugin]. Each package kube135, kube136 and so on has one.
type Framework struct {
	// Minor is the minor of Kubernetes, such as "1.37", for messages.
	Minor string
	// Profile is the name of the plugin's profile, or empty. Metrics and logs tell plugins of one
	// name in several profiles apart by it.
	Profile string
	// Lacks are the functions that the scheduler of this minor does not call.
	Lacks abi.Mask
	// AppendPods appends the Pods on a node, Usage returns the scheduler's counts of it, and Images
	// the images on it. They are called with values that the scheduler passed or Handle returned,
	// Usage and Images once for each generation of a node.
	AppendPods func([]*corev1.Pod, NodeInfo) []*corev1.Pod
	Usage      func(NodeInfo) schedmsg.NodeInfo
	Images     func(NodeInfo) []schedmsg.Image
	// Freeze returns a copy of a node that does not change when the scheduler changes the node. A
	// plugin without it has no shadow.
	Freeze func(NodeInfo) NodeInfo
	// Handle is the scheduler. Without one, calls of host functions that need a grant fail.
	Handle Handle
}

// NodeInfo is a node in the scheduler: a NodeInfo of the framework is one.
type NodeInfo interface {
	// Node returns the Node, nil if it no longer exists.
	Node() *corev1.Node
	// GetGeneration returns a number that is unique to this state of the node.
	GetGeneration() int64
}

// Nodes is a list of nodes. As an argument, nil is all of the snapshot.
type Nodes interface {
	Len() int
	At(i int) NodeInfo
}

// Scores is a list of the scores of nodes or placements.
type Scores interface {
	Len() int
	Name(i int) string
	Score(i int) int64
	SetScore(i int, score int64)
}

// Handle is the scheduler of a plugin.
type Handle interface {
	// Nodes returns the nodes of the snapshot, and Node one of them, nil if there is none.
	Nodes() (Nodes, error)
	Node(name string) NodeInfo
	// WaitingPods returns the Pods that wait in Permit, and WaitingPod one of them, nil if
	// it does not wait.
	WaitingPods() iter.Seq[WaitingPod]
	WaitingPod(uid types.UID) WaitingPod
	// Eventf reports an event. The note is no format. related may be nil.
	Eventf(regarding, related runtime.Object, eventType, reason, action, note string)
	// Lister returns the objects of a grant. It is called before the scheduler starts its informers.
	Lister(grant host.ObjectGrant) (Objects, error)
	// Pending returns a Pod as the scheduler knows it now, nil if it is gone or has a node. pod may
	// have a namespace and a name alone.
	Pending(pod *corev1.Pod) *corev1.Pod
	// Activate has the queue try Pods again.
	Activate(pods []*corev1.Pod)
	// Apply applies annotations, or fields of the status, of an object in the name of a field manager, by
	// server-side apply without force. It fails if there is another object of the name by now.
	Apply(ctx context.Context, manager string, of Applied) error
	// Refused reports that a plugin keeps a Pod out of the queue; the scheduler itself does not
	// report that.
	Refused(pod *corev1.Pod, note string)
	// Parallel calls work for each piece, counted from 0, on several goroutines, as many as the
	// scheduler gives an operation, and returns when all calls have.
	Parallel(pieces int, operation string, work func(piece int))
	// Nominated returns the Pods that are nominated for a node, in any order.
	Nominated(node string) []*corev1.Pod
	// Preempt evicts the victims, which run on node or wait for it, in favour of pod, and takes their
	// nominations for node away from Pods of lower priority. It may go on after it has returned without
	// an error. It keeps pod out of the queue meanwhile, and has it tried again after a failure.
	Preempt(ctx context.Context, plugin string, pod *corev1.Pod, node string, victims []*corev1.Pod) error
	// Without calls f while the snapshot lacks the Pods, which run on nodes. It is for
	// PodGroupPostFilter.
	Without(pods []*corev1.Pod, f func()) error
}

// Objects are the objects of a resource that a scheduler knows.
type Objects struct {
	cache.GenericLister
	// Synced reports whether the objects are all there. The error is the reason why they are no
	// answer.
	Synced func() (bool, error)
	// Watch calls changed after each change with the object before and after it, nil if there is
	// none, until stop is called. The lister has the change by then. The calls come one after the
	// other.
	Watch func(changed func(oldObj, newObj any)) (stop func(), err error)
	// Close ends the use of the objects.
	Close func()
}

// WaitingPod is a Pod that waits in Permit.
type WaitingPod interface {
	GetPod() *corev1.Pod
	GetPendingPlugins() []string
	// Allow and Reject answer for a plugin. Reject reports whether the Pod was still waiting.
	Allow(plugin string)
	Reject(plugin, msg string) bool
}

// Queued is a Pod in the queue, or the first Pod of a group.
type Queued struct {
	Pod       *corev1.Pod // nil if there is none.
	Timestamp time.Time   // When it was last queued.
	Priority  int32
	// InitialAttemptTimestamp is when it was first queued to be tried, nil if it was not yet, and
	// Attempts the number of times it was tried.
	InitialAttemptTimestamp *time.Time
	Attempts                int
}

// Event is a cluster event that a guest registers for, after which the Pods that the guest refused
// may be tried again.
type Event struct {
	Resource abi.EventResource
	// Object is the resource of [abi.EventNamed], named as in the configuration. The plugin itself
	// has Pods tried again after such events, by [Handle.Activate].
	Object string
	// Action is a set of changes, without [abi.ActionHint].
	Action abi.ActionType
	// Hint reports whether an event may make a Pod schedulable. It is nil if each may. With
	// an error the answer is true.
	Hint func(pod *corev1.Pod, oldObj, newObj any) (bool, error)
	// PreHint returns the Pods to which an event may matter, before Hint is asked about each,
	// or that it may matter to all. It is nil if it always may. With an error it may.
	PreHint func(oldObj, newObj any) (pods []types.NamespacedName, all bool, err error)
}

// Nomination is the node, nominated by PostFilter, on which a Pod may fit later.
type Nomination struct {
	NodeName string
	// Override is set if NodeName replaces the Pod's present nomination.
	Override bool
}

// Placement is a set of nodes that a guest proposes for a group.
type Placement struct {
	Name  string
	Nodes []NodeInfo
}

// SignFragment is a part of the data that two Pods must share to be scheduled alike.
type SignFragment struct {
	Key   string
	Value json.RawMessage
}
