// The scheduler guest of the conformance suite, by the SDK.
package main

import (
	"errors"

	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/log"
	"github.com/kubewasm/kubewasm/guest/sched"
)

//kubewasm:name conformance-scheduler

type guest struct {
	Label string `json:"label"`
}

func (g *guest) Configure() error {
	if g.Label == "" || len(g.Label) > 32 {
		return errors.New(`want {"label":"…"}`)
	}
	log.Info("configured", "label", g.Label)
	return nil
}

func (g *guest) PreFilter(state sched.CycleState, pod core.Pod, _ sched.NodeInfos) (*sched.PreFilterResult, *sched.Status) {
	labels := pod.Metadata().Labels()
	if labels.Has("skip") {
		return nil, sched.Skip()
	}
	want, ok := labels.Lookup(g.Label)
	if !ok {
		return nil, sched.UnschedulableAndUnresolvable("the Pod has no ", g.Label)
	}
	state.Write("want", want)
	if only, ok := labels.Lookup("only"); ok {
		return &sched.PreFilterResult{NodeNames: []string{only}}, nil
	}
	return nil, nil
}

func wanted(state sched.CycleState) string {
	want, _ := state.Read("want")
	return want.(string)
}

func (g *guest) Filter(state sched.CycleState, _ core.Pod, node sched.NodeInfo) *sched.Status {
	metadata := node.Node().Metadata()
	labels := metadata.Labels()
	if labels.Has("trap") {
		panic("trap")
	}
	if why, ok := metadata.Annotations().Lookup("closed"); ok {
		return sched.Unschedulable("closed: ", why)
	}
	if taints := node.Node().Spec().Taints(); len(taints) != 0 {
		return sched.UnschedulableAndUnresolvable("tainted: ", taints[len(taints)-1].Key())
	}
	if want, got := wanted(state), labels.Get(g.Label); want != got {
		return sched.Unschedulable("want ", want, ", got ", got)
	}
	return nil
}

func (g *guest) Score(_ sched.CycleState, _ core.Pod, node sched.NodeInfo) (int64, *sched.Status) {
	n := int64(0)
	for range node.Node().Metadata().Labels().All {
		n++
	}
	return 10 * n, nil
}

func (g *guest) NormalizeScore(state sched.CycleState, _ core.Pod, scores sched.NodeScoreList) *sched.Status {
	for i := range scores {
		scores[i].Score = 100 - scores[i].Score
		if scores[i].Name() == wanted(state) {
			scores[i].Score = 100
		}
	}
	return nil
}

func init() { sched.Register(&guest{}) }

func main() {}
