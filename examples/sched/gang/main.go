// The gang guest binds the Pods of a gang together or not at all. A Pod belongs to a gang by a
// label, and an annotation says how many Pods the gang needs to begin:
//
//	labels:
//	  kubewasm.dev/gang: training
//	annotations:
//	  kubewasm.dev/gang-size: "4"
//
// A gang has begun once a Pod of it runs. From then on its Pods are bound as they come: those that
// take the place of others, and those beyond the size.
//
// A gang that does not fit gives its nodes back at once when one of its Pods fits on none. List the
// plugin after DefaultPreemption, which then tries to make room before.
//
// It needs the grants "waiting-pods" and "events".
package main

import (
	"slices"
	"strconv"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/api/meta"
	"github.com/kubewasm/kubewasm/guest/sched"
)

type gang struct {
	// Timeout is how long a Pod waits for the others when it is first tried, as in "60s": they may
	// not have been created yet. Default a minute.
	Timeout meta.Duration `json:"timeout"`
	// RetryTimeout is the same for a Pod that was tried before. Default 10 seconds: an event that
	// lets one Pod of a gang be tried again does so for all, and that is the longest backoff.
	RetryTimeout meta.Duration `json:"retryTimeout"`

	// refused are gangs that were released and have not begun since, as far as this instance knows.
	// The status of a Pod says so, too, but it may be tried again before that has been written.
	refused []string
}

// maxRefused is how many gangs an instance remembers.
const maxRefused = 64

const (
	nameKey = "kubewasm.dev/gang"
	sizeKey = "kubewasm.dev/gang-size"
)

// membersKey is the key of the members in the state of a cycle.
const membersKey = "members"

// members is what PreFilter finds out about the Pod's gang.
type members struct {
	size int
	// placed is how many of its Pods have a node and do not wait, and begun is set if one runs.
	placed int
	begun  bool
}

// Clone implements sched.StateData.
func (m *members) Clone() sched.StateData {
	clone := *m
	return &clone
}

func nameOf(pod core.Pod) string { return pod.Metadata().Labels().Get(nameKey) }

// PreFilter counts the Pods of the gang, and refuses a Pod whose size is not valid.
func (g *gang) PreFilter(state sched.CycleState, pod core.Pod, nodes sched.NodeInfos) (*sched.PreFilterResult, *sched.Status) {
	name := nameOf(pod)
	if name == "" {
		return nil, nil
	}
	size := pod.Metadata().Annotations().Get(sizeKey)
	n, err := strconv.Atoi(size)
	if err != nil || n < 1 {
		return nil, sched.UnschedulableAndUnresolvable("annotation ", sizeKey, ` is "`, size, `", not a number above 0`)
	}
	selector, err := meta.NewSelector(meta.Requirement{Key: nameKey, Operator: meta.LabelSelectorOpIn, Values: []string{name}})
	if err != nil {
		return nil, sched.AsStatus(err)
	}
	m := &members{size: n}
	namespace := pod.Metadata().Namespace()
	m.count(namespace, name, sched.NewPodSelector(namespace, selector).WithoutTerminating(), nodes)
	// Pods that wait have a node, too.
	m.placed = max(0, m.placed-len(waiting(namespace, name)))
	state.Write(membersKey, m)
	return nil, nil
}

// count counts the selected Pods that have a node: those of a gang that have not begun to end.
func (m *members) count(namespace, name string, selector sched.PodSelector, nodes sched.NodeInfos) {
	all := nodes.Slice()
	for i, n := range selector.Count(all...) {
		if n == 0 {
			continue
		}
		m.placed += n
		for _, other := range all[i].Pods() {
			have := other.Metadata()
			m.begun = m.begun || nameOf(other) == name && (namespace == "" || have.Namespace() == namespace) &&
				!have.HasDeletionTimestamp() && other.Status().Phase() == core.PodRunning
		}
	}
}

// Permit lets the last Pod pass that the gang needs, and with it all others; those before it wait.
func (g *gang) Permit(state sched.CycleState, pod core.Pod, _ string) (*sched.Status, meta.Duration) {
	name := nameOf(pod)
	if name == "" {
		return nil, 0
	}
	v, ok := state.Read(membersKey)
	if !ok {
		return sched.NewStatus(abi.Error, "PreFilter has not counted the gang ", name), 0
	}
	m, others := v.(*members), waiting(pod.Metadata().Namespace(), name)
	if have := m.placed + len(others) + 1; have < m.size && !m.begun {
		sched.Eventf("Normal", "WaitingForGang", "Permit", strconv.Itoa(have), " of ", strconv.Itoa(m.size), " Pods of gang ", name, " have a node")
		return sched.NewStatus(abi.Wait, "the gang is not complete"), g.patience(pod)
	}
	if i := slices.Index(g.refused, keyOf(pod)); i >= 0 {
		g.refused[i] = ""
	}
	for _, w := range others {
		w.Allow()
	}
	return nil, 0
}

// patience returns how long a Pod waits for the others of its gang.
func (g *gang) patience(pod core.Pod) meta.Duration {
	first, again := g.Timeout, g.RetryTimeout
	if first == 0 {
		first = meta.Minute
	}
	if again == 0 {
		again = 10 * meta.Second
	}
	tried := slices.Contains(g.refused, keyOf(pod))
	for _, c := range pod.Status().Conditions() {
		tried = tried || c.Type() == core.PodScheduled && c.Status() == core.ConditionFalse
	}
	if tried {
		return min(first, again)
	}
	return first
}

func keyOf(pod core.Pod) string { return pod.Metadata().Namespace() + "/" + nameOf(pod) }

// PostFilter gives the nodes of a gang back that does not fit: others can use them meanwhile.
func (g *gang) PostFilter(_ sched.CycleState, pod core.Pod, _ sched.NodeToStatus) (*sched.PostFilterResult, *sched.Status) {
	g.release(pod, "fits on no node")
	return nil, sched.Unschedulable()
}

// Reserve has nothing to keep.
func (g *gang) Reserve(sched.CycleState, core.Pod, string) *sched.Status { return nil }

// Unreserve gives the nodes of a gang back when one of its Pods has lost its own.
func (g *gang) Unreserve(_ sched.CycleState, pod core.Pod, _ string) {
	g.release(pod, "cannot be bound")
}

// release rejects the Pods of a Pod's gang that wait.
func (g *gang) release(pod core.Pod, why string) {
	name := nameOf(pod)
	if name == "" {
		return
	}
	if key := keyOf(pod); !slices.Contains(g.refused, key) {
		if len(g.refused) >= maxRefused {
			g.refused = g.refused[:0]
		}
		g.refused = append(g.refused, key)
	}
	for _, w := range waiting(pod.Metadata().Namespace(), name) {
		w.Reject("Pod ", pod.Metadata().Name(), " of the same gang ", why)
	}
}

// waiting returns the Pods of a gang that wait.
func waiting(namespace, gang string) (members []sched.WaitingPod) {
	for _, w := range sched.WaitingPods() {
		if w.Namespace != namespace {
			continue
		}
		if p, ok := w.Pod(); ok && nameOf(p) == gang {
			members = append(members, w)
		}
	}
	return members
}

// EventsToRegister names what may let any Pod of the gang fit: the others are to be tried when it is.
func (g *gang) EventsToRegister() ([]sched.ClusterEventWithHint, error) {
	any := func(resource abi.EventResource, action abi.ActionType) sched.ClusterEventWithHint {
		return sched.ClusterEventWithHint{Event: sched.ClusterEvent{Resource: resource, ActionType: action}}
	}
	came := any(abi.EventUnscheduledPod, abi.ActionAdd|abi.ActionUpdatePodLabel|abi.ActionUpdatePodSchedulingGatesEliminated)
	came.QueueingHintFn = memberCame
	left := any(abi.EventAssignedPod, abi.ActionDelete)
	left.QueueingHintFn = podLeft
	return []sched.ClusterEventWithHint{
		came, left,
		any(abi.EventNode, abi.ActionAdd|abi.ActionUpdateNodeAllocatable|abi.ActionUpdateNodeLabel|abi.ActionUpdateNodeTaint),
		any(abi.EventPersistentVolumeClaim, abi.ActionAdd|abi.ActionUpdate),
		any(abi.EventResourceClaim, abi.ActionAdd|abi.ActionUpdate),
	}, nil
}

// sameGang reports whether two Pods are of one gang.
func sameGang(a, b core.Pod) bool {
	name := nameOf(a)
	return name != "" && name == nameOf(b) && a.Metadata().Namespace() == b.Metadata().Namespace()
}

// memberCame has a Pod tried again when another of its gang can be scheduled.
func memberCame(pod core.Pod, _, newObj sched.EventObject) (sched.QueueingHint, error) {
	if newObj.Present() && sameGang(pod, newObj.Pod()) {
		return sched.Queue, nil
	}
	return sched.QueueSkip, nil
}

// podLeft has a Pod tried again when others make room. Pods of its own gang also do when they are
// released: it would be tried for the room that they had, and they for its own, for ever.
func podLeft(pod core.Pod, oldObj, _ sched.EventObject) (sched.QueueingHint, error) {
	if oldObj.Present() && sameGang(pod, oldObj.Pod()) && neverRan(oldObj.Pod()) {
		return sched.QueueSkip, nil
	}
	return sched.Queue, nil
}

// neverRan reports whether a Pod has gone that no kubelet has seen.
func neverRan(pod core.Pod) bool {
	return !pod.Status().HasStartTime() && !pod.Metadata().HasDeletionTimestamp()
}

func init() { sched.Register(&gang{}) }

func main() {}
