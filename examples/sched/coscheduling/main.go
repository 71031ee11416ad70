// The coscheduling guest binds the Pods of a PodGroup together or not at all. It behaves as the plugin
// Coscheduling of scheduler-plugins, for the same PodGroups (scheduling.x-k8s.io/v1alpha1) and labels:
//
//	apiVersion: scheduling.x-k8s.io/v1alpha1
//	kind: PodGroup
//	metadata: {name: training}
//	spec:
//	  minMember: 4
//	  minResources: {nvidia.com/gpu: 32}
//	  scheduleTimeoutSeconds: 30
//	---
//	apiVersion: v1
//	kind: Pod
//	metadata:
//	  labels: {scheduling.x-k8s.io/pod-group: training}
//
// A Pod with a node waits in Permit until minMember Pods of its group have one. When a Pod of a group
// fits on no node, the group gives its nodes back, unless nearly all of its Pods have one.
//
// Two things differ from the original. Pods that are about to end, and those that have failed, do not
// count as members. An event that comes while a group backs off is not lost: the group is tried again
// when its time is over. Package main_test has more in its tables.
//
// It takes the place of the scheduler's PrioritySort, and comes after DefaultPreemption. It needs the
// grants "activate", "clock", "objects", "state" and "waiting-pods", and a configuration that names
// the PodGroups and an index of the Pods:
//
//	profiles:
//	- plugins:
//	    multiPoint: {enabled: [{name: coscheduling}]}
//	    queueSort: {enabled: [{name: coscheduling}], disabled: [{name: "*"}]}
//	  pluginConfig:
//	  - name: coscheduling
//	    args:
//	      module: {file: /plugins/coscheduling.wasm}
//	      grants: [activate, clock, objects, state, waiting-pods]
//	      objects:
//	      - resource: scheduling.x-k8s.io/v1alpha1/podgroups
//	      - resource: v1/pods
//	        index: [{label: scheduling.x-k8s.io/pod-group}]
//	      guestConfig: {podGroupBackoffSeconds: 10}
//
// podgroups.yaml has the CustomResourceDefinition.
package main

import (
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/api/meta"
	"github.com/kubewasm/kubewasm/guest/api/resource"
	"github.com/kubewasm/kubewasm/guest/sched"
	"github.com/kubewasm/kubewasm/guest/state"
)

//go:generate kubewasm gen --package main podgroups.yaml

//kubewasm:state v1
//kubewasm:reads pod.metadata.name pod.metadata.namespace pod.metadata.uid pod.metadata.labels pod.metadata.deletionTimestamp
//kubewasm:reads pod.spec.nodeName pod.spec.priority pod.spec.schedulingGates pod.status.phase pod.status.startTime

const (
	groupLabel = "scheduling.x-k8s.io/pod-group"
	podGroups  = "scheduling.x-k8s.io/v1alpha1/podgroups"
)

// coscheduling has the settings of the original, by the same names.
type coscheduling struct {
	// PermitWaitingTimeSeconds is the time for which a Pod with a node waits for the others, if its
	// group has none of its own. Default 60.
	PermitWaitingTimeSeconds int64 `json:"permitWaitingTimeSeconds"`
	// PodGroupBackoffSeconds is the time for which a group that has failed is not tried. Default 0.
	// Without the grant "clock" it has no meaning: each instance would have a time of its own.
	PodGroupBackoffSeconds int64 `json:"podGroupBackoffSeconds"`
	// PodGroupRejectPercentage is the percentage of minMember that may lack a node without the others
	// giving up theirs when one fits on none. Default 10.
	PodGroupRejectPercentage int64 `json:"podGroupRejectPercentage"`

	// created are the times of groups, in nanoseconds since 1970, as far as this instance has looked
	// them up for Less. A group that takes the place of another may be sorted by the time of that.
	created map[group]int64
}

// maxCreated is the number of groups whose times an instance remembers.
const maxCreated = 1000

func newPlugin() *coscheduling {
	return &coscheduling{PermitWaitingTimeSeconds: 60, PodGroupRejectPercentage: 10, created: map[group]int64{}}
}

// Configure refuses settings that make no sense.
func (c *coscheduling) Configure() error {
	switch {
	case c.PermitWaitingTimeSeconds < 1:
		return errors.New("permitWaitingTimeSeconds must be above 0")
	case c.PodGroupBackoffSeconds < 0:
		return errors.New("podGroupBackoffSeconds must not be negative")
	case c.PodGroupRejectPercentage < 0 || c.PodGroupRejectPercentage > 100:
		return errors.New("podGroupRejectPercentage must lie between 0 and 100")
	}
	return nil
}

// group is the group of a Pod, by its name.
type group struct{ namespace, name string }

// of returns the group of a Pod, which need not exist, and whether the Pod names one.
func of(pod core.Pod) (group, bool) {
	m := pod.Metadata()
	g := group{m.Namespace(), m.Labels().Get(groupLabel)}
	return g, g.name != ""
}

func (g group) String() string { return g.namespace + "/" + g.name }

// The keys of the shared state: until when a group backs off, and its Pods that have a node, by their
// UIDs.
func (g group) backoff() string          { return "backoff/" + g.String() }
func (g group) member(uid string) string { return "member/" + g.String() + "/" + uid }

// object returns the PodGroup, and whether there is one.
func (g group) object() (PodGroup, bool) {
	b := sched.GetObject(podGroups, g.namespace, g.name)
	return PodGroupFromJSON(b), b != nil
}

// member is a Pod of a group that may run or has succeeded.
type member struct {
	uid, name string
	// bound Pods have a node for all to see, and reserved ones in this scheduler only.
	bound, reserved, gated bool
}

func (m member) placed() bool { return m.bound || m.reserved }

// members are those of a group, sorted by name.
type members []member

// members returns the Pods of the group.
func (g group) members() (list members) {
	selector, err := meta.NewSelector(meta.Requirement{Key: groupLabel, Operator: meta.LabelSelectorOpIn, Values: []string{g.name}})
	if err != nil {
		return nil // No Pod has such a label.
	}
	for pod := range sched.NewPodSelector(g.namespace, selector).WithoutTerminating().List() {
		m, spec := pod.Metadata(), pod.Spec()
		if pod.Status().Phase() == core.PodFailed {
			continue
		}
		one := member{uid: m.UID(), name: m.Name(), bound: spec.NodeName() != "", gated: len(spec.SchedulingGates()) != 0}
		_, one.reserved = state.Get(g.member(one.uid))
		list = append(list, one)
	}
	return list
}

// prune drops the entries of members that have a node for all to see.
func (list members) prune(g group) {
	for _, m := range list {
		if m.bound && m.reserved {
			state.Delete(g.member(m.uid))
		}
	}
}

// count returns the number of members with a property.
func (list members) count(has func(member) bool) (n int) {
	for _, m := range list {
		if has(m) {
			n++
		}
	}
	return n
}

// PreEnqueue keeps the Pods of groups out of the queue until the scheduler knows the PodGroups: Less
// cannot wait for them.
func (c *coscheduling) PreEnqueue(pod core.Pod) *sched.Status {
	if g, ok := of(pod); ok {
		g.object()
	}
	return nil
}

// put writes an entry. If the state is full, it first drops the entries that are not needed.
func put(key string, value []byte) bool {
	if state.Put(key, value) {
		return true
	}
	sweep()
	return state.Put(key, value)
}

// sweep drops the entries of Pods that are gone or have a node for all to see, and of backoffs that
// have ended.
func sweep() {
	var last group
	var needed []string
	for e := range state.All("") {
		parts := strings.Split(e.Key, "/")
		g := group{parts[1], parts[2]}
		if parts[0] == "backoff" {
			if _, ok := g.backsOff(); !ok {
				state.Delete(e.Key)
			}
			continue
		}
		if g != last {
			last, needed = g, nil
			for _, m := range g.members() {
				if m.reserved && !m.bound {
					needed = append(needed, m.uid)
				}
			}
		}
		if !slices.Contains(needed, parts[3]) {
			state.Delete(e.Key)
		}
	}
}

// Less sorts Pods by priority, then by the time of their group or, without one, their own, and then
// by the name of either. Pods of one group are in the order in which they came.
func (c *coscheduling) Less(a, b sched.QueuedPodInfo) bool {
	if p, q := a.Pod.Spec().Priority(), b.Pod.Spec().Priority(); p != q {
		return p > q
	}
	s, x := c.place(a)
	t, y := c.place(b)
	if s != t {
		return s < t
	}
	return x < y
}

// place returns the time, in nanoseconds since 1970, and the name by which a Pod is sorted.
func (c *coscheduling) place(q sched.QueuedPodInfo) (int64, string) {
	g, ok := of(q.Pod)
	if !ok {
		return q.InitialAttemptTimestamp, q.Pod.Metadata().Namespace() + "/" + q.Pod.Metadata().Name()
	}
	at, ok := c.created[g]
	if !ok {
		pg, ok := g.object()
		if !ok {
			return q.InitialAttemptTimestamp, g.String()
		}
		if len(c.created) >= maxCreated {
			clear(c.created)
		}
		at = pg.Metadata().CreationTimestamp().Unix() * second
		c.created[g] = at
	}
	return at, g.String()
}

// SignPod adds nothing to the signature of a Pod, since no choice of a node depends on the plugin: so
// the scheduler can use the nodes of one Pod for the equal ones that follow. PreFilter runs for each.
func (c *coscheduling) SignPod(core.Pod) ([]sched.SignFragment, *sched.Status) { return nil, nil }

// PreFilter refuses the Pods of groups that do not exist, that back off, that have too few Pods, and
// that do not fit the cluster.
func (c *coscheduling) PreFilter(cycle sched.CycleState, pod core.Pod, nodes sched.NodeInfos) (*sched.PreFilterResult, *sched.Status) {
	g, ok := of(pod)
	if !ok {
		return nil, nil
	}
	if state.Delete(g.member(pod.Metadata().UID())) {
		state.Keep() // Its Unreserve has failed.
	}
	if _, ok := g.backsOff(); ok {
		cycle.Write(tooEarlyKey, tooEarly{})
		return nil, sched.UnschedulableAndUnresolvable("PodGroup ", g.String(), " failed recently")
	}
	return nil, c.examine(g, nodes)
}

// tooEarlyKey is the key of a tooEarly in the state of a cycle.
const tooEarlyKey = "tooEarly"

// tooEarly marks the cycle of a Pod whose group backed off: it may do so no longer in PostFilter.
type tooEarly struct{}

// Clone implements sched.StateData.
func (t tooEarly) Clone() sched.StateData { return t }

func (c *coscheduling) examine(g group, nodes sched.NodeInfos) *sched.Status {
	pg, ok := g.object()
	if !ok {
		return sched.UnschedulableAndUnresolvable("there is no PodGroup ", g.String())
	}
	list, least := g.members(), int(pg.Spec().MinMember())
	if len(list) < least {
		return sched.UnschedulableAndUnresolvable("PodGroup ", g.String(), " has ", strconv.Itoa(len(list)), " Pods of at least ", strconv.Itoa(least))
	}
	if gated := list.count(func(m member) bool { return m.gated }); len(list)-gated < least {
		return sched.UnschedulableAndUnresolvable("PodGroup ", g.String(), " has ", strconv.Itoa(gated), " Pods with scheduling gates")
	}
	// The Pods of a group of which one has a node use some of what the group needs.
	if pg.Spec().MinResources().Len() == 0 || slices.ContainsFunc(list, member.placed) {
		return nil
	}
	if lacks := lacking(pg.Spec(), nodes); lacks != "" {
		return sched.UnschedulableAndUnresolvable("the nodes lack ", lacks, " for PodGroup ", g.String())
	}
	return nil
}

// lacking returns what all nodes together have too little of for a group, empty if that is nothing.
func lacking(spec PodGroupSpec, nodes sched.NodeInfos) string {
	type need struct {
		name   string
		amount resource.Quantity
	}
	needs := []need{{core.ResourcePods, resource.New(int64(spec.MinMember()), resource.DecimalSI)}}
	for name, amount := range spec.MinResources().All {
		if name != core.ResourcePods {
			needs = append(needs, need{name, amount})
		}
	}
	for _, node := range nodes.Slice() {
		for i := range needs {
			if free := freeOf(node, needs[i].name); free.Sign() > 0 {
				needs[i].amount.Sub(free)
			}
		}
		needs = slices.DeleteFunc(needs, func(n need) bool { return n.amount.Sign() <= 0 })
		if len(needs) == 0 {
			return ""
		}
	}
	var text []string
	for _, n := range needs {
		text = append(text, n.name+" "+n.amount.String())
	}
	slices.Sort(text)
	return strings.Join(text, ", ")
}

// freeOf returns the amount of a resource that a node has free.
func freeOf(node sched.NodeInfo, name string) resource.Quantity {
	u := node.Usage()
	switch name {
	case core.ResourceCPU:
		return resource.NewMilli(u.Allocatable.MilliCPU-u.Requested.MilliCPU, resource.DecimalSI)
	case core.ResourceMemory:
		return resource.New(u.Allocatable.Memory-u.Requested.Memory, resource.BinarySI)
	case core.ResourceEphemeralStorage:
		return resource.New(u.Allocatable.EphemeralStorage-u.Requested.EphemeralStorage, resource.BinarySI)
	case core.ResourcePods:
		return resource.New(u.Allocatable.AllowedPodNumber-int64(node.NumPods()), resource.DecimalSI)
	}
	return resource.New(u.Allocatable.Scalar(name)-u.Requested.Scalar(name), resource.DecimalSI)
}

// PostFilter has a group fail of which a Pod fits on no node. One of a group that backs off is tried
// again until it does no longer: an event may have come meanwhile.
func (c *coscheduling) PostFilter(cycle sched.CycleState, pod core.Pod, _ sched.NodeToStatus) (*sched.PostFilterResult, *sched.Status) {
	g, ok := of(pod)
	if !ok {
		return nil, sched.Unschedulable()
	}
	pg, ok := g.object()
	if !ok {
		return nil, sched.Unschedulable()
	}
	state.Keep()
	name, uid := pod.Metadata().Name(), pod.Metadata().UID()
	if _, ok := cycle.Read(tooEarlyKey); ok {
		b, _ := g.backsOff()
		if b.by == uid || !slices.ContainsFunc(g.members(), func(m member) bool { return m.uid == b.by && !m.placed() }) {
			b.by = uid
			put(g.backoff(), b.bytes())
			sched.Activate(sched.PodName{Namespace: g.namespace, Name: name})
		}
		return nil, sched.Unschedulable()
	}
	list, least := g.members(), int(pg.Spec().MinMember())
	gap := least - list.count(member.placed)
	if gap <= 0 || int64(gap)*100 <= c.PodGroupRejectPercentage*int64(least) {
		return nil, sched.Unschedulable()
	}
	c.fail(g, list, least, "Pod "+name+" of PodGroup "+g.String()+" fits on no node")
	return nil, sched.Unschedulable("PodGroup ", g.String(), " is rejected since Pod ", name, " fits on no node")
}

// fail rejects the Pods of a group that wait, and has the group back off if it was complete.
func (c *coscheduling) fail(g group, list members, least int, why string) {
	for _, w := range list.waiting(g) {
		w.Reject(why)
	}
	if c.PodGroupBackoffSeconds == 0 || len(list) < least {
		return
	}
	if _, ok := g.backsOff(); !ok {
		put(g.backoff(), backoff{end: now() + c.PodGroupBackoffSeconds*second}.bytes())
	}
}

// waiting returns the members that wait in Permit.
func (list members) waiting(g group) (waiting []sched.WaitingPod) {
	for _, w := range sched.WaitingPods() {
		if w.Namespace == g.namespace && slices.ContainsFunc(list, func(m member) bool { return m.uid == w.UID }) {
			waiting = append(waiting, w)
		}
	}
	return waiting
}

// backoff is that of a group.
type backoff struct {
	end int64  // Nanoseconds since 1970.
	by  string // The UID of the Pod that is tried until the end.
}

func (b backoff) bytes() []byte {
	return append(binary.LittleEndian.AppendUint64(nil, uint64(b.end)), b.by...)
}

// backsOff returns the backoff of the group, and whether it lasts.
func (g group) backsOff() (backoff, bool) {
	e, ok := state.Get(g.backoff())
	if !ok || len(e.Value) < 8 {
		return backoff{}, false
	}
	b := backoff{int64(binary.LittleEndian.Uint64(e.Value)), string(e.Value[8:])}
	return b, now() < b.end
}

const second = int64(meta.Second)

// now returns the time in nanoseconds since 1970. Package time adds 150 KB.
func now() int64 {
	var t syscall.Timeval
	if err := syscall.Gettimeofday(&t); err != nil {
		panic(err)
	}
	return t.Nano()
}

// Reserve counts the Pod among those of its group that have a node.
func (c *coscheduling) Reserve(_ sched.CycleState, pod core.Pod, _ string) *sched.Status {
	if g, ok := of(pod); ok && !put(g.member(pod.Metadata().UID()), nil) {
		return sched.NewStatus(abi.Error, "the state is full: raise limits.stateEntries and limits.stateBytes")
	}
	return nil
}

// Unreserve has the group fail if it is not complete without the Pod: it has waited for too long, or
// cannot be bound.
func (c *coscheduling) Unreserve(_ sched.CycleState, pod core.Pod, _ string) {
	g, ok := of(pod)
	name := pod.Metadata().Name()
	if !ok || !state.Delete(g.member(pod.Metadata().UID())) {
		return
	}
	pg, ok := g.object()
	if !ok {
		for _, w := range g.members().waiting(g) {
			w.Reject("PodGroup ", g.String(), " is gone")
		}
		return
	}
	if list, least := g.members(), int(pg.Spec().MinMember()); list.count(member.placed) < least {
		c.fail(g, list, least, "Pod "+name+" of PodGroup "+g.String()+" has lost its node")
	}
}

// Permit lets the last Pod pass that the group needs, and with it all others. Those before it wait,
// and the first of them has the rest tried.
func (c *coscheduling) Permit(_ sched.CycleState, pod core.Pod, _ string) (*sched.Status, meta.Duration) {
	g, ok := of(pod)
	if !ok {
		return nil, 0
	}
	pg, ok := g.object()
	if !ok {
		return sched.Unschedulable("there is no PodGroup ", g.String()), 0
	}
	list := g.members()
	list.prune(g)
	if list.count(member.placed) >= int(pg.Spec().MinMember()) {
		for _, w := range list.waiting(g) {
			w.Allow()
		}
		return nil, 0
	}
	if list.count(func(m member) bool { return m.reserved && !m.bound }) == 1 {
		list.activate(g)
	}
	seconds := c.PermitWaitingTimeSeconds
	if own := int64(pg.Spec().ScheduleTimeoutSeconds()); own > 0 {
		seconds = own
	}
	return sched.NewStatus(abi.Wait, "PodGroup ", g.String(), " is not complete"), meta.Duration(seconds) * meta.Second
}

// maxActivated is the number of Pods that a call may activate.
const maxActivated = 1000

// activate has the members tried that have no node.
func (list members) activate(g group) {
	var pods []sched.PodName
	for _, m := range list {
		if !m.placed() && !m.gated && len(pods) < maxActivated {
			pods = append(pods, sched.PodName{Namespace: g.namespace, Name: m.name})
		}
	}
	sched.Activate(pods...)
}

// EventsToRegister names what may complete a group, or make room for it.
func (c *coscheduling) EventsToRegister() ([]sched.ClusterEventWithHint, error) {
	return []sched.ClusterEventWithHint{{
		Event:             sched.ClusterEvent{Resource: abi.EventUnscheduledPod, ActionType: abi.ActionAdd | abi.ActionUpdatePodLabel | abi.ActionUpdatePodSchedulingGatesEliminated},
		QueueingHintFn:    memberCame,
		PreQueueingHintFn: siblings,
	}, {
		Event:             sched.ClusterEvent{Object: podGroups, ActionType: abi.ActionAdd | abi.ActionUpdate},
		QueueingHintFn:    groupChanged,
		PreQueueingHintFn: podsOf,
	}, {
		Event:          sched.ClusterEvent{Resource: abi.EventAssignedPod, ActionType: abi.ActionDelete},
		QueueingHintFn: podLeft,
	}, {
		Event: sched.ClusterEvent{Resource: abi.EventNode, ActionType: abi.ActionAdd | abi.ActionUpdateNodeAllocatable | abi.ActionUpdateNodeLabel | abi.ActionUpdateNodeTaint},
	}}, nil
}

func queueIf(ok bool) (sched.QueueingHint, error) {
	if ok {
		return sched.Queue, nil
	}
	return sched.QueueSkip, nil
}

// sameGroup reports whether two Pods are of one group.
func sameGroup(a, b core.Pod) bool {
	g, ok := of(a)
	h, _ := of(b)
	return ok && g == h
}

// memberCame has a Pod tried again when another of its group can be scheduled.
func memberCame(pod core.Pod, _, came sched.EventObject) (sched.QueueingHint, error) {
	return queueIf(came.Present() && sameGroup(pod, came.Pod()))
}

// siblings returns the Pods of the group of a Pod that came, without which each pending Pod would be
// asked about.
func siblings(_, came sched.EventObject) (sched.PreQueueingHintResult, error) {
	if !came.Present() {
		return sched.PreQueueingHintResult{}, nil
	}
	g, ok := of(came.Pod())
	if !ok {
		return sched.PreQueueingHintResult{}, nil
	}
	return g.pending(), nil
}

// changed returns the group of an event.
func changed(object sched.EventObject) group {
	m := PodGroupFromJSON(object.Bytes()).Metadata()
	return group{m.Namespace(), m.Name()}
}

// groupChanged has the Pods of a group tried again that came or changed.
func groupChanged(pod core.Pod, _, object sched.EventObject) (sched.QueueingHint, error) {
	g, ok := of(pod)
	return queueIf(ok && object.Present() && g == changed(object))
}

// podsOf returns the Pods of a group that came or changed.
func podsOf(_, object sched.EventObject) (sched.PreQueueingHintResult, error) {
	if !object.Present() {
		return sched.PreQueueingHintResult{}, nil
	}
	return changed(object).pending(), nil
}

// pending returns the Pods of the group without a node.
func (g group) pending() (result sched.PreQueueingHintResult) {
	for _, m := range g.members() {
		if !m.placed() {
			result.Pods = append(result.Pods, sched.PodName{Namespace: g.namespace, Name: m.name})
		}
	}
	return result
}

// podLeft has a Pod tried again when others make room. Pods of its own group also do when they are
// rejected: it would be tried for the room that they had, and they for its own, for ever.
func podLeft(pod core.Pod, left, _ sched.EventObject) (sched.QueueingHint, error) {
	if _, ok := of(pod); !ok {
		return sched.QueueSkip, nil
	}
	return queueIf(!left.Present() || !sameGroup(pod, left.Pod()) || left.Pod().Status().HasStartTime() || left.Pod().Metadata().HasDeletionTimestamp())
}

func init() { sched.Register(newPlugin()) }

func main() {}
