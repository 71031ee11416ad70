// The cycle guest of the conformance suite, by the SDK.
package main

import (
	"slices"
	"strconv"
	"strings"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/api/meta"
	"github.com/kubewasm/kubewasm/guest/sched"
	"github.com/kubewasm/kubewasm/guest/state"
)

//kubewasm:name conformance-cycle

type guest struct{}

// memory is what the guest remembers of a cycle.
type memory struct {
	total int
	nodes int
	first string
	// reserved is the name of a node, "nothing" before there is one.
	reserved string
}

func (m *memory) Clone() sched.StateData {
	clone := *m
	return &clone
}

func memoryOf(state sched.CycleState) *memory {
	m, _ := state.Read("memory")
	return m.(*memory)
}

func app(pod core.Pod) string { return pod.Metadata().Labels().Get("app") }

// here counts the Pods of the Pod's app, in its namespace, on a node, but for those that are parked or
// of two tiers: those that stay, and those that are on their way out.
func here(node sched.NodeInfo, pod core.Pod) string {
	selector, err := meta.NewSelector(
		meta.Requirement{Key: "app", Operator: meta.LabelSelectorOpIn, Values: []string{app(pod)}},
		meta.Requirement{Key: "app", Operator: meta.LabelSelectorOpExists},
		meta.Requirement{Key: "parked", Operator: meta.LabelSelectorOpDoesNotExist},
		meta.Requirement{Key: "tier", Operator: meta.LabelSelectorOpNotIn, Values: []string{"out", "old"}},
		meta.Requirement{Key: "app", Operator: meta.LabelSelectorOpIn, Values: []string{"any", app(pod)}},
	)
	if err != nil {
		panic(err)
	}
	all := sched.NewPodSelector(pod.Metadata().Namespace(), selector)
	stay := all.WithoutTerminating().Count(node)[0]
	return strconv.Itoa(stay) + "+" + strconv.Itoa(all.Count(node)[0]-stay)
}

// ofApp counts the Pods of an app on a node.
func ofApp(node sched.NodeInfo, app string) (n int) {
	for _, pod := range node.Pods() {
		if pod.Metadata().Labels().Get("app") == app {
			n++
		}
	}
	return n
}

func (guest) PreFilter(state sched.CycleState, pod core.Pod, nodes sched.NodeInfos) (*sched.PreFilterResult, *sched.Status) {
	m := &memory{reserved: "nothing"}
	for _, node := range nodes.All {
		m.total += ofApp(node, app(pod))
	}
	state.Write("memory", m)
	return nil, nil
}

func (guest) AddPod(state sched.CycleState, pod, added core.Pod, _ sched.NodeInfo) *sched.Status {
	if app(added) == app(pod) {
		memoryOf(state).total++
	}
	return nil
}

func (guest) RemovePod(state sched.CycleState, pod, removed core.Pod, _ sched.NodeInfo) *sched.Status {
	if app(removed) == app(pod) {
		memoryOf(state).total--
	}
	return nil
}

func (guest) Filter(state sched.CycleState, pod core.Pod, node sched.NodeInfo) *sched.Status {
	var size int64
	for _, image := range node.ImageStates() {
		if image.Name == "web:1" {
			size = image.Size
		}
	}
	usage := node.Usage()
	return sched.Unschedulable(
		"total=", strconv.Itoa(memoryOf(state).total), " here=", here(node, pod),
		" cpu=", strconv.FormatInt(usage.Requested.MilliCPU, 10), "/", strconv.FormatInt(usage.Allocatable.MilliCPU, 10),
		" image=", strconv.FormatInt(size, 10))
}

func (guest) PostFilter(_ sched.CycleState, pod core.Pod, statuses sched.NodeToStatus) (*sched.PostFilterResult, *sched.Status) {
	if pod.Metadata().Labels().Has("clear") {
		return &sched.PostFilterResult{}, nil
	}
	for _, s := range statuses.All() {
		if s.Status.Code() == abi.Unschedulable && s.Status.Reason() == "full" {
			return &sched.PostFilterResult{NominatedNodeName: s.NodeName}, nil
		}
	}
	return nil, sched.Unschedulable("none of ", strconv.Itoa(len(sched.SnapshotNodeNames())), " nodes")
}

func (guest) PreScore(state sched.CycleState, _ core.Pod, nodes sched.NodeInfos) *sched.Status {
	m := memoryOf(state)
	m.nodes, m.first = nodes.Len(), nodes.Name(0)
	return nil
}

func (guest) Score(state sched.CycleState, _ core.Pod, node sched.NodeInfo) (int64, *sched.Status) {
	m := memoryOf(state)
	score := int64(m.nodes)
	if node.Node().Metadata().Name() == m.first {
		score *= 10
	}
	switch labels := node.Node().Metadata().Labels(); {
	case labels.Has("huge"):
		score <<= 40
	case labels.Has("tiny"):
		score = -score << 40
	}
	return score, nil
}

func (guest) Reserve(state sched.CycleState, pod core.Pod, nodeName string) *sched.Status {
	memoryOf(state).reserved = nodeName
	if pod.Metadata().Labels().Get("refuse") == nodeName {
		return sched.Unschedulable("refused")
	}
	if pod.Metadata().Labels().Has("state") {
		return sched.Unschedulable(useState(pod))
	}
	return nil
}

// useState writes and reads the state that all instances share.
func useState(pod core.Pod) string {
	if pod.Metadata().Labels().Get("state") == "keep" {
		state.Keep()
	}
	answers := ""
	add := func(ok bool) { answers += strconv.FormatBool(ok) + " " }
	add(state.Add("n", 2, 3))
	add(state.Add("n", 2, 3))
	add(state.Add("n", -1, 0))
	add(state.Put("k/1", []byte("one")))
	add(state.Put("k/2", []byte("two")))
	add(state.PutIf("k/1", []byte("three"), 0))
	one, _ := state.Get("k/1")
	add(state.PutIf("k/1", []byte("uno"), one.Version))
	add(state.Delete("k/2"))
	add(state.Delete("k/2"))
	for e := range state.All("k/") {
		answers += e.Key + "=" + string(e.Value) + " "
	}
	n, _ := state.Get("n")
	selector, err := meta.NewSelector(meta.Requirement{Key: "app", Operator: meta.LabelSelectorOpIn, Values: []string{app(pod)}})
	if err != nil {
		panic(err)
	}
	pods := 0
	for other := range sched.NewPodSelector("", selector).List() {
		pods += len(other.Metadata().Name())
	}
	return answers + strconv.FormatInt(n.Int(), 10) + " " + strconv.Itoa(pods)
}

func (guest) Unreserve(state sched.CycleState, _ core.Pod, nodeName string) {
	sched.Eventf("Warning", "Unreserved", "Binding", nodeName, ", reserved ", memoryOf(state).reserved)
}

func (guest) Permit(_ sched.CycleState, pod core.Pod, nodeName string) (*sched.Status, meta.Duration) {
	labels := pod.Metadata().Labels()
	switch action := labels.Get("permit"); action {
	case "wait":
		return sched.NewStatus(abi.Wait), 1500 * meta.Millisecond
	case "deny":
		return sched.Unschedulable("denied on ", nodeName), 0
	case "allow", "reject":
		waited := false
		for _, w := range sched.WaitingPods() {
			other, ok := w.Pod()
			if !ok || other.Metadata().Labels().Get("group") != labels.Get("group") {
				continue
			}
			if action == "allow" {
				waited = w.Allow() || waited
			} else {
				waited = w.Reject(w.Name, " waits for ", strings.Join(w.PendingPlugins, ",")) || waited
			}
		}
		if !waited {
			return sched.Unschedulable("nobody waits"), 0
		}
	case "ghost":
		ghost := sched.WaitingPod{UID: "ghost"}
		_, waits := ghost.Pod()
		if allowed, rejected := ghost.Allow(), ghost.Reject(); !waits && !allowed && !rejected {
			return sched.Unschedulable("there is no ghost"), 0
		}
	}
	return nil, 0
}

func (guest) PreBindPreFlight(_ sched.CycleState, pod core.Pod, _ string) (*sched.PreBindPreFlightResult, *sched.Status) {
	labels := pod.Metadata().Labels()
	if !labels.Has("claim") {
		return nil, sched.Skip()
	}
	return &sched.PreBindPreFlightResult{AllowParallel: labels.Has("parallel")}, nil
}

func (guest) PreBind(_ sched.CycleState, pod core.Pod, _ string) *sched.Status {
	const claims = "v1/persistentvolumeclaims"
	namespace, name := pod.Metadata().Namespace(), pod.Metadata().Labels().Get("claim")
	b := sched.GetObject(claims, namespace, name)
	if b == nil {
		return sched.NewStatus(abi.Error, "no claim ", namespace, "/", name)
	}
	volume := core.PersistentVolumeClaimFromProto(b).Spec().VolumeName()
	if volume == "" {
		return sched.NewStatus(abi.Pending, "claim ", name, " is not bound")
	}
	in, all := len(slices.Collect(sched.ListObjects(claims, namespace, ""))), len(slices.Collect(sched.ListObjects(claims, "", "")))
	return sched.Unschedulable(volume, ", ", strconv.Itoa(in), " claims of ", strconv.Itoa(all))
}

func (guest) Bind(state sched.CycleState, pod core.Pod, nodeName string) *sched.Status {
	if pod.Metadata().Labels().Get("bind") != "self" {
		return sched.Skip()
	}
	if reserved := memoryOf(state).reserved; reserved != nodeName {
		return sched.NewStatus(abi.Error, nodeName, " is not ", reserved)
	}
	return nil
}

func (guest) PostBind(_ sched.CycleState, _ core.Pod, nodeName string) {
	sched.Eventf("Normal", "Bound", "Binding", "to ", nodeName)
}

func init() { sched.Register(guest{}) }

func main() {}
