package kube135

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/sched"
)

// minor is the minor of Kubernetes.
const minor = "1.35"

// Everything that plugins may implement: the interfaces of base, and those of the types that
// make composed, which are each beside a base.
var (
	_ interface {
		Plugin
		fwk.PreEnqueuePlugin
		fwk.PreFilterPlugin
		fwk.PreScorePlugin
		fwk.ReservePlugin
		fwk.PermitPlugin
		fwk.PreBindPlugin
		fwk.BindPlugin
		fwk.PostBindPlugin
		fwk.SignPlugin
	} = base{}
	_ interface {
		fwk.QueueSortPlugin
		fwk.EnqueueExtensions
		fwk.FilterPlugin
		fwk.PostFilterPlugin
		fwk.ScorePlugin
	} = struct {
		base
		queueSort
		enqueue
		filter
		postFilter
		score
	}{}
)

// PreBindPreFlight has no way to allow parallel calls in this minor.
func (b base) PreBindPreFlight(_ context.Context, state fwk.CycleState, pod *corev1.Pod, nodeName string) *fwk.Status {
	p := b.at(state)
	_, s := p.PreBindPreFlight(p.cycleAt(abi.PreBindPreFlight, state, pod), pod, nodeName)
	return status(s)
}

// waitingPod returns a Pod that waits as the engine takes it.
func waitingPod(w fwk.WaitingPod) sched.WaitingPod { return waiting{w} }

// waiting is a Pod that waits. Its Reject does not know in this minor whether it was too late.
type waiting struct{ fwk.WaitingPod }

func (w waiting) Reject(plugin, msg string) bool {
	w.WaitingPod.Reject(plugin, msg)
	return true
}

// displace ends the wait of a Pod in Permit, and reports whether it has. This minor cannot end a PreBind.
func (h handle) displace(plugin string, victim *corev1.Pod) bool {
	w := h.GetWaitingPod(victim.UID)
	if w != nil {
		w.Reject(plugin, "preempted")
	}
	return w != nil
}
