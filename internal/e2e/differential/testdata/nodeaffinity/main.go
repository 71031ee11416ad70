// The nodeaffinity guest is the scheduler's plugin NodeAffinity.
package main

import (
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
)

type nodeAffinity struct{}

// PreFilter narrows the nodes down if every term names some.
func (nodeAffinity) PreFilter(_ sched.CycleState, pod core.Pod) (*sched.PreFilterResult, *sched.Status) {
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

func (nodeAffinity) Filter(_ sched.CycleState, pod core.Pod, node sched.NodeInfo) *sched.Status {
	// The scheduler passes over terms that make no sense.
	if matches, _ := pod.MatchesNode(node.Node()); !matches {
		return sched.UnschedulableAndUnresolvable("node(s) didn't match Pod's node affinity/selector")
	}
	return nil
}

func preferred(pod core.Pod) []core.PreferredSchedulingTerm {
	return pod.Spec().Affinity().NodeAffinity().PreferredDuringSchedulingIgnoredDuringExecution()
}

func (nodeAffinity) PreScore(_ sched.CycleState, pod core.Pod, _ sched.NodeInfos) *sched.Status {
	if len(preferred(pod)) == 0 {
		return sched.Skip()
	}
	return nil
}

func (nodeAffinity) Score(_ sched.CycleState, pod core.Pod, node sched.NodeInfo) (int64, *sched.Status) {
	score, err := core.PreferredNodeScore(preferred(pod), node.Node())
	return score, sched.AsStatus(err)
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

func init() { sched.Register(nodeAffinity{}) }

func main() {}
