//go:build !kube135 && !kube136

package neutral

import (
	"context"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	kube "github.com/kubewasm/kubewasm/sched/kube137"
)

func init() {
	exact["PodGroupPostFilter"] = point{abi.MaskOf(abi.PodGroupPostFilter), func(p kube.Plugin) fwk.Plugin {
		return struct{ fwk.PodGroupPostFilterPlugin }{p.(fwk.PodGroupPostFilterPlugin)}
	}}
}

func scorePlacement(ctx context.Context, f framework.Framework, state *framework.CycleState, placement *fwk.PodGroupAssignments) ([]fwk.PlacementPluginScores, *fwk.Status) {
	return f.RunPlacementScorePlugins(ctx, state, nil, []*fwk.PodGroupAssignments{placement}, []fwk.PlacementCycleState{state})
}
