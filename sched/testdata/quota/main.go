// The quota guest lets two Pods of a tenant hold a node at a time, whichever instance serves them.
// A Pod's annotations make it fail in the middle.
package main

import (
	"math"
	"strconv"
	"strings"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/api/meta"
	"github.com/kubewasm/kubewasm/guest/log"
	"github.com/kubewasm/kubewasm/guest/sched"
	"github.com/kubewasm/kubewasm/guest/state"
)

//kubewasm:state v1

type quota struct{}

// limit is the number of Pods of a tenant.
const limit = 2

func counterOf(pod core.Pod) string { return "tenant/" + pod.Metadata().Labels().Get("tenant") }

func holderOf(pod core.Pod) string { return "pod/" + pod.Metadata().UID() }

func fails(pod core.Pod, where string) {
	if pod.Metadata().Annotations().Get("trap") == where {
		panic("the guest fails in " + where)
	}
}

// PreFilter reads the counter and counts itself by attempts, which does not outlive a refusal.
func (quota) PreFilter(_ sched.CycleState, pod core.Pod, _ sched.NodeInfos) (*sched.PreFilterResult, *sched.Status) {
	fails(pod, "prefilter")
	if how := pod.Metadata().Annotations().Get("hostile"); how != "" {
		return nil, abuse(how)
	}
	if how := pod.Metadata().Annotations().Get("once"); how != "" {
		for range 2 {
			state.Once(func() { state.Put("filled/"+pod.Metadata().UID(), nil) })
		}
		if how == "refused" {
			return nil, sched.Unschedulable("what it has filled does not count")
		}
	}
	e, _ := state.Get(counterOf(pod))
	if pod.Metadata().Annotations().Get("keep") != "" {
		state.Put("refused/"+pod.Metadata().UID(), nil)
		state.Keep()
	}
	if e.Int() >= limit {
		return nil, sched.Unschedulable("the tenant has ", strconv.FormatInt(e.Int(), 10), " Pods")
	}
	return nil, nil
}

// abuse uses the state as nobody should.
func abuse(how string) *sched.Status {
	n := 0
	switch how {
	case "a key that is too long":
		state.Put(strings.Repeat("k", 513), nil)
	case "no key":
		state.Get("")
	case "a value that is too long":
		state.Put("k", make([]byte, 64<<10+1))
	case "a counter of a text":
		state.Put("k", []byte("text"))
		state.Add("k", 1, 1)
	case "entries without end":
		for state.Put("k"+strconv.Itoa(n), nil) {
			n++
		}
	case "bytes without end":
		for state.Put("k"+strconv.Itoa(n), make([]byte, 60<<10)) {
			n++
		}
	case "a million writes of one key":
		for n < 1_000_000 && state.Add("k", 1, math.MaxInt64) {
			n++
		}
	case "keys without end that do not stay":
		for {
			key := "k" + strconv.Itoa(n)
			state.Put(key, nil)
			state.Delete(key)
			n++
		}
	case "a list that grows while it is read":
		state.Put("k", nil)
		for e := range state.All("k") {
			if n++; len(e.Key) < 400 {
				state.Put(e.Key+"k", nil)
			}
			state.Delete(e.Key)
		}
	case "lists without end":
		state.Put("k", make([]byte, 60<<10))
		for {
			for range state.All("") {
				n++
			}
		}
	}
	return sched.Unschedulable(strconv.Itoa(n))
}

// Reserve counts the Pod.
func (quota) Reserve(_ sched.CycleState, pod core.Pod, _ string) *sched.Status {
	if pod.Metadata().Annotations().Get("between") != "" {
		e, _ := state.Get(counterOf(pod))
		waiting := len(sched.WaitingPods())
		sched.Eventf("Normal", "Seen", "Reserve", "once")
		log.Info("between")
		state.Put("seen/"+pod.Metadata().UID(), []byte(strconv.FormatInt(e.Int(), 10)+" held, "+strconv.Itoa(waiting)+" waiting"))
	}
	state.Put(holderOf(pod), []byte(counterOf(pod)))
	if !state.Add("all", 1, math.MaxInt64) || !state.Add(counterOf(pod), 1, limit) {
		return sched.Unschedulable("the tenant has its Pods")
	}
	fails(pod, "reserve")
	return nil
}

// Unreserve counts a Pod out that was counted.
func (quota) Unreserve(_ sched.CycleState, pod core.Pod, _ string) {
	if state.Delete(holderOf(pod)) {
		state.Add(counterOf(pod), -1, math.MinInt64)
		state.Add("all", -1, math.MinInt64)
	}
}

// Permit finds its Pod counted, on whichever instance it runs.
func (quota) Permit(_ sched.CycleState, pod core.Pod, _ string) (*sched.Status, meta.Duration) {
	fails(pod, "permit")
	if _, ok := state.Get(holderOf(pod)); !ok {
		return sched.NewStatus(abi.Error, "the Pod is not counted"), 0
	}
	n := 0
	for e := range state.All("pod/") {
		if string(e.Value) == counterOf(pod) {
			n++
		}
	}
	if e, _ := state.Get(counterOf(pod)); e.Int() != int64(n) || n > limit {
		return sched.NewStatus(abi.Error, "the counter is ", strconv.FormatInt(e.Int(), 10), " with ", strconv.Itoa(n), " Pods"), 0
	}
	return nil, 0
}

func init() { sched.Register(quota{}) }

func main() {}
