// The carried guest finds out something at each step of a cycle, and says at every later extension
// point what it knows: in the reason where there is one, in an event after binding.
package main

import (
	"slices"
	"strconv"
	"strings"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/api/meta"
	"github.com/kubewasm/kubewasm/guest/sched"
)

type plugin struct{}

// known is what the guest has found out in a cycle.
type known struct{ steps []string }

func (k *known) Clone() sched.StateData { return &known{append([]string(nil), k.steps...)} }

func (k *known) add(parts ...string) { k.steps = append(k.steps, strings.Join(parts, "")) }

func knownOf(state sched.CycleState) *known {
	if v, ok := state.Read("known"); ok {
		return v.(*known)
	}
	k := &known{}
	state.Write("known", k)
	return k
}

func (k *known) String() string { return strings.Join(k.steps, " ") }

func note(pod core.Pod, key string) string { return pod.Metadata().Annotations().Get(key) }

// ask asks what the annotation "asks" names, at a step.
func ask(k *known, step string, pod core.Pod) {
	for _, what := range strings.Split(note(pod, "asks"), ",") {
		of, question, _ := strings.Cut(what, ":")
		if of != step {
			continue
		}
		switch question {
		case "objects":
			k.add(step, " lists ", strconv.Itoa(len(slices.Collect(sched.ListObjects("v1/configmaps", "shop", "")))))
			k.add("gets ", strconv.Itoa(len(sched.GetObject("v1/configmaps", "shop", "first"))))
		case "waiting":
			k.add(step, " sees ", strconv.Itoa(len(sched.WaitingPods())))
		case "reject":
			for _, w := range sched.WaitingPods() {
				k.add(step, " rejects ", w.Name, " ", strconv.FormatBool(w.Reject("makes room")))
			}
		case "event":
			sched.Eventf("Normal", "Step", step, pod.Metadata().Name())
		}
	}
}

func (plugin) PreFilter(state sched.CycleState, pod core.Pod, nodes sched.NodeInfos) (*sched.PreFilterResult, *sched.Status) {
	k := knownOf(state)
	k.add("prefilter ", pod.Metadata().Name())
	if note(pod, "nodes") != "" {
		used := int64(0)
		for i := range nodes.Len() {
			used += nodes.At(i).Usage().Requested.MilliCPU
		}
		k.add("uses ", strconv.FormatInt(used/int64(nodes.Len()), 10))
	}
	ask(k, "prefilter", pod)
	return nil, nil
}

func (plugin) AddPod(state sched.CycleState, pod, added core.Pod, node sched.NodeInfo) *sched.Status {
	knownOf(state).add("+", added.Metadata().Name(), "=", strconv.Itoa(node.NumPods()))
	return nil
}

func (plugin) RemovePod(state sched.CycleState, pod, removed core.Pod, node sched.NodeInfo) *sched.Status {
	knownOf(state).add("-", removed.Metadata().Name(), "=", strconv.Itoa(node.NumPods()))
	return nil
}

func (plugin) Filter(state sched.CycleState, pod core.Pod, node sched.NodeInfo) *sched.Status {
	k := knownOf(state)
	switch note(pod, "filter") {
	case "trap":
		panic("as told")
	case "tell":
		return sched.Unschedulable(k.String())
	case "acts":
		local := &known{}
		ask(local, "filter", pod)
		return sched.Unschedulable(local.String())
	}
	return nil
}

func (plugin) PreScore(state sched.CycleState, pod core.Pod, nodes sched.NodeInfos) *sched.Status {
	k := knownOf(state)
	if note(pod, "nodes") != "" {
		k.add("prescore ", strconv.Itoa(nodes.Len()))
	}
	ask(k, "prescore", pod)
	return nil
}

func (plugin) Score(state sched.CycleState, pod core.Pod, node sched.NodeInfo) (int64, *sched.Status) {
	return 0, nil
}

func (plugin) Reserve(state sched.CycleState, pod core.Pod, nodeName string) *sched.Status {
	k := knownOf(state)
	k.add("reserve ", nodeName)
	ask(k, "reserve", pod)
	return nil
}

// check compares what the guest knows with the annotation "want".
func check(state sched.CycleState, pod core.Pod) *sched.Status {
	if got, want := knownOf(state).String(), note(pod, "want"); got != want {
		return sched.NewStatus(abi.Error, "the guest knows ", got, ", want ", want)
	}
	return nil
}

func (plugin) Permit(state sched.CycleState, pod core.Pod, nodeName string) (*sched.Status, meta.Duration) {
	return check(state, pod), 0
}

func (plugin) PreBindPreFlight(state sched.CycleState, pod core.Pod, nodeName string) (*sched.PreBindPreFlightResult, *sched.Status) {
	return &sched.PreBindPreFlightResult{}, check(state, pod)
}

func (plugin) PreBind(state sched.CycleState, pod core.Pod, nodeName string) *sched.Status {
	return check(state, pod)
}

func (plugin) Bind(state sched.CycleState, pod core.Pod, nodeName string) *sched.Status {
	return check(state, pod)
}

func (plugin) PostBind(state sched.CycleState, pod core.Pod, nodeName string) {
	sched.Eventf("Normal", "Bound", pod.Metadata().Name(), knownOf(state).String())
}

func (plugin) Unreserve(state sched.CycleState, pod core.Pod, nodeName string) {
	sched.Eventf("Normal", "Unreserved", pod.Metadata().Name(), knownOf(state).String())
}

func init() { sched.Register(plugin{}) }

func main() {}
