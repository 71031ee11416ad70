//go:build kube135

package neutral

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

func signature(ctx context.Context, f framework.Framework, pod *corev1.Pod) string {
	return string(f.SignPod(ctx, pod, false))
}

func permit(ctx context.Context, f framework.Framework, state fwk.CycleState, pod *corev1.Pod, nodeName string) *fwk.Status {
	return f.RunPermitPlugins(ctx, state, pod, nodeName)
}

// placements are none: this minor has no placements.
func placements(context.Context, framework.Framework, *framework.CycleState, []fwk.NodeInfo, []string) string {
	return ""
}
