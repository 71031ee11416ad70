package sched

import (
	"slices"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/sched/internal/methodset"
)

// extensions has the methods of all extension points. What the scheduler gets
// has those of a guest only.
type extensions struct{ plugin *plugin }

// The interfaces of the framework, as far as plugins may implement them.
var _ interface {
	fwk.PreEnqueuePlugin
	fwk.QueueSortPlugin
	fwk.EnqueueExtensions
	fwk.PreFilterPlugin
	fwk.FilterPlugin
	fwk.PostFilterPlugin
	fwk.PreScorePlugin
	fwk.ScorePlugin
	fwk.ReservePlugin
	fwk.PermitPlugin
	fwk.PreBindPlugin
	fwk.BindPlugin
	fwk.PostBindPlugin
	fwk.SignPlugin
	fwk.PodGroupPostFilterPlugin
	fwk.PlacementGeneratePlugin
	fwk.PlacementScorePlugin
	Plugin
} = &extensions{}

// methodsOf are the methods of the interface that a guest with any of the
// functions implements. AddPod, RemovePod and the two kinds of normalisation are
// found by a method of another interface.
var methodsOf = []struct {
	functions abi.Mask
	methods   []string
}{
	{abi.MaskOf(abi.PreEnqueue), []string{"PreEnqueue"}},
	{abi.MaskOf(abi.QueueSort), []string{"Less"}},
	{abi.MaskOf(abi.EventsToRegister), []string{"EventsToRegister"}},
	{abi.MaskOf(abi.PreFilter, abi.AddPod, abi.RemovePod), []string{"PreFilter", "PreFilterExtensions"}},
	{abi.MaskOf(abi.Filter), []string{"Filter"}},
	{abi.MaskOf(abi.PostFilter), []string{"PostFilter"}},
	{abi.MaskOf(abi.PreScore), []string{"PreScore"}},
	{abi.MaskOf(abi.Score), []string{"Score", "ScoreExtensions"}},
	{abi.MaskOf(abi.Reserve, abi.Unreserve), []string{"Reserve", "Unreserve"}},
	{abi.MaskOf(abi.Permit), []string{"Permit"}},
	{abi.MaskOf(abi.PreBind, abi.PreBindPreFlight), []string{"PreBind", "PreBindPreFlight"}},
	{abi.MaskOf(abi.Bind), []string{"Bind"}},
	{abi.MaskOf(abi.PostBind), []string{"PostBind"}},
	{abi.MaskOf(abi.SignPod), []string{"SignPod"}},
	{abi.MaskOf(abi.PodGroupPostFilter), []string{"PodGroupPostFilter"}},
	{abi.MaskOf(abi.GeneratePlacements), []string{"GeneratePlacements"}},
	{abi.MaskOf(abi.ScorePlacement), []string{"ScorePlacement", "PlacementScoreExtensions"}},
}

// as returns a value that implements exactly the extension points of mask.
func (p *plugin) as(mask abi.Mask) (Plugin, error) {
	methods := []string{"Name", "Functions", "Swap", "Follow", "Close"}
	for _, m := range methodsOf {
		if mask&m.functions != 0 {
			methods = append(methods, m.methods...)
		}
	}
	v, err := methodset.Restrict(&extensions{p}, func(name string) bool { return slices.Contains(methods, name) })
	if err != nil {
		return nil, err
	}
	return v.(Plugin), nil
}
