// The scheduler guest is run by the tests of the harness, both ways.
package main

import (
	"errors"
	"strings"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
)

//kubewasm:reads node.metadata.labels pod.metadata

type zone struct {
	Label string   `json:"label"`
	Only  []string `json:"only"`
}

// Configure refuses a configuration that cannot work.
func (z *zone) Configure() error {
	if z.Label == "" {
		return errors.New("label: Required value")
	}
	return nil
}

func (z *zone) PreFilter(state sched.CycleState, pod core.Pod, _ sched.NodeInfos) (*sched.PreFilterResult, *sched.Status) {
	switch pod.Metadata().Labels().Get("zone") {
	case "":
		return nil, sched.Skip()
	case "none":
		return nil, sched.UnschedulableAndUnresolvable("no zone is allowed")
	}
	state.Write("zone", pod.Metadata().Labels().Get("zone"))
	if z.Only != nil {
		return &sched.PreFilterResult{NodeNames: z.Only}, nil
	}
	return nil, nil
}

func (z *zone) Filter(state sched.CycleState, _ core.Pod, node sched.NodeInfo) *sched.Status {
	want, _ := state.Read("zone")
	if got := node.Node().Metadata().Labels().Get(z.Label); got != want {
		return sched.Unschedulable("node is in zone ", got)
	}
	// The guest does not declare this field.
	if node.Node().Spec().Unschedulable() {
		return sched.Unschedulable("node is cordoned")
	}
	return nil
}

func (z *zone) Score(_ sched.CycleState, _ core.Pod, node sched.NodeInfo) (int64, *sched.Status) {
	name := node.Node().Metadata().Name()
	if strings.HasPrefix(name, "bad") {
		return 0, sched.NewStatus(abi.Error, "no score for ", name)
	}
	return int64(len(name)), nil
}

func (z *zone) NormalizeScore(_ sched.CycleState, _ core.Pod, scores sched.NodeScoreList) *sched.Status {
	for i := range scores {
		scores[i].Score *= 10
	}
	return nil
}

func init() { sched.Register(&zone{Label: "zone"}) }

func main() {}
