//go:build !kube135

package neutral

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	kube "github.com/kubewasm/kubewasm/sched/kube137"
)

func init() {
	exact["PlacementGenerate"] = point{abi.MaskOf(abi.GeneratePlacements), func(p kube.Plugin) fwk.Plugin {
		return struct{ fwk.PlacementGeneratePlugin }{p.(fwk.PlacementGeneratePlugin)}
	}}
	exact["PlacementScore"] = point{abi.MaskOf(abi.ScorePlacement), func(p kube.Plugin) fwk.Plugin {
		return struct{ fwk.PlacementScorePlugin }{p.(fwk.PlacementScorePlugin)}
	}}
}

func signature(ctx context.Context, f framework.Framework, pod *corev1.Pod) string {
	return string(f.SignPod(ctx, pod))
}

func permit(ctx context.Context, f framework.Framework, state fwk.CycleState, pod *corev1.Pod, nodeName string) *fwk.Status {
	_, status := f.RunPermitPlugins(ctx, state, pod, nodeName)
	return status
}

// placements returns how many placements there are, and their scores.
func placements(ctx context.Context, f framework.Framework, state *framework.CycleState, infos []fwk.NodeInfo, others []string) string {
	list, status := f.RunPlacementGeneratePlugins(ctx, state, nil, infos)
	result := fmt.Sprintf("%s %d", text(status), len(list))
	for _, p := range list {
		if slices.Contains(others, "NodeResourcesFit") {
			break // It scores groups, and there is none.
		}
		scores, status := scorePlacement(ctx, f, state, &fwk.PodGroupAssignments{Placement: p})
		result += ", score: " + text(status)
		for _, s := range scores {
			result += fmt.Sprint(s.TotalScore)
		}
	}
	return result
}
