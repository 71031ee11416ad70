package kube136

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/schedmsg"
	"github.com/kubewasm/kubewasm/internal/minors"
	"github.com/kubewasm/kubewasm/sched"
)

// minor is the minor of Kubernetes.
const minor = "1.36"

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
		fwk.PlacementScorePlugin
	} = base{}
	_ interface {
		fwk.QueueSortPlugin
		fwk.PlacementGeneratePlugin
		fwk.EnqueueExtensions
		fwk.FilterPlugin
		fwk.PostFilterPlugin
		fwk.ScorePlugin
	} = struct {
		base
		queueSort
		placementGenerate
		enqueue
		filter
		postFilter
		score
	}{}
)

// Less compares Pods: groups are not queued in this minor.
func (q queueSort) Less(a, b fwk.QueuedPodInfo) bool {
	return q.base.engine().Less(queued(a), queued(b))
}

// queued returns a Pod in the queue.
func queued(info fwk.QueuedPodInfo) sched.Queued {
	q := sched.Queued{
		Pod: info.GetPodInfo().GetPod(), Timestamp: info.GetTimestamp(), InitialAttemptTimestamp: info.GetInitialAttemptTimestamp(), Attempts: info.GetAttempts(),
	}
	if p := q.Pod.Spec.Priority; p != nil {
		q.Priority = *p
	}
	return q
}

// ScorePlacement has no state of the placement in this minor.
//
//minor:since 1.36
func (b base) ScorePlacement(_ context.Context, state fwk.PodGroupCycleState, group fwk.PodGroupInfo, placement *fwk.PodGroupAssignments) (int64, *fwk.Status) {
	p := b.at(state)
	score, s := p.ScorePlacement(p.cycleAt(abi.ScorePlacement, state, nil), groupOf(group), placed(placement))
	return score, status(s)
}

// groupOf returns a group, of which there is one type in this minor.
//
//minor:since 1.36
func groupOf(g fwk.PodGroupInfo) schedmsg.PodGroup {
	if g == nil {
		return schedmsg.PodGroup{}
	}
	return schedmsg.PodGroup{Type: "podgroup", Namespace: g.GetNamespace(), Name: g.GetName(), Pods: g.GetUnscheduledPods()}
}

// Without is for PodGroupPostFilter, which this minor has not got.
func (h handle) Without([]*corev1.Pod, func()) error {
	return errors.New("the scheduler of Kubernetes " + minor + " cannot change its snapshot")
}

// clusterEvent returns an event that a guest registers for. The scheduler of this minor asks
// about each Pod.
func clusterEvent(e sched.Event, event fwk.ClusterEvent, about about) fwk.ClusterEventWithHint {
	return fwk.ClusterEventWithHint{Event: event, QueueingHintFn: queueingHint(e, about)}
}

// resourceOf returns the name of a resource of events, empty if this minor has not got it, and
// which of its events are meant; nil for all. The events of Pods have one resource here.
func resourceOf(r abi.EventResource) (fwk.EventResource, about) {
	if !slices.Contains(minors.Of(minor).Resources, r) {
		return "", nil
	}
	switch r {
	case abi.EventAssignedPod:
		return fwk.Pod, func(_, changed *corev1.Pod) bool { return changed.Spec.NodeName != "" }
	case abi.EventTargetPod:
		return fwk.Pod, func(of, changed *corev1.Pod) bool { return changed.UID == of.UID }
	case abi.EventUnscheduledPod:
		return fwk.Pod, func(of, changed *corev1.Pod) bool { return changed.Spec.NodeName == "" && changed.UID != of.UID }
	}
	return fwk.EventResource(r.String()), nil
}

// actionNames are the actions of this minor.
var actionNames = []struct {
	of abi.ActionType
	is fwk.ActionType
}{
	{abi.ActionAdd, fwk.Add},
	{abi.ActionDelete, fwk.Delete},
	{abi.ActionUpdateNodeAllocatable, fwk.UpdateNodeAllocatable},
	{abi.ActionUpdateNodeLabel, fwk.UpdateNodeLabel},
	{abi.ActionUpdateNodeTaint, fwk.UpdateNodeTaint},
	{abi.ActionUpdateNodeCondition, fwk.UpdateNodeCondition},
	{abi.ActionUpdateNodeAnnotation, fwk.UpdateNodeAnnotation},
	{abi.ActionUpdateNodeDeclaredFeature, fwk.UpdateNodeDeclaredFeature},
	{abi.ActionUpdatePodLabel, fwk.UpdatePodLabel},
	{abi.ActionUpdatePodScaleDown, fwk.UpdatePodScaleDown},
	{abi.ActionUpdatePodToleration, fwk.UpdatePodToleration},
	{abi.ActionUpdatePodSchedulingGatesEliminated, fwk.UpdatePodSchedulingGatesEliminated},
	{abi.ActionUpdatePodGeneratedResourceClaim, fwk.UpdatePodGeneratedResourceClaim},
}
