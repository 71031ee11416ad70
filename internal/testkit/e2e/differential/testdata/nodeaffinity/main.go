// The nodeaffinity guest is the scheduler's plugin NodeAffinity.
package main

import (
	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
)

type nodeAffinity struct{}

// PreFilter narrows the nodes down if every term names some.
func (nodeAffinity) PreFilter(_ sched.CycleState, pod core.Pod, _ sched.NodeInfos) (*sched.PreFilterResult, *sched.Status) {
	affinity := pod.Spec().Affinity().NodeAffinity()
	if !affinity.HasRequiredDuringSchedulingIgnoredDuringExecution() {
		for range pod.Spec().NodeSelector().All {
			return nil, nil
		}
		return nil, sched.Skip()
	}
	terms := affinity.RequiredDuringSchedulingIgnoredDuringExecution().NodeSelectorTerms()
	if len(terms) == 0 {
		return nil, nil
	}
	names := map[string]bool{}
	for _, term := range terms {
		of, named := namesOf(term)
		if !named {
			return nil, nil
		}
		for name := range of {
			names[name] = true
		}
	}
	if len(names) == 0 {
		return nil, sched.UnschedulableAndUnresolvable("pod affinity terms conflict")
	}
	result := &sched.PreFilterResult{}
	for name := range names {
		result.NodeNames = append(result.NodeNames, name)
	}
	return result, nil
}

// namesOf returns the names of nodes that all fields of a term ask for, and
// whether any field does.
func namesOf(term core.NodeSelectorTerm) (names map[string]bool, named bool) {
	for _, r := range term.MatchFields() {
		if r.Key() != "metadata.name" || r.Operator() != core.NodeSelectorOpIn {
			continue
		}
		these := map[string]bool{}
		for _, name := range r.Values() {
			if !named || names[name] {
				these[name] = true
			}
		}
		names, named = these, true
	}
	return names, named
}

const (
	requiredKey  = "required"
	preferredKey = "preferred"
)

func (nodeAffinity) Filter(state sched.CycleState, pod core.Pod, node sched.NodeInfo) *sched.Status {
	required, ok := state.Read(requiredKey)
	if !ok {
		r := pod.RequiredNodeAffinity()
		required = &r
		state.Write(requiredKey, required)
	}
	// The scheduler passes over terms that make no sense.
	if matches, _ := required.(*core.RequiredNodeAffinity).Matches(node.Node()); !matches {
		return sched.UnschedulableAndUnresolvable("node(s) didn't match Pod's node affinity/selector")
	}
	return nil
}

func preferred(pod core.Pod) []core.PreferredSchedulingTerm {
	return pod.Spec().Affinity().NodeAffinity().PreferredDuringSchedulingIgnoredDuringExecution()
}

func (nodeAffinity) PreScore(state sched.CycleState, pod core.Pod, _ sched.NodeInfos) *sched.Status {
	if len(preferred(pod)) == 0 {
		return sched.Skip()
	}
	_, s := parsed(state, pod)
	return s
}

// parsed parses what the Pod prefers, once for each instance.
func parsed(state sched.CycleState, pod core.Pod) (*core.PreferredNodeAffinity, *sched.Status) {
	if p, ok := state.Read(preferredKey); ok {
		return p.(*core.PreferredNodeAffinity), nil
	}
	p, err := core.ParsePreferredNodeAffinity(preferred(pod))
	if err != nil {
		return nil, sched.AsStatus(err)
	}
	state.Write(preferredKey, &p)
	return &p, nil
}

// Score also runs without PreScore, in a profile that has the plugin at score only.
func (nodeAffinity) Score(state sched.CycleState, pod core.Pod, node sched.NodeInfo) (int64, *sched.Status) {
	p, s := parsed(state, pod)
	if s != nil {
		return 0, s
	}
	return p.Score(node.Node()), nil
}

func (nodeAffinity) NormalizeScore(_ sched.CycleState, _ core.Pod, scores sched.NodeScoreList) *sched.Status {
	var most int64
	for _, s := range scores {
		most = max(most, s.Score)
	}
	for i := range scores {
		if most != 0 {
			scores[i].Score = scores[i].Score * sched.MaxNodeScore / most
		}
	}
	return nil
}

// EventsToRegister returns the events of the plugin.
func (nodeAffinity) EventsToRegister() ([]sched.ClusterEventWithHint, error) {
	return []sched.ClusterEventWithHint{
		{Event: sched.ClusterEvent{Resource: abi.EventNode, ActionType: abi.ActionAdd | abi.ActionUpdateNodeLabel}},
	}, nil
}

func init() { sched.Register(nodeAffinity{}) }

func main() {}
