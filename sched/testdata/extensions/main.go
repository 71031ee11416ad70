// The extensions guest implements every extension point. What a function does
// follows from the Pod's annotations; it writes what it saw into its reasons.
package main

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/api/meta"
	"github.com/kubewasm/kubewasm/guest/sched"
)

type plugin struct{}

func note(pod core.Pod, key string) string { return pod.Metadata().Annotations().Get(key) }

func (plugin) PreEnqueue(pod core.Pod) *sched.Status {
	if why := note(pod, "gate"); why != "" {
		return sched.UnschedulableAndUnresolvable(why)
	}
	return nil
}

// Less puts Pods with a smaller annotation first.
func (plugin) Less(a, b sched.QueuedPodInfo) bool {
	if note(a.Pod, "order") == "trap" {
		panic("Less fails")
	}
	return note(a.Pod, "order") < note(b.Pod, "order")
}

func (plugin) EventsToRegister() ([]sched.ClusterEventWithHint, error) {
	return []sched.ClusterEventWithHint{
		{Event: sched.ClusterEvent{Resource: abi.EventNode, ActionType: abi.ActionAdd | abi.ActionUpdateNodeLabel}, QueueingHintFn: nodeHint},
		{Event: sched.ClusterEvent{Resource: abi.EventAssignedPod, ActionType: abi.ActionDelete}, QueueingHintFn: podHint},
		{Event: sched.ClusterEvent{Resource: abi.EventNode, ActionType: abi.ActionDelete}},
	}, nil
}

func nodeHint(pod core.Pod, oldObj, newObj sched.EventObject) (sched.QueueingHint, error) {
	if note(pod, "hint") == "error" {
		return sched.QueueSkip, errors.New("no hint")
	}
	before := "none"
	if oldObj.Present() {
		before = oldObj.Node().Metadata().Labels().Get("zone")
	}
	if note(pod, "hint") == before+" to "+newObj.Node().Metadata().Labels().Get("zone") {
		return sched.Queue, nil
	}
	return sched.QueueSkip, nil
}

func podHint(pod core.Pod, oldObj, newObj sched.EventObject) (sched.QueueingHint, error) {
	if !newObj.Present() && oldObj.Pod().Metadata().Name() == note(pod, "hint") {
		return sched.Queue, nil
	}
	return sched.QueueSkip, nil
}

// trace is what happened in a cycle.
type trace struct {
	steps []string
	trap  bool // When it is cloned.
}

func (t *trace) Clone() sched.StateData {
	if t.trap {
		panic("Clone fails")
	}
	return &trace{steps: slices.Clone(t.steps)}
}

// opaque is a trace that cannot be cloned.
type opaque struct{ of *trace }

func traceOf(state sched.CycleState) *trace {
	switch v, _ := state.Read("trace"); v := v.(type) {
	case *trace:
		return v
	case opaque:
		return v.of
	}
	t := &trace{}
	state.Write("trace", t)
	return t
}

func (t *trace) add(step string) { t.steps = append(t.steps, step) }

func (t *trace) String() string { return strings.Join(t.steps, " ") }

func (plugin) PreFilter(state sched.CycleState, pod core.Pod, _ sched.NodeInfos) (*sched.PreFilterResult, *sched.Status) {
	t := traceOf(state)
	t.add("prefilter:" + pod.Metadata().Name())
	switch note(pod, "clone") {
	case "opaque":
		state.Write("trace", opaque{t})
	case "panic":
		t.trap = true
	}
	if note(pod, "nodes") == "snapshot" {
		return &sched.PreFilterResult{NodeNames: sched.SnapshotNodeNames()}, nil
	}
	if note(pod, "event") != "" {
		sched.Eventf("Normal", "Seen", "PreFilter", "the Pod ", pod.Metadata().Name(), " 100%")
	}
	return nil, nil
}

func (plugin) AddPod(state sched.CycleState, _, added core.Pod, node sched.NodeInfo) *sched.Status {
	traceOf(state).add("+" + added.Metadata().Name() + "@" + node.Node().Metadata().Name())
	return nil
}

func (plugin) RemovePod(state sched.CycleState, _, removed core.Pod, node sched.NodeInfo) *sched.Status {
	traceOf(state).add("-" + removed.Metadata().Name() + "@" + node.Node().Metadata().Name())
	return nil
}

func (plugin) Filter(state sched.CycleState, pod core.Pod, node sched.NodeInfo) *sched.Status {
	switch note(pod, "filter") {
	case "trace":
		return sched.Unschedulable(traceOf(state).String())
	case "claims":
		return sched.Unschedulable(strconv.Itoa(len(slices.Collect(sched.ListObjects("v1/persistentvolumeclaims", "shop", "")))))
	case "usage":
		u := node.Usage()
		var b strings.Builder
		b.WriteString(strconv.FormatInt(u.Requested.MilliCPU, 10) + "/" + strconv.FormatInt(u.Allocatable.MilliCPU, 10))
		b.WriteString(" nonzero " + strconv.FormatInt(u.NonZeroRequested.Memory, 10))
		b.WriteString(" gpu " + strconv.FormatInt(u.Allocatable.Scalar("example.com/gpu"), 10))
		for _, p := range u.UsedPorts {
			b.WriteString(" " + p.IP + ":" + strconv.Itoa(int(p.Port)) + "/" + p.Protocol)
		}
		for _, c := range u.PVCRefCounts {
			b.WriteString(" " + c.Name + "=" + strconv.Itoa(int(c.Count)))
		}
		for _, i := range node.ImageStates() {
			b.WriteString(" " + i.Name + "=" + strconv.FormatInt(i.Size, 10) + "*" + strconv.Itoa(i.NumNodes))
		}
		for _, p := range node.Pods() {
			b.WriteString(" " + p.Metadata().Name())
		}
		return sched.Unschedulable(b.String())
	case "neighbour":
		n, ok := sched.SnapshotNode(note(pod, "neighbour"))
		if !ok {
			return sched.Unschedulable("no such node")
		}
		return sched.Unschedulable(n.Node().Metadata().Labels().Get("zone"), " ", strconv.Itoa(n.NumPods()))
	case "loop":
		for {
		}
	case "panic":
		panic("as told")
	}
	return nil
}

func (plugin) PostFilter(state sched.CycleState, pod core.Pod, statuses sched.NodeToStatus) (*sched.PostFilterResult, *sched.Status) {
	var b strings.Builder
	for _, s := range statuses.All() {
		b.WriteString(s.NodeName + "=" + s.Status.String() + ";")
	}
	if name := note(pod, "nominate"); name != "" {
		return &sched.PostFilterResult{NominatedNodeName: name}, nil
	}
	if note(pod, "withdraw") != "" {
		return &sched.PostFilterResult{}, sched.Unschedulable("nowhere")
	}
	return nil, sched.Unschedulable(b.String())
}

func (plugin) PreScore(state sched.CycleState, _ core.Pod, nodes sched.NodeInfos) *sched.Status {
	var names []string
	for i := range nodes.Len() {
		names = append(names, nodes.At(i).Node().Metadata().Name())
	}
	traceOf(state).add("prescore:" + strings.Join(names, ","))
	return nil
}

func (plugin) Score(state sched.CycleState, pod core.Pod, node sched.NodeInfo) (int64, *sched.Status) {
	if note(pod, "score") == "late" {
		return int64(len(kept.Name())), nil
	}
	return int64(len(traceOf(state).String())), nil
}

// kept is what a plugin must not keep.
var kept sched.NodeScore

func (plugin) NormalizeScore(_ sched.CycleState, pod core.Pod, scores sched.NodeScoreList) *sched.Status {
	kept = scores[len(scores)-1]
	for i := range scores {
		if note(pod, "normalize") == "names" {
			scores[i].Score = int64(len(scores[i].Name()))
			continue
		}
		scores[i].Score *= 2
	}
	return nil
}

func (plugin) Reserve(state sched.CycleState, pod core.Pod, nodeName string) *sched.Status {
	if note(pod, "nodes") == "reserve" {
		return snapshot()
	}
	traceOf(state).add("reserve:" + nodeName)
	return nil
}

func (plugin) Unreserve(state sched.CycleState, pod core.Pod, nodeName string) {
	sched.Eventf("Warning", "Unreserved", "Unreserve", traceOf(state).String(), " ", nodeName)
}

// snapshot refuses a Pod with the names of all nodes and the zones of those that are found.
func snapshot() *sched.Status {
	var list []string
	for _, name := range sched.SnapshotNodeNames() {
		if n, ok := sched.SnapshotNode(name); ok {
			name += "=" + n.Node().Metadata().Labels().Get("zone")
		}
		list = append(list, name)
	}
	return sched.Unschedulable(strings.Join(list, " "))
}

func (plugin) Permit(state sched.CycleState, pod core.Pod, nodeName string) (*sched.Status, meta.Duration) {
	if note(pod, "nodes") == "permit" {
		return snapshot(), 0
	}
	for _, w := range sched.WaitingPods() {
		switch {
		case note(pod, "permit") == "allow":
			w.Allow()
		case note(pod, "permit") == "reject":
			p, ok := w.Pod()
			if ok {
				w.Reject(p.Metadata().Name(), " must go: ", strings.Join(w.PendingPlugins, ","))
			}
		}
	}
	if note(pod, "permit") == "wait" {
		return sched.NewStatus(abi.Wait, traceOf(state).String(), " ", nodeName), 90 * meta.Second
	}
	return nil, 0
}

func (plugin) PreBindPreFlight(_ sched.CycleState, pod core.Pod, _ string) (*sched.PreBindPreFlightResult, *sched.Status) {
	if note(pod, "prebind") == "" {
		return nil, sched.Skip()
	}
	return &sched.PreBindPreFlightResult{AllowParallel: true}, nil
}

func (plugin) PreBind(state sched.CycleState, pod core.Pod, nodeName string) *sched.Status {
	if note(pod, "nodes") == "prebind" {
		return snapshot()
	}
	if name := note(pod, "prebind"); name != "" {
		return sched.NewStatus(abi.Error, traceOf(state).String(), " claim of ", strconv.Itoa(len(sched.GetObject("v1/persistentvolumeclaims", "shop", name))),
			" ", strconv.Itoa(len(slices.Collect(sched.ListObjects("v1/persistentvolumeclaims", "", "")))))
	}
	return nil
}

func (plugin) Bind(_ sched.CycleState, _ core.Pod, nodeName string) *sched.Status {
	return sched.Skip()
}

func (plugin) PostBind(state sched.CycleState, pod core.Pod, nodeName string) {
	sched.Eventf("Normal", "Bound", "PostBind", traceOf(state).String(), " ", nodeName)
}

func (plugin) SignPod(pod core.Pod) ([]sched.SignFragment, *sched.Status) {
	if note(pod, "sign") == "refuse" {
		return nil, sched.Unschedulable("unlike any other")
	}
	return []sched.SignFragment{{Key: "kubewasm.order", Value: strconv.Quote(note(pod, "order"))}, {Key: "kubewasm.list", Value: "[1, 2]"}}, nil
}

func (plugin) PodGroupPostFilter(_ sched.CycleState, group sched.PodGroupInfo) ([]sched.Nomination, *sched.Status) {
	if group.Name == "crowded" {
		var leaving []string
		for _, name := range sched.SnapshotNodeNames() {
			node, _ := sched.SnapshotNode(name)
			for _, p := range node.Pods() {
				if note(p, "leaving") != "" {
					leaving = append(leaving, p.Metadata().UID())
				}
			}
		}
		if _, status := sched.TryPodGroup(); status.IsSuccess() {
			return nil, sched.NewStatus(abi.Error, "it fits")
		}
		return sched.TryPodGroup(leaving...)
	}
	if group.Name == "haunted" {
		_, status := sched.TryPodGroup("nobody")
		return nil, status
	}
	var nominations []sched.Nomination
	for _, p := range group.UnscheduledPods() {
		nominations = append(nominations, sched.Nomination{Namespace: p.Metadata().Namespace(), Name: p.Metadata().Name(), NodeName: "node-of-" + p.Metadata().Name()})
	}
	return nominations, nil
}

func (plugin) GeneratePlacements(_ sched.CycleState, group sched.PodGroupInfo, parent []string) ([]sched.Placement, *sched.Status) {
	if group.Name == "stray" {
		return []sched.Placement{{Name: "p", NodeNames: []string{"elsewhere"}}}, nil
	}
	var list []sched.Placement
	for _, name := range parent {
		list = append(list, sched.Placement{Name: group.Name + " on " + name, NodeNames: []string{name}})
	}
	return list, nil
}

func (plugin) ScorePlacement(_ sched.CycleState, _ sched.PodGroupInfo, p sched.Placement) (int64, *sched.Status) {
	return int64(10*len(p.NodeNames) + len(p.Assignments)), nil
}

func (plugin) NormalizePlacementScore(_ sched.CycleState, _ sched.PodGroupInfo, scores sched.NodeScoreList) *sched.Status {
	for i := range scores {
		scores[i].Score = int64(len(scores[i].Name()))
	}
	return nil
}

func init() { sched.Register(plugin{}) }

func main() {}
