// The quota guest lets as many Pods of a tenant have a node as its configuration says, whichever
// instance of the guest serves them. The label kubewasm.dev/tenant names the tenant.
//
// It counts in the state that all instances share. After a restart of the scheduler it counts the
// Pods that have a node anew, and before it refuses a Pod it looks whether those that it has counted
// still exist.
//
// It needs the grants "state" and "objects", and a configuration that names v1/pods, best with an
// index of the label:
//
//	objects: [{resource: v1/pods, index: [{label: kubewasm.dev/tenant}]}]
package main

import (
	"math"
	"strconv"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/api/meta"
	"github.com/kubewasm/kubewasm/guest/sched"
	"github.com/kubewasm/kubewasm/guest/state"
)

//kubewasm:state v1

const tenantKey = "kubewasm.dev/tenant"

type quota struct {
	// Pods is the number of Pods of a tenant that may have a node. Default 2.
	Pods int64 `json:"pods"`
}

func (q *quota) limit() int64 {
	if q.Pods == 0 {
		return 2
	}
	return q.Pods
}

func tenantOf(pod core.Pod) string { return pod.Metadata().Labels().Get(tenantKey) }

// The keys of a tenant's counter, and of a Pod that is counted.
func counterOf(tenant string) string { return "count/" + tenant }

func holderOf(tenant string, pod core.Pod) string {
	return "pod/" + tenant + "/" + pod.Metadata().Namespace() + "/" + pod.Metadata().Name()
}

// ended reports whether a Pod needs no node any more.
func ended(pod core.Pod) bool {
	phase := pod.Status().Phase()
	return phase == core.PodSucceeded || phase == core.PodFailed
}

// fill counts the Pods that had a node before the scheduler began.
func fill() {
	selector, _ := meta.NewSelector(meta.Requirement{Key: tenantKey, Operator: meta.LabelSelectorOpExists})
	for pod := range sched.NewPodSelector("", selector).List() {
		if pod.Spec().NodeName() != "" && !ended(pod) {
			tenant := tenantOf(pod)
			state.Put(holderOf(tenant, pod), []byte(pod.Metadata().UID()))
			state.Add(counterOf(tenant), 1, math.MaxInt64)
		}
	}
}

// sweep counts out the Pods of a tenant that are gone.
func sweep(tenant string) {
	selector, err := meta.NewSelector(meta.Requirement{Key: tenantKey, Operator: meta.LabelSelectorOpIn, Values: []string{tenant}})
	if err != nil {
		return
	}
	alive := map[string]bool{}
	for pod := range sched.NewPodSelector("", selector).List() {
		if !ended(pod) {
			alive[pod.Metadata().UID()] = true
		}
	}
	for e := range state.All("pod/" + tenant + "/") {
		if !alive[string(e.Value)] && state.DeleteIf(e.Key, e.Version) {
			state.Add(counterOf(tenant), -1, math.MinInt64)
		}
	}
}

// PreFilter refuses the Pods of a tenant that has as many as it may.
func (q *quota) PreFilter(_ sched.CycleState, pod core.Pod, _ sched.NodeInfos) (*sched.PreFilterResult, *sched.Status) {
	tenant := tenantOf(pod)
	if tenant == "" {
		return nil, nil
	}
	state.Once(fill)
	state.Keep() // What fill and sweep find counts also if the Pod is refused.
	if q.used(tenant) >= q.limit() {
		sweep(tenant)
	}
	if n := q.used(tenant); n >= q.limit() {
		return nil, sched.Unschedulable("tenant ", tenant, " has ", strconv.FormatInt(n, 10), " Pods")
	}
	return nil, nil
}

func (q *quota) used(tenant string) int64 {
	e, _ := state.Get(counterOf(tenant))
	return e.Int()
}

// Reserve counts the Pod. If the tenant has its Pods by now, nothing of it counts.
func (q *quota) Reserve(_ sched.CycleState, pod core.Pod, _ string) *sched.Status {
	tenant := tenantOf(pod)
	if tenant == "" {
		return nil
	}
	if !state.Put(holderOf(tenant, pod), []byte(pod.Metadata().UID())) {
		return sched.NewStatus(abi.Error, "the state is full: raise limits.stateEntries")
	}
	if !state.Add(counterOf(tenant), 1, q.limit()) {
		return sched.Unschedulable("tenant ", tenant, " has its Pods")
	}
	return nil
}

// Unreserve counts a Pod out, if Reserve has counted it.
func (q *quota) Unreserve(_ sched.CycleState, pod core.Pod, _ string) {
	if tenant := tenantOf(pod); tenant != "" && state.Delete(holderOf(tenant, pod)) {
		state.Add(counterOf(tenant), -1, math.MinInt64)
	}
}

// EventsToRegister has a refused Pod tried again when a Pod of its tenant has gone.
func (q *quota) EventsToRegister() ([]sched.ClusterEventWithHint, error) {
	return []sched.ClusterEventWithHint{{
		Event: sched.ClusterEvent{Resource: abi.EventAssignedPod, ActionType: abi.ActionDelete},
		QueueingHintFn: func(pod core.Pod, gone, _ sched.EventObject) (sched.QueueingHint, error) {
			if tenantOf(gone.Pod()) == tenantOf(pod) {
				return sched.Queue, nil
			}
			return sched.QueueSkip, nil
		},
	}}, nil
}

func init() { sched.Register(&quota{}) }

func main() {}
