package sched

import (
	"bytes"
	"math"
	"slices"
	"unsafe"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/api/meta"
	"github.com/kubewasm/kubewasm/guest/internal/hostcall"
	"github.com/kubewasm/kubewasm/guest/internal/plugin"
	"github.com/kubewasm/kubewasm/guest/view"
)

// Views by the slots of their refs: an object crosses the boundary once for
// each of its versions.
var (
	cycles slots[*cycle]
	pods   slots[core.Pod]
	nodes  []nodeSlot
)

// nodeSlot is the slot of a node, of which a scheduler has the most.
type nodeSlot struct {
	ref  uint64 // 0 before there was any.
	info NodeInfo
}

// The calls of a cycle come one after the other, so a call mostly has the state
// and the Pod of the call before.
var last struct {
	cycleRef, podRef uint64
	cycle            CycleState
	pod              core.Pod
}

func cycleOf(ref uint64) CycleState {
	if ref != last.cycleRef {
		nextCycle(ref)
	}
	return last.cycle
}

func nextCycle(ref uint64) {
	e, renewed := cycles.at(abi.Ref(ref))
	if e.view == nil {
		e.view = &cycle{}
	}
	if renewed {
		e.view.reset()
	}
	last.cycleRef, last.cycle = ref, CycleState{e.view}
}

func podOf(ref uint64) core.Pod {
	if ref != last.podRef {
		nextPod(ref)
	}
	return last.pod
}

func nextPod(ref uint64) {
	last.podRef = ref
	if i := abi.Ref(ref).Slot(); i < uint32(len(pods.table)) {
		if e := &pods.table[i]; e.version == abi.Ref(ref).Version() {
			last.pod = e.view // Without a call: hints are about one Pod after the other.
			return
		}
	}
	last.pod = otherPod(ref)
}

// otherPod is podOf for a Pod that must not replace the one in last.
func otherPod(ref uint64) core.Pod {
	e, renewed := pods.at(abi.Ref(ref))
	if renewed {
		e.view = core.Pod(view.FromRefByParts(view.View(e.view), abi.Ref(ref), &core.TypeOfPod))
	}
	return e.view
}

// besidePod is otherPod for a Pod that may be another version of the Pod of the call, whose view stays
// valid.
func besidePod(ref uint64) core.Pod {
	if ref != last.podRef && last.podRef != 0 && abi.Ref(ref).Slot() == abi.Ref(last.podRef).Slot() {
		return core.Pod(view.FromRefByParts(view.View{}, abi.Ref(ref), &core.TypeOfPod))
	}
	return otherPod(ref)
}

// nodeOf returns the node of a ref. The slot is that of the ref: with less to do the
// compiler puts it in place of its calls.
func nodeOf(ref uint64, slot uint32) NodeInfo {
	if slot >= uint32(len(nodes)) || nodes[slot].ref != ref {
		nextNode(ref)
	}
	return nodes[slot].info
}

// nextNode puts a node with another ref into its slot.
func nextNode(ref uint64) {
	i := abi.Ref(ref).Slot()
	if i >= uint32(len(nodes)) {
		nodes = grown(nodes, i)
	}
	d := nodes[i].info.d
	if d == nil {
		d = &nodeInfo{}
		nodes[i].info.d = d
	}
	nodes[i].ref = ref
	d.ref, d.filled = abi.Ref(ref), 0
	if d.more != nil {
		d.more.checked = 0
	}
	d.node = core.Node(view.FromRefByParts(view.View(d.node), abi.Ref(ref), &core.TypeOfNode))
}

// tell records the version of the state that the host passes with a call about the node, 0 if it
// passes none.
func (d *nodeInfo) tell(version uint64) {
	if m := d.more; m != nil && version != 0 {
		if m.take(version); m.read {
			d.filled = calls
		}
	}
}

// statuses are the next results of newStatus. A plugin makes one for each node that it refuses, and
// Go's allocation takes longer than everything else in such a call.
var statuses []Status

func newStatus() *Status {
	if len(statuses) == 0 {
		statuses = make([]Status, 64)
	}
	s := &statuses[0]
	statuses = statuses[1:]
	return s
}

// finish tells the host the reason of a status that is not a success, and ends
// the call.
func finish(s *Status) abi.Code {
	code := s.Code()
	if code != abi.Success && s.reason != "" {
		hostcall.StatusReason(s.reason)
	}
	plugin.Yield()
	return code
}

//go:wasmexport preenqueue
func exportPreEnqueue(pod uint64) int32 {
	calls++
	return int32(finish(registered.preEnqueue.PreEnqueue(podOf(pod))))
}

//go:wasmexport queuesort
func exportQueueSort(first, second uint64, firstTime, secondTime, firstAttempt, secondAttempt, firstAttempts, secondAttempts int64) int32 {
	calls++
	a := QueuedPodInfo{otherPod(first), firstTime, firstAttempt, int(firstAttempts)}
	b := QueuedPodInfo{otherPod(second), secondTime, secondAttempt, int(secondAttempts)}
	var order int32
	if registered.queueSort.Less(a, b) {
		order = -1
	} else if registered.queueSort.Less(b, a) {
		order = 1
	}
	plugin.Yield()
	return order
}

//go:wasmexport eventstoregister
func exportEventsToRegister() int32 {
	calls++
	list, err := registeredEvents()
	if err == nil {
		hostResultClusterEvents(appendEvents(nil, list))
	}
	return int32(finish(AsStatus(err)))
}

// eventObjects are the views of the objects of the events that were shown last.
var eventObjects [2]struct {
	pod  core.Pod
	node core.Node
}

func eventObjectOf(n int, event *ClusterEvent, ref uint64) EventObject {
	if ref == 0 {
		return EventObject{}
	}
	if event.Object != "" {
		return EventObject{&eventObject{ref: abi.Ref(ref)}}
	}
	switch o := &eventObjects[n]; event.Resource {
	case abi.EventPod, abi.EventAssignedPod, abi.EventUnscheduledPod, abi.EventTargetPod:
		o.pod = core.Pod(view.FromRefByParts(view.View(o.pod), abi.Ref(ref), &core.TypeOfPod))
		return NewEventObject(o.pod)
	case abi.EventNode:
		o.node = core.Node(view.FromRefByParts(view.View(o.node), abi.Ref(ref), &core.TypeOfNode))
		return NewEventObject(o.node)
	}
	return EventObject{&eventObject{ref: abi.Ref(ref)}}
}

// lastHint is the event of the hint before: the host asks about each pending Pod with the same objects.
var lastHint struct {
	event          int32
	oldRef, newRef uint64
	fn             func(pod core.Pod, oldObj, newObj EventObject) (QueueingHint, error) // nil before the first.
	oldObj, newObj EventObject
}

// nextHint puts another event into lastHint.
func nextHint(event int32, oldRef, newRef uint64) error {
	h := &lastHint
	h.event, h.oldRef, h.newRef, h.fn = event, oldRef, newRef, nil
	list, err := registeredEvents()
	if err != nil || event < 0 || int(event) >= len(list) {
		return err
	}
	e := &list[event]
	h.fn, h.oldObj, h.newObj = e.QueueingHintFn, eventObjectOf(0, &e.Event, oldRef), eventObjectOf(1, &e.Event, newRef)
	return nil
}

//go:wasmexport queueinghint
func exportQueueingHint(event int32, pod, oldObj, newObj uint64) uint64 {
	calls++
	h := &lastHint
	if h.oldRef != oldObj || h.newRef != newObj || h.event != event || h.fn == nil {
		if err := nextHint(event, oldObj, newObj); err != nil || h.fn == nil {
			return abi.Pack(1, finish(AsStatus(err)))
		}
	}
	hint, err := h.fn(podOf(pod), h.oldObj, h.newObj)
	var queue uint32
	if hint == Queue {
		queue = 1
	}
	if err == nil {
		plugin.Yield()
		return abi.Pack(queue, abi.Success)
	}
	return abi.Pack(queue, finish(AsStatus(err)))
}

//go:wasmexport prequeueinghint
func exportPreQueueingHint(event int32, oldObj, newObj uint64) int32 {
	calls++
	list, err := registeredEvents()
	if err != nil || event < 0 || int(event) >= len(list) || list[event].PreQueueingHintFn == nil {
		return int32(finish(AsStatus(err)))
	}
	e := &list[event]
	result, err := e.PreQueueingHintFn(eventObjectOf(0, &e.Event, oldObj), eventObjectOf(1, &e.Event, newObj))
	if err == nil && !result.AllPods {
		hostResultPods(appendPodNames(nil, result.Pods))
	}
	return int32(finish(AsStatus(err)))
}

//go:wasmexport prefilter
func exportPreFilter(cycle, pod uint64) int32 {
	calls++
	state := cycleOf(cycle)
	state.c.reset()
	result, status := registered.preFilter.PreFilter(state, podOf(pod), NodeInfos{&nodeInfos{call: calls}})
	if result != nil {
		hostResultNodeNames(appendNames(nil, result.NodeNames))
	}
	return int32(finish(status))
}

//go:wasmexport clonecycle
func exportCloneCycle(cycle, from uint64) int32 {
	calls++
	original := cycleOf(from)
	if !cycleOf(cycle).c.clone(original.c) {
		return int32(finish(NewStatus(abi.Skip)))
	}
	return int32(finish(nil))
}

//go:wasmexport addpod
func exportAddPod(cycle, pod, added, node uint64) int32 {
	calls++
	return int32(finish(registered.pods.AddPod(cycleOf(cycle), podOf(pod), otherPod(added), nodeOf(node, uint32(node)))))
}

//go:wasmexport removepod
func exportRemovePod(cycle, pod, removed, node uint64) int32 {
	calls++
	return int32(finish(registered.pods.RemovePod(cycleOf(cycle), podOf(pod), otherPod(removed), nodeOf(node, uint32(node)))))
}

//go:wasmexport filter
func exportFilter(cycle, pod, node, version uint64) int32 {
	calls++
	info := nodeOf(node, uint32(node))
	info.d.tell(version)
	status := registered.filter.Filter(cycleOf(cycle), podOf(pod), info)
	if status == nil {
		plugin.Yield()
		return int32(abi.Success)
	}
	return int32(finish(status))
}

//go:wasmexport postfilter
func exportPostFilter(cycle, pod uint64) uint64 {
	calls++
	result, status := registered.postFilter.PostFilter(cycleOf(cycle), podOf(pod), readStatuses(hostNodeStatuses()))
	var mode uint32
	if result != nil {
		mode = 1 // ModeOverride
		hostResultNominatedNodeName([]byte(result.NominatedNodeName))
	}
	return abi.Pack(mode, finish(status))
}

//go:wasmexport potentialvictims
func exportPotentialVictims(cycle, pod, node uint64) int32 {
	calls++
	victims, status := registered.victims.PotentialVictims(cycleOf(cycle), podOf(pod), nodeOf(node, uint32(node)))
	refs := make([]abi.Ref, len(victims))
	for i := range victims {
		refs[i] = view.RefOf(view.View(victims[i]))
	}
	importResultVictims(unsafe.Pointer(unsafe.SliceData(refs)), uint32(8*len(refs)))
	return int32(finish(status))
}

//go:wasmexport prescore
func exportPreScore(cycle, pod uint64) int32 {
	calls++
	return int32(finish(registered.preScore.PreScore(cycleOf(cycle), podOf(pod), NodeInfos{&nodeInfos{call: calls}})))
}

//go:wasmexport score
func exportScore(cycle, pod, node, version uint64) uint64 {
	calls++
	info := nodeOf(node, uint32(node))
	info.d.tell(version)
	score, status := registered.score.Score(cycleOf(cycle), podOf(pod), info)
	if status == nil && score == int64(int32(score)) {
		plugin.Yield()
		return abi.Pack(uint32(score), abi.Success)
	}
	return packScore(score, status)
}

func packScore(score int64, status *Status) uint64 {
	if score != int64(int32(score)) {
		hostResultScore(score)
	}
	return abi.Pack(uint32(score), finish(status))
}

var (
	scoresBytes []byte
	scoreList   NodeScoreList
)

// normalize has change change the scores.
func normalize(change func(NodeScoreList) *Status) int32 {
	calls++
	scoresBytes = append(scoresBytes[:0], hostNodeScores()...)
	// A guest has the byte order of the host's answer.
	scores := unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(scoresBytes))), len(scoresBytes)/8)
	scoreList = slices.Grow(scoreList[:0], len(scores))[:len(scores)]
	for i := range scoreList {
		s := &scoreList[i]
		s.Score, s.number, s.call = scores[i], uint32(i+1), uint32(calls)
	}
	status := change(scoreList)
	if status.IsSuccess() {
		for i := range scoreList {
			scores[i] = scoreList[i].Score
		}
		hostResultScores(scoresBytes)
	}
	return int32(finish(status))
}

var (
	passedNames []string
	// passedTo is the call to which passedNames were passed.
	passedTo uint64
)

// namesOf returns the names of the nodes that were passed to the running call.
func namesOf(call uint32) []string {
	if call != uint32(calls) {
		panic("kubewasm: the names of nodes were asked for after the call that the nodes were passed to")
	}
	if passedTo != calls {
		passedNames, passedTo = SnapshotNodeNames(), calls
	}
	return passedNames
}

// countOf returns the number of nodes that were passed to the running call.
func countOf(call uint32) int {
	if call == uint32(calls) && passedTo != calls {
		return bytes.Count(hostNodeNames(), []byte{0})
	}
	return len(namesOf(call))
}

var (
	passedRefs []uint64
	// refsPassedTo is the call to which passedRefs were passed.
	refsPassedTo uint64
)

// refsOf returns the refs of the nodes that were passed to the running call.
func refsOf(call uint32) []uint64 {
	if call != uint32(calls) {
		panic("kubewasm: nodes were asked for after the call that they were passed to")
	}
	if refsPassedTo != calls {
		passedRefs, refsPassedTo = append(passedRefs[:0], refs(hostNodeRefs())...), calls
	}
	return passedRefs
}

//go:wasmexport normalizescore
func exportNormalizeScore(cycle, pod uint64) int32 {
	return normalize(func(scores NodeScoreList) *Status {
		return registered.normalize.NormalizeScore(cycleOf(cycle), podOf(pod), scores)
	})
}

//go:wasmexport reserve
func exportReserve(cycle, pod uint64) int32 {
	calls++
	return int32(finish(registered.reserve.Reserve(cycleOf(cycle), podOf(pod), string(hostNodeName()))))
}

//go:wasmexport unreserve
func exportUnreserve(cycle, pod uint64) {
	calls++
	registered.reserve.Unreserve(cycleOf(cycle), podOf(pod), string(hostNodeName()))
	plugin.Yield()
}

//go:wasmexport permit
func exportPermit(cycle, pod uint64) uint64 {
	calls++
	status, timeout := registered.permit.Permit(cycleOf(cycle), podOf(pod), string(hostNodeName()))
	ms := min(max(timeout/meta.Millisecond, 0), math.MaxUint32)
	return abi.Pack(uint32(ms), finish(status))
}

//go:wasmexport prebindpreflight
func exportPreBindPreFlight(cycle, pod uint64) uint64 {
	calls++
	result, status := registered.preBind.PreBindPreFlight(cycleOf(cycle), podOf(pod), string(hostNodeName()))
	var parallel uint32
	if result != nil && result.AllowParallel {
		parallel = 1
	}
	return abi.Pack(parallel, finish(status))
}

//go:wasmexport prebind
func exportPreBind(cycle, pod uint64) int32 {
	calls++
	return int32(finish(registered.preBind.PreBind(cycleOf(cycle), podOf(pod), string(hostNodeName()))))
}

//go:wasmexport bind
func exportBind(cycle, pod uint64) int32 {
	calls++
	return int32(finish(registered.bind.Bind(cycleOf(cycle), podOf(pod), string(hostNodeName()))))
}

//go:wasmexport postbind
func exportPostBind(cycle, pod uint64) {
	calls++
	registered.postBind.PostBind(cycleOf(cycle), podOf(pod), string(hostNodeName()))
	plugin.Yield()
}

//go:wasmexport signpod
func exportSignPod(pod uint64) int32 {
	calls++
	fragments, status := registered.sign.SignPod(podOf(pod))
	var b []byte
	for _, f := range fragments {
		b = append(append(b, f.Key...), 0)
		b = append(append(b, f.Value...), 0)
	}
	hostResultSignFragments(b)
	return int32(finish(status))
}

//go:wasmexport podgrouppostfilter
func exportPodGroupPostFilter(cycle uint64) int32 {
	calls++
	nominations, status := registered.groupPostFilter.PodGroupPostFilter(cycleOf(cycle), readPodGroup(hostPodGroup()))
	hostResultNominations(appendNominations(nil, nominations))
	return int32(finish(status))
}

//go:wasmexport generateplacements
func exportGeneratePlacements(cycle uint64) int32 {
	calls++
	group := readPodGroup(hostPodGroup())
	placements, status := registered.generate.GeneratePlacements(cycleOf(cycle), group, SnapshotNodeNames())
	hostResultPlacements(appendPlacements(nil, placements))
	return int32(finish(status))
}

//go:wasmexport scoreplacement
func exportScorePlacement(cycle uint64) uint64 {
	calls++
	group := readPodGroup(hostPodGroup())
	score, status := registered.scorePlacement.ScorePlacement(cycleOf(cycle), group, readPlacement(hostPlacement()))
	return packScore(score, status)
}

//go:wasmexport normalizeplacementscore
func exportNormalizePlacementScore(cycle uint64) int32 {
	return normalize(func(scores NodeScoreList) *Status {
		return registered.normalizePlacement.NormalizePlacementScore(cycleOf(cycle), readPodGroup(hostPodGroup()), scores)
	})
}
