package kube137

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/minors"
	"github.com/kubewasm/kubewasm/sched"
)

// clusterEvents returns the events that a guest registers for, without those that this minor lacks:
// they never happen.
func clusterEvents(events []sched.Event) []fwk.ClusterEventWithHint {
	var list []fwk.ClusterEventWithHint
	for _, e := range events {
		resource, about := resourceOf(e.Resource)
		action := actionsOf(e.Action)
		if resource == "" || action == 0 {
			continue
		}
		list = append(list, clusterEvent(e, fwk.ClusterEvent{Resource: resource, ActionType: action}, about))
	}
	return list
}

// clusterEvent returns an event that a guest registers for.
func clusterEvent(e sched.Event, event fwk.ClusterEvent, about about) fwk.ClusterEventWithHint {
	with := fwk.ClusterEventWithHint{Event: event, QueueingHintFn: queueingHint(e, about)}
	if e.PreHint != nil {
		with.PreQueueingHintFn = func(_ klog.Logger, oldObj, newObj any) (fwk.PreQueueingHintResult, error) {
			pods, all, err := e.PreHint(oldObj, newObj)
			return fwk.PreQueueingHintResult{AllPods: all, Pods: pods}, err
		}
	}
	return with
}

// about reports whether an event about a Pod, changed, may help another, of.
type about func(of, changed *corev1.Pod) bool

// queueingHint returns the function that decides about an event; nil if each may help.
func queueingHint(e sched.Event, about about) fwk.QueueingHintFn {
	if e.Hint == nil && about == nil {
		return nil
	}
	return func(_ klog.Logger, pod *corev1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
		if about != nil {
			if changed := podOf(oldObj, newObj); changed != nil && !about(pod, changed) {
				return fwk.QueueSkip, nil
			}
		}
		if e.Hint == nil {
			return fwk.Queue, nil
		}
		queue, err := e.Hint(pod, oldObj, newObj)
		if queue {
			return fwk.Queue, err
		}
		return fwk.QueueSkip, err
	}
}

// podOf returns the Pod of an event in its present state, or the last one before it was deleted;
// nil if that is not known.
func podOf(oldObj, newObj any) *corev1.Pod {
	for _, obj := range []any{newObj, oldObj} {
		if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = tombstone.Obj
		}
		if pod, ok := obj.(*corev1.Pod); ok && pod != nil {
			return pod
		}
	}
	return nil
}

// resourceOf returns the name of a resource of events, empty if this minor lacks it, and a filter
// for its events; nil for all.
func resourceOf(r abi.EventResource) (fwk.EventResource, about) {
	if !slices.Contains(minors.Of(minor).Resources, r) {
		return "", nil
	}
	return fwk.EventResource(r.String()), nil
}

// actionsOf returns the bits of actions in this minor. The same bit is a different action in
// others.
func actionsOf(set abi.ActionType) (actions fwk.ActionType) {
	for _, a := range actionNames {
		if set&a.of != 0 {
			actions |= a.is
		}
	}
	return actions
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
	{abi.ActionUpdateNodePreemptionPolicy, fwk.UpdateNodePreemptionPolicy},
	{abi.ActionUpdatePodLabel, fwk.UpdatePodLabel},
	{abi.ActionUpdatePodScaleDown, fwk.UpdatePodScaleDown},
	{abi.ActionUpdatePodScaleUp, fwk.UpdatePodScaleUp},
	{abi.ActionUpdatePodToleration, fwk.UpdatePodToleration},
	{abi.ActionUpdatePodSchedulingGatesEliminated, fwk.UpdatePodSchedulingGatesEliminated},
	{abi.ActionUpdatePodGeneratedResourceClaim, fwk.UpdatePodGeneratedResourceClaim},
}
