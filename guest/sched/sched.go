package sched

import (
	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/api/meta"
	"github.com/kubewasm/kubewasm/guest/internal/plugin"
)

// MaxNodeScore is the highest score that a node may have after normalisation; the lowest
// is 0.
const MaxNodeScore int64 = 100

// PreEnqueuePlugin is implemented by plugins that keep Pods out of the queue
// until a condition holds. PreEnqueue returns nil for a Pod that may enter.
type PreEnqueuePlugin interface {
	PreEnqueue(pod core.Pod) *Status
}

// QueueSortPlugin is implemented by plugins that order the queue. Less is called some dozen times
// for each Pod, under the lock of the queue: it must be cheap. It must be transitive; of two equal
// Pods the one that came first is scheduled first. If Less fails, the guest is not called again,
// and the queue has the scheduler's own order.
type QueueSortPlugin interface {
	Less(a, b QueuedPodInfo) bool
}

// QueuedPodInfo is a Pod in the queue; of a group of Pods, the first.
type QueuedPodInfo struct {
	Pod core.Pod
	// Timestamp is the time when it was last queued, in nanoseconds since 1970.
	Timestamp int64
	// InitialAttemptTimestamp is the time when it was first queued to be tried, in nanoseconds since
	// 1970: it stays the same however often the Pod is refused. It is 0 if it was not yet. Attempts is
	// the number of times that it was tried. For a group they are those of the group.
	InitialAttemptTimestamp int64
	Attempts                int
}

// EnqueueExtensions is implemented by plugins that refuse Pods, to name the
// events that may make a refused Pod schedulable. EventsToRegister must return
// the same events each time; the scheduler calls it when it starts.
//
// The Pods that a plugin without it refuses are tried again after every event. That costs
// cycles. A Pod that preempts others may also get stuck if it is tried before the scheduler
// knows that they are gone.
type EnqueueExtensions interface {
	EventsToRegister() ([]ClusterEventWithHint, error)
}

// PreFilterPlugin is implemented by plugins that examine a Pod before its nodes
// are filtered: to compute once the values that Filter needs for each node, and
// to refuse the Pod or narrow the nodes down.
//
// nodes are those that the scheduler considers, mostly all that it knows.
//
// PreFilter may run more than once in a scheduling cycle, on each instance of the guest that
// filters nodes; the result of the first run counts. It must depend only on its arguments and the
// nodes of the snapshot. If the values that it writes to state can be cloned, see [StateData], it
// does not run again for each dry run.
type PreFilterPlugin interface {
	PreFilter(state CycleState, pod core.Pod, nodes NodeInfos) (*PreFilterResult, *Status)
}

// PreFilterResult narrows the nodes down.
type PreFilterResult struct {
	// NodeNames are the nodes that remain; an empty list makes the Pod
	// unschedulable.
	NodeNames []string
}

// PreFilterExtensions is implemented by plugins whose PreFilter computes values
// from the running Pods. AddPod and RemovePod update them while the scheduler
// simulates that a Pod is added to a node or removed. Filter is then called for
// that state.
type PreFilterExtensions interface {
	AddPod(state CycleState, podToSchedule, podToAdd core.Pod, node NodeInfo) *Status
	RemovePod(state CycleState, podToSchedule, podToRemove core.Pod, node NodeInfo) *Status
}

// FilterPlugin is implemented by plugins that decide whether a Pod can run on a
// node. Filter returns nil if it can.
//
// Its result must depend only on its arguments and on the state that PreFilter, AddPod and
// RemovePod wrote. It runs on several instances of the guest. It does not run for a node if it has
// run, in the same state, for a node that is equal in all fields that the plugin reads of nodes.
type FilterPlugin interface {
	Filter(state CycleState, pod core.Pod, node NodeInfo) *Status
}

// PostFilterPlugin is implemented by plugins that try to make room for a Pod
// that fits on no node. PostFilter returns nil if the Pod can be scheduled now,
// and Unschedulable otherwise.
type PostFilterPlugin interface {
	PostFilter(state CycleState, pod core.Pod, statuses NodeToStatus) (*PostFilterResult, *Status)
}

// PostFilterResult nominates a node.
type PostFilterResult struct {
	// NominatedNodeName is the node on which the Pod will fit; empty removes a nomination.
	NominatedNodeName string
}

// PreemptionPlugin is implemented by plugins that choose the Pods which may be evicted for a Pod that
// fits on no node. PotentialVictims returns those of a node: it is called for each node on which the
// Pod may fit without some of its Pods, in a copy of the cycle. The host removes them all, tries the
// filters of the profile, this plugin's among them, keeps as many of the Pods as it can, those that a
// PodDisruptionBudget protects and the most important first, and evicts the others from the best node.
// RemovePod and AddPod tell the plugin of each of these steps.
//
// The Pods must be elements of node.Pods. It needs the grant "preempt", and for Pods whose priority is
// not below that of the Pod "preempt-any". A plugin must not implement PostFilterPlugin beside it.
type PreemptionPlugin interface {
	PotentialVictims(state CycleState, pod core.Pod, node NodeInfo) ([]core.Pod, *Status)
}

// PreScorePlugin is implemented by plugins that compute once the values that
// Score needs for each node. nodes are those that passed Filter. PreScore may
// run more than once, as PreFilter may.
type PreScorePlugin interface {
	PreScore(state CycleState, pod core.Pod, nodes NodeInfos) *Status
}

// ScorePlugin is implemented by plugins that rank the nodes that passed Filter.
// The score must lie between 0 and MaxNodeScore, unless
// NormalizeScore brings it there. The rules for the result of Filter also hold
// for scores. A profile may have the plugin at score only: then Score runs without
// PreScore.
type ScorePlugin interface {
	Score(state CycleState, pod core.Pod, node NodeInfo) (int64, *Status)
}

// ScoreExtensions is implemented by score plugins whose scores have a meaning
// only relative to one another. NormalizeScore changes the scores in place.
type ScoreExtensions interface {
	NormalizeScore(state CycleState, pod core.Pod, scores NodeScoreList) *Status
}

// NodeScore is the score of a node. Its Name is fetched when it is first read, so it must be read
// during the call to which the NodeScore was passed. After that call Name panics.
type NodeScore struct {
	Score int64
	// name is for native tests. In a guest, where few plugins read it, the node has a
	// number in the call, from 1.
	name         string
	number, call uint32
}

// NewNodeScore returns the score of a node, for native tests.
func NewNodeScore(name string, score int64) NodeScore { return NodeScore{Score: score, name: name} }

// Name returns the name of the node. It is valid during the call to which the NodeScore was passed;
// the string may be kept.
func (s NodeScore) Name() string {
	if s.number == 0 {
		return s.name
	}
	return namesOf(s.call)[s.number-1]
}

// NodeScoreList is the scores of all nodes that passed Filter.
type NodeScoreList []NodeScore

// ReservePlugin is implemented by plugins that reserve resources of a node for
// a Pod. Unreserve undoes Reserve, and may be called without it. Reserve may
// run more than once, as PreFilter may.
type ReservePlugin interface {
	Reserve(state CycleState, pod core.Pod, nodeName string) *Status
	Unreserve(state CycleState, pod core.Pod, nodeName string)
}

// PermitPlugin is implemented by plugins that delay the binding of Pods. With
// Wait, the Pod waits, for at most the duration, until AllowWaitingPod gives it
// the permission. The duration converts from and to time.Duration; a guest
// without package time is a quarter of a megabyte smaller.
type PermitPlugin interface {
	Permit(state CycleState, pod core.Pod, nodeName string) (*Status, meta.Duration)
}

// PreBindPlugin is implemented by plugins that prepare a node for a Pod.
// PreBindPreFlight returns Skip for a Pod that needs no preparation.
type PreBindPlugin interface {
	PreBindPreFlight(state CycleState, pod core.Pod, nodeName string) (*PreBindPreFlightResult, *Status)
	PreBind(state CycleState, pod core.Pod, nodeName string) *Status
}

// PreBindPreFlightResult describes how PreBind may run.
type PreBindPreFlightResult struct {
	// AllowParallel lets it run at the same time as PreBind of other plugins.
	AllowParallel bool
}

// BindPlugin is implemented by plugins that bind Pods themselves. Bind returns
// Skip for a Pod that it leaves to others.
type BindPlugin interface {
	Bind(state CycleState, pod core.Pod, nodeName string) *Status
}

// PostBindPlugin is implemented by plugins that act after a Pod was bound.
type PostBindPlugin interface {
	PostBind(state CycleState, pod core.Pod, nodeName string)
}

// SignPlugin is implemented by plugins that filter or score, to name the parts of
// a Pod that they read. The scheduler may then use the results of one Pod for
// others with the same signature. Without it, the host signs for a plugin that declares
// -pod.metadata.name and -pod.metadata.uid, and no other plugin's Pods are signed.
type SignPlugin interface {
	SignPod(pod core.Pod) ([]SignFragment, *Status)
}

// SignFragment is a part of a Pod's signature.
type SignFragment struct {
	// Key names the field of the value, as in "v1.Pod.Spec.NodeName".
	Key string
	// Value is JSON.
	Value string
}

// PodGroupPostFilterPlugin is implemented by plugins that try to make room for
// a group of Pods that does not fit. It returns the nodes that it nominates.
type PodGroupPostFilterPlugin interface {
	PodGroupPostFilter(state CycleState, group PodGroupInfo) ([]Nomination, *Status)
}

// Nomination is the node on which a Pod will fit.
type Nomination struct{ Namespace, Name, NodeName string }

// PlacementGeneratePlugin is implemented by plugins that propose sets of nodes to
// place a group on. They are taken from the names of the nodes of the parent.
type PlacementGeneratePlugin interface {
	GeneratePlacements(state CycleState, group PodGroupInfo, parent []string) ([]Placement, *Status)
}

// Placement is a set of nodes to place a group on.
type Placement struct {
	Name      string
	NodeNames []string
	// Assignments are the nodes that the Pods of the group would run on. They
	// are set for ScorePlacement.
	Assignments []Nomination
}

// PlacementScorePlugin is implemented by plugins that rank placements.
type PlacementScorePlugin interface {
	ScorePlacement(state CycleState, group PodGroupInfo, placement Placement) (int64, *Status)
}

// PlacementScoreExtensions is for PlacementScorePlugin the same as ScoreExtensions for ScorePlugin.
// The names are those of the placements.
type PlacementScoreExtensions interface {
	NormalizePlacementScore(state CycleState, group PodGroupInfo, scores NodeScoreList) *Status
}

// The registered plugin, by the interfaces that it implements.
var registered struct {
	preEnqueue         PreEnqueuePlugin
	queueSort          QueueSortPlugin
	enqueue            EnqueueExtensions
	preFilter          PreFilterPlugin
	pods               PreFilterExtensions
	filter             FilterPlugin
	postFilter         PostFilterPlugin
	victims            PreemptionPlugin
	preScore           PreScorePlugin
	score              ScorePlugin
	normalize          ScoreExtensions
	reserve            ReservePlugin
	permit             PermitPlugin
	preBind            PreBindPlugin
	bind               BindPlugin
	postBind           PostBindPlugin
	sign               SignPlugin
	groupPostFilter    PodGroupPostFilterPlugin
	generate           PlacementGeneratePlugin
	scorePlacement     PlacementScorePlugin
	normalizePlacement PlacementScoreExtensions
}

// Register makes p the plugin of this guest, a pointer to a value that implements
// one or more of the interfaces of this package. Call it once, in init, or in
// main of a guest that is built without -buildmode=c-shared, which does not run
// main. If the host has a configuration for the plugin, it is decoded into
// the struct that p points to, by its json tags, before the first call; unknown
// fields and wrong types make the plugin fail to load. A plugin without a
// configuration is best registered as a value, Register(filter{}): then the guest
// does without the decoder, 170 KB. If p has a method
// Configure() error, it is called then, configuration or not, and an error makes
// the plugin fail to load with the error's text.
//
// Register panics if p implements no interface of this package, or extensions without the interface
// that they extend. Natively, in tests, it also panics if a method has the name but not the type of
// an interface's, or is one of two.
func Register[P any](p P) { plugin.Register(p, register(p)) }

// register records the interfaces that p implements.
func register(p any) (mask abi.Mask) {
	note(p, &registered.preEnqueue, &mask, abi.PreEnqueue)
	note(p, &registered.queueSort, &mask, abi.QueueSort)
	note(p, &registered.enqueue, &mask, abi.EventsToRegister, abi.QueueingHint, abi.PreQueueingHint)
	note(p, &registered.preFilter, &mask, abi.PreFilter, abi.CloneCycle)
	note(p, &registered.pods, &mask, abi.AddPod, abi.RemovePod)
	note(p, &registered.filter, &mask, abi.Filter)
	note(p, &registered.postFilter, &mask, abi.PostFilter)
	note(p, &registered.victims, &mask, abi.PotentialVictims)
	note(p, &registered.preScore, &mask, abi.PreScore)
	note(p, &registered.score, &mask, abi.Score)
	note(p, &registered.normalize, &mask, abi.NormalizeScore)
	note(p, &registered.reserve, &mask, abi.Reserve, abi.Unreserve)
	note(p, &registered.permit, &mask, abi.Permit)
	note(p, &registered.preBind, &mask, abi.PreBindPreFlight, abi.PreBind)
	note(p, &registered.bind, &mask, abi.Bind)
	note(p, &registered.postBind, &mask, abi.PostBind)
	note(p, &registered.sign, &mask, abi.SignPod)
	note(p, &registered.groupPostFilter, &mask, abi.PodGroupPostFilter)
	note(p, &registered.generate, &mask, abi.GeneratePlacements)
	note(p, &registered.scorePlacement, &mask, abi.ScorePlacement)
	note(p, &registered.normalizePlacement, &mask, abi.NormalizePlacementScore)
	if _, ok := p.(interface {
		PreFilter(CycleState, core.Pod) (*PreFilterResult, *Status)
	}); ok {
		panic("kubewasm: sched.Register: PreFilter has the nodes as its third argument, a sched.NodeInfos")
	}
	switch {
	case mask == 0:
		panic("kubewasm: sched.Register: the plugin implements no extension point of the scheduler; are its methods on the pointer, and with the right signatures?")
	case mask.Has(abi.NormalizeScore) && registered.score == nil:
		panic("kubewasm: sched.Register: the plugin implements NormalizeScore without Score")
	case mask.Has(abi.AddPod) && registered.preFilter == nil:
		panic("kubewasm: sched.Register: the plugin implements AddPod and RemovePod without PreFilter")
	case mask.Has(abi.NormalizePlacementScore) && registered.scorePlacement == nil:
		panic("kubewasm: sched.Register: the plugin implements NormalizePlacementScore without ScorePlacement")
	}
	return mask
}

// note stores p in *to if it implements the interface.
func note[I any](p any, to *I, mask *abi.Mask, functions ...abi.Function) {
	plugin.Check[I](p)
	if i, ok := p.(I); ok {
		*to = i
		*mask |= abi.MaskOf(functions...)
	}
}
