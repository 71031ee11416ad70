// The capacity guest shares a cluster between namespaces, which may borrow from one another what they do
// not use. It behaves as the plugin CapacityScheduling of scheduler-plugins, for the same ElasticQuotas
// (scheduling.x-k8s.io/v1alpha1):
//
//	apiVersion: scheduling.x-k8s.io/v1alpha1
//	kind: ElasticQuota
//	metadata: {namespace: team-a, name: quota}
//	spec:
//	  min: {cpu: 40, memory: 160Gi}
//	  max: {cpu: 80, memory: 320Gi}
//
// The Pods of a namespace with a quota may request max together, and those of all such namespaces the
// sum of all min. A Pod whose namespace has used less than its min gets the difference back: Pods of
// namespaces that use more than theirs are evicted, whatever their priority. A Pod beyond the min of its
// namespace evicts Pods of a lower priority there, and a Pod without a quota those without one. A
// namespace has one quota, the first by name.
//
// Three things differ from the original. A resource that max does not name is not limited. The resources
// of a Pod are those that the scheduler counts, with sidecars and those of the Pod as a whole. No Pod of
// the priority classes of the system is evicted for a quota.
//
// It takes the place of DefaultPreemption. It needs the grants "objects", "preempt-any" and "state":
//
//	profiles:
//	- plugins:
//	    multiPoint: {enabled: [{name: capacity}]}
//	    postFilter: {enabled: [{name: capacity}], disabled: [{name: "*"}]}
//	  pluginConfig:
//	  - name: capacity
//	    args:
//	      module: {file: /plugins/capacity.wasm}
//	      grants: [objects, preempt-any, state]
//	      objects:
//	      - resource: scheduling.x-k8s.io/v1alpha1/elasticquotas
//	      - resource: v1/pods
//
// elasticquotas.yaml has the CustomResourceDefinition.
package main

import (
	"slices"
	"strings"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/api/meta"
	"github.com/kubewasm/kubewasm/guest/api/resource"
	"github.com/kubewasm/kubewasm/guest/sched"
	"github.com/kubewasm/kubewasm/guest/state"
	"github.com/kubewasm/kubewasm/guest/view"
)

//go:generate kubewasm gen --package main elasticquotas.yaml

//kubewasm:state v1
//kubewasm:reads pod.metadata.name pod.metadata.namespace pod.metadata.uid pod.metadata.deletionTimestamp
//kubewasm:reads pod.spec.nodeName pod.spec.priority pod.spec.containers.resources pod.spec.initContainers pod.spec.resources pod.spec.overhead
//kubewasm:reads pod.status.phase pod.status.startTime pod.status.nominatedNodeName

const elasticQuotas = "scheduling.x-k8s.io/v1alpha1/elasticquotas"

// systemCritical is the priority of the class system-cluster-critical.
const systemCritical = 2_000_000_000

type capacity struct{}

// amounts are thousandths of resources by their names.
type amounts map[string]int64

func amountsOf(list view.Map[resource.Quantity]) amounts {
	a := amounts{}
	for name, quantity := range list.All {
		a[name] = quantity.MilliValue()
	}
	return a
}

// requests returns the resources that a Pod requests.
func requests(pod core.Pod) amounts {
	a := amounts{}
	for name, quantity := range pod.Requests() {
		a[name] = quantity.MilliValue()
	}
	return a
}

// add adds so many times the others.
func (a amounts) add(others amounts, times int64) {
	for name, n := range others {
		a[name] += times * n
	}
}

// plus returns the sum.
func (a amounts) plus(others amounts) amounts {
	sum := make(amounts, len(a))
	sum.add(a, 1)
	sum.add(others, 1)
	return sum
}

// beyond reports whether there is more of a resource than the limit has, which is 0 if all is set and the
// limit does not name it, and none otherwise.
func (a amounts) beyond(limit amounts, all bool) bool {
	for name, n := range a {
		if most, ok := limit[name]; (ok || all) && n > most {
			return true
		}
	}
	return false
}

// quota is that of a namespace. used are the requests of its Pods that have a node.
type quota struct{ min, max, used amounts }

func (q *quota) beyondMin(more amounts) bool { return q.used.plus(more).beyond(q.min, true) }
func (q *quota) beyondMax(more amounts) bool {
	return q.used.plus(more).beyond(q.max, false)
}

// quotas are those of the cluster in a cycle, by namespaces.
type quotas struct {
	of map[string]*quota
	// counted are the UIDs of the Pods in used. Clones share it.
	counted map[string]bool
	// removed are those of them that are gone on trial, and dry is set once there was one.
	removed []string
	dry     bool
	// inQuota are the requests of the Pod, and of the Pods of its namespace that are nominated for a node
	// and no less important. inAll has those of other namespaces, too, that do not use more than their
	// min.
	inQuota, inAll amounts
}

const quotasKey = "quotas"

// Clone implements sched.StateData.
func (q *quotas) Clone() sched.StateData {
	clone := *q
	clone.of = make(map[string]*quota, len(q.of))
	for namespace, one := range q.of {
		copied := *one
		copied.used = one.used.plus(nil)
		clone.of[namespace] = &copied
	}
	clone.removed = slices.Clone(q.removed)
	return &clone
}

// beyondSum reports whether all namespaces together use more than the sum of all min.
func (q *quotas) beyondSum(more amounts) bool {
	used, least := more.plus(nil), amounts{}
	for _, one := range q.of {
		used.add(one.used, 1)
		least.add(one.min, 1)
	}
	return used.beyond(least, true)
}

// read returns the quotas with what is used of them.
func read(pod core.Pod) *quotas {
	q := &quotas{of: map[string]*quota{}, counted: map[string]bool{}}
	for b := range sched.ListObjects(elasticQuotas, "", "") {
		eq := ElasticQuotaFromJSON(b)
		if namespace := eq.Metadata().Namespace(); q.of[namespace] == nil {
			spec := eq.Spec()
			q.of[namespace] = &quota{min: amountsOf(spec.Min()), max: amountsOf(spec.Max()), used: amounts{}}
		}
	}
	own := pod.Metadata()
	q.inQuota, q.inAll = requests(pod), requests(pod)
	type nominated struct {
		quota    *quota
		requests amounts
	}
	var others []nominated
	all, _ := meta.NewSelector() // It has no requirement that could make no sense.
	for namespace, one := range q.of {
		for p := range sched.NewPodSelector(namespace, all).List() {
			uid, phase := p.Metadata().UID(), p.Status().Phase()
			bound := p.Spec().NodeName() != ""
			_, reserved := state.Get(key(p))
			if bound && reserved {
				state.Delete(key(p)) // All can see it now.
			}
			switch {
			case uid == own.UID() || phase == core.PodSucceeded || phase == core.PodFailed:
			case bound || reserved:
				q.counted[uid] = true
				one.used.add(requests(p), 1)
			case p.Status().NominatedNodeName() == "":
			case namespace != own.Namespace():
				others = append(others, nominated{one, requests(p)})
			case p.Spec().Priority() >= pod.Spec().Priority():
				q.inQuota.add(requests(p), 1)
				q.inAll.add(requests(p), 1)
			}
		}
	}
	for _, n := range others {
		if !n.quota.beyondMin(nil) {
			q.inAll.add(n.requests, 1)
		}
	}
	return q
}

// key is the key of a Pod in the shared state that has a node in this scheduler, which others may not see
// yet.
func key(pod core.Pod) string {
	m := pod.Metadata()
	return "reserved/" + m.Namespace() + "/" + m.Name() + "/" + m.UID()
}

// EventsToRegister names the events after which there may be room.
func (capacity) EventsToRegister() ([]sched.ClusterEventWithHint, error) {
	return []sched.ClusterEventWithHint{
		{Event: sched.ClusterEvent{Resource: abi.EventAssignedPod, ActionType: abi.ActionDelete}},
		{Event: sched.ClusterEvent{Object: elasticQuotas, ActionType: abi.ActionAll}},
	}, nil
}

// SignPod adds nothing to the signature of a Pod: outside of preemption no choice of a node depends on the
// plugin. PreFilter runs for each Pod.
func (capacity) SignPod(core.Pod) ([]sched.SignFragment, *sched.Status) { return nil, nil }

// PreFilter refuses Pods for which the quotas have no room.
func (capacity) PreFilter(cycle sched.CycleState, pod core.Pod, _ sched.NodeInfos) (*sched.PreFilterResult, *sched.Status) {
	q := read(pod)
	cycle.Write(quotasKey, q)
	return nil, q.check(pod)
}

// check returns a refusal if a quota has no room for the Pod.
func (q *quotas) check(pod core.Pod) *sched.Status {
	namespace := pod.Metadata().Namespace()
	switch own := q.of[namespace]; {
	case own == nil:
	case own.beyondMax(q.inQuota):
		return sched.Unschedulable("the ElasticQuota of ", namespace, " has no room below its max")
	case q.beyondSum(q.inAll):
		return sched.Unschedulable("the ElasticQuotas have no room below the sum of their min")
	}
	return nil
}

// AddPod takes a RemovePod back. Pods that are only nominated for the node are in inQuota and inAll.
func (capacity) AddPod(cycle sched.CycleState, _, added core.Pod, _ sched.NodeInfo) *sched.Status {
	q, one, uid := ofCycle(cycle, added)
	if i := slices.Index(q.removed, uid); one != nil && i >= 0 {
		q.removed = slices.Delete(q.removed, i, i+1)
		one.used.add(requests(added), 1)
	}
	return nil
}

// RemovePod counts a Pod no longer.
func (capacity) RemovePod(cycle sched.CycleState, _, removed core.Pod, _ sched.NodeInfo) *sched.Status {
	q, one, uid := ofCycle(cycle, removed)
	q.dry = true
	if one != nil && q.counted[uid] && !slices.Contains(q.removed, uid) {
		q.removed = append(q.removed, uid)
		one.used.add(requests(removed), -1)
	}
	return nil
}

// ofCycle returns the quotas of a cycle, that of a Pod, nil if it has none, and the Pod's UID.
func ofCycle(cycle sched.CycleState, pod core.Pod) (*quotas, *quota, string) {
	value, _ := cycle.Read(quotasKey)
	q, m := value.(*quotas), pod.Metadata()
	return q, q.of[m.Namespace()], m.UID()
}

// Filter tells the scheduler, while it tries a preemption, whether the quotas have room for the Pod then.
// Otherwise PreFilter has decided.
func (capacity) Filter(cycle sched.CycleState, pod core.Pod, _ sched.NodeInfo) *sched.Status {
	value, _ := cycle.Read(quotasKey)
	if q := value.(*quotas); q.dry {
		return q.check(pod)
	}
	return nil
}

// PotentialVictims returns the Pods that have borrowed what the Pod gets back, or are less important than
// the Pod.
func (capacity) PotentialVictims(cycle sched.CycleState, pod core.Pod, node sched.NodeInfo) (victims []core.Pod, _ *sched.Status) {
	value, _ := cycle.Read(quotasKey)
	q := value.(*quotas).Clone().(*quotas)
	namespace, priority := pod.Metadata().Namespace(), pod.Spec().Priority()
	own := q.of[namespace]
	borrows := own != nil && own.beyondMin(q.inQuota)
	for _, p := range leastImportantFirst(node.Pods()) {
		other := p.Metadata().Namespace()
		one := q.of[other]
		switch {
		case own == nil:
			if one != nil || p.Spec().Priority() >= priority {
				continue
			}
		case one == nil:
			continue
		case borrows:
			if other != namespace || p.Spec().Priority() >= priority {
				continue
			}
		case other == namespace || !one.beyondMin(nil) || p.Spec().Priority() >= max(systemCritical, priority):
			continue
		}
		if one != nil && q.counted[p.Metadata().UID()] {
			one.used.add(requests(p), -1)
		}
		victims = append(victims, p)
	}
	return victims, nil
}

// leastImportantFirst sorts Pods by priority, the youngest first among equal ones.
func leastImportantFirst(pods []core.Pod) []core.Pod {
	pods = slices.Clone(pods)
	slices.SortStableFunc(pods, func(a, b core.Pod) int {
		if x, y := a.Spec().Priority(), b.Spec().Priority(); x != y {
			return int(x) - int(y)
		}
		x, y := a.Status(), b.Status()
		switch {
		case x.HasStartTime() && (!y.HasStartTime() || x.StartTime().Before(y.StartTime())):
			return 1
		case y.HasStartTime() && (!x.HasStartTime() || y.StartTime().Before(x.StartTime())):
			return -1
		}
		return 0
	})
	return pods
}

// Reserve counts a Pod at once.
func (capacity) Reserve(_ sched.CycleState, pod core.Pod, _ string) *sched.Status {
	if len(slices.Collect(sched.ListObjects(elasticQuotas, pod.Metadata().Namespace(), ""))) == 0 {
		return nil
	}
	if !state.Put(key(pod), nil) {
		sweep()
		if !state.Put(key(pod), nil) {
			return sched.NewStatus(abi.Error, "the shared state is full: raise limits.stateEntries")
		}
	}
	return nil
}

// Unreserve counts it no longer.
func (capacity) Unreserve(_ sched.CycleState, pod core.Pod, _ string) { state.Delete(key(pod)) }

// sweep drops the entries of Pods that are gone or have a node for all to see.
func sweep() {
	for e := range state.All("reserved/") {
		parts := strings.Split(e.Key, "/")
		b := sched.GetObject("v1/pods", parts[1], parts[2])
		if pod := core.PodFromProto(b); b == nil || pod.Metadata().UID() != parts[3] || pod.Spec().NodeName() != "" {
			state.Delete(e.Key)
		}
	}
}

func init() { sched.Register(capacity{}) }

func main() {}
