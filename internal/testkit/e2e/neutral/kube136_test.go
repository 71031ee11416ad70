//go:build kube136

package neutral

import (
	"context"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

func scorePlacement(ctx context.Context, f framework.Framework, state *framework.CycleState, placement *fwk.PodGroupAssignments) ([]fwk.PlacementPluginScores, *fwk.Status) {
	return f.RunPlacementScorePlugins(ctx, state, nil, []*fwk.PodGroupAssignments{placement})
}
