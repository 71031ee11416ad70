package sched

import (
	"context"
	"iter"
	"time"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/schedmsg"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/objects"
	"github.com/kubewasm/kubewasm/internal/objects/lookup"
	"github.com/kubewasm/kubewasm/sched/internal/wasmextension"
)

// call is the state of the running call: the data that the guest may ask for, and copies of the
// data that it handed to host functions.
//
// It is zero between two calls. A call begins by an assignment, or by beginOnNode or beginOnEvent,
// and ends by [instance.end], whatever its kind and result.
type call struct {
	// plain is set if the call has the arguments of Filter, Score or QueueingHint and began with
	// nothing else.
	plain bool
	// pod and node are arguments; other is the second Pod of AddPod, RemovePod
	// and Less, and the old object of an event whose new one is node.
	pod, other, node *objects.Object
	of               *corev1.Pod
	info             NodeInfo
	nodes            Nodes // nil if the call is not about a list of them.
	nodeName         string
	statuses         func() []schedmsg.NodeStatus
	scores           Scores
	group            schedmsg.PodGroup
	placement        func() (schedmsg.Placement, []schedmsg.Assignment)
	// try schedules the group on trial.
	try func() ([]schedmsg.Assignment, *Status)
	// first is the step's own first run while it is repeated: its results are dropped.
	first *firstRun
	// gone is set if the nodes of the step may have changed since.
	gone bool
	// asksNodes is set when the guest has asked about nodes of the snapshot or a list, and asksInfo
	// when it has asked about info.
	asksNodes, asksInfo bool
	// snapshot is set while the scheduler's snapshot does not change.
	snapshot bool
	// own is set when the guest uses more than its arguments: then its result is not shared.
	own bool
	// looked are the nodes that the guest looked up in the call, by their refs, and pods the Pods
	// of nodes, which may have other versions by now.
	looked map[abi.Ref]lookedUp
	pods   []*objects.Object
	// listed are the objects that the guest listed, and lastList the last answer.
	listed   []listed
	lastList lookup.Last
	// answers are the answers to the guest about things that may change meanwhile, effects its
	// changes to Pods that wait, and keeps the bytes of all that.
	answers map[string][]byte
	effects []effect
	// done are the effects of the call before it was repeated, and said the events that it has
	// reported, of a guest with the shared state. unsaid are those that it must not report again.
	done         []effect
	said, unsaid []string
	// activated is the number of Pods that the call has activated.
	activated int
	// applies are the changes of objects that are to be made after the call. awaited are the objects for
	// which it waits, for awaitFor at most.
	applies  []queuedApply
	awaited  []awaitedObject
	awaitFor time.Duration

	// score is that of result_score, and wide is set if the guest called it.
	score int64
	wide  bool

	events      []event
	nodeNames   []string
	normalized  []int64
	nominated   string
	fragments   []SignFragment
	nominations map[types.NamespacedName]string
	hinted      []types.NamespacedName // nil for all.
	placements  []schedmsg.Placement
	victims     []*corev1.Pod
}

type lookedUp struct {
	object *objects.Object
	info   NodeInfo
	// pods are those of the node, nil before the guest asked for them.
	pods []*objects.Object
}

// lookedUpBytes is the size of a node's place in call.looked.
const lookedUpBytes = 2 * int(unsafe.Sizeof(lookedUp{})+unsafe.Sizeof(abi.Ref(0)))

// look gives the guest a node for the rest of the call.
func (c *call) look(inst *host.Instance, object *objects.Object, info NodeInfo) {
	if c.node != nil && c.info != nil && c.node.Ref == object.Ref {
		return // It has it.
	}
	if _, ok := c.looked[object.Ref]; !ok {
		inst.Keep(lookedUpBytes)
		if c.looked == nil {
			c.looked = make(map[abi.Ref]lookedUp, length(c.nodes))
		}
		c.looked[object.Ref] = lookedUp{object: object, info: info}
	}
}

// scoreOf returns the score of a call of Score or ScorePlacement that returned packed.
func (c *call) scoreOf(packed uint64) int64 {
	if c.wide {
		return c.score
	}
	n, _ := abi.Unpack[abi.Code](packed)
	return int64(int32(n))
}

// listed are the objects of a resource, sorted by namespace and then by name.
type listed struct {
	resource string
	objects  []metav1.Object
	// pods are the same as the guest has them, if they are Pods by ref.
	pods []*objects.Object
}

// length returns the number of nodes of a list, which may be nil.
func length(nodes Nodes) int {
	if nodes == nil {
		return 0
	}
	return nodes.Len()
}

// all returns the nodes of a list, which may be nil.
func all(nodes Nodes) iter.Seq[NodeInfo] {
	return func(yield func(NodeInfo) bool) {
		for i := range length(nodes) {
			if !yield(nodes.At(i)) {
				return
			}
		}
	}
}

// invoke calls a function of the guest, in any dialect.
func (p *Plugin) invoke(ctx context.Context, inst *host.Instance, i *instance, f abi.Function, args ...uint64) (uint64, error) {
	if !p.peer {
		result, err := inst.Call(ctx, f, args...)
		if err == nil {
			p.applyCalled(&i.call)
		}
		return result, err
	}
	c := &i.call
	c.own = true
	i.peer = wasmextension.Call{Pod: c.pod, Target: c.other, Node: c.node, NodeName: c.nodeName, Scores: c.scores}
	if c.info != nil && c.nodeName == "" {
		i.peer.NodeName = c.info.Node().Name
	}
	if c.statuses != nil {
		i.peer.Statuses = sortedStatuses(c.statuses)
	}
	result, err := inst.Dialect().CallExport(ctx, wasmextension.Export(f))
	if err != nil {
		return 0, err
	}
	c.nodeNames, c.nominated, c.normalized = i.peer.NodeNames, i.peer.Nominated, i.peer.Normalized
	return wasmextension.Result(f, result), nil
}
