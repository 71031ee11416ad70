package kube137

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/preemption"
)

// preempt makes room for a Pod on a node where the guest names Pods that may be evicted.
func (p *plugin) preempt(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	if p.handle == nil {
		return nil, fwk.NewStatus(fwk.Error, "the plugin was loaded without a scheduler")
	}
	p.cycle(state, pod) // The clones of the state have it.
	infos := p.handle.SnapshotSharedLister().NodeInfos()
	list, err := statuses.NodesForStatusCode(infos, fwk.Unschedulable)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	if pod, err = p.handle.SharedInformerFactory().Core().V1().Pods().Lister().Pods(pod.Namespace).Get(pod.Name); err != nil {
		return nil, fwk.AsStatus(err)
	}
	q := preemption.Preemption{
		Pod:    pod,
		Nodes:  len(list),
		DryRun: func(n int) (*preemption.DryRun, error) { return p.dryRun(ctx, state, pod, list[n]), nil },
		Parallel: func(pieces int, work func(int)) {
			p.handle.Parallelizer().Until(ctx, pieces, work, p.Name())
		},
	}
	if name := pod.Status.NominatedNodeName; name != "" && statuses.Get(name).Code() != fwk.UnschedulableAndUnresolvable {
		q.Nominated = func() (*preemption.DryRun, error) {
			info, err := infos.Get(name)
			if err != nil {
				return nil, nil // The node is gone.
			}
			return p.dryRun(ctx, state, pod, info), nil
		}
	}
	nomination, _, s := p.Preempt(ctx, pod, func(budgets []*policyv1.PodDisruptionBudget) (string, []*corev1.Pod, error) {
		q.Budgets = budgets
		return q.Find(ctx)
	})
	return postFilterResult(nomination), status(s)
}

// dryRun returns a copy of a node and of the state of a cycle.
func (p *plugin) dryRun(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, info fwk.NodeInfo) *preemption.DryRun {
	logger := klog.FromContext(ctx)
	state, info = state.Clone(), info.Snapshot()
	infos := map[types.UID]fwk.PodInfo{}
	for _, on := range info.GetPods() {
		infos[on.GetPod().UID] = on
	}
	return &preemption.DryRun{
		Node: info.Node().Name,
		Potential: func() ([]*corev1.Pod, error) {
			victims, s := p.PotentialVictims(p.cycle(state, pod), info)
			if s.Code() == abi.Error {
				return nil, s.AsError()
			}
			return victims, nil
		},
		Remove: func(victim *corev1.Pod) error {
			if err := info.RemovePod(logger, victim); err != nil {
				return err
			}
			return p.handle.RunPreFilterExtensionRemovePod(ctx, state, pod, infos[victim.UID], info).AsError()
		},
		Add: func(victim *corev1.Pod) error {
			info.AddPodInfo(infos[victim.UID])
			return p.handle.RunPreFilterExtensionAddPod(ctx, state, pod, infos[victim.UID], info).AsError()
		},
		Fits: func() (bool, []string, error) {
			s := p.handle.RunFilterPluginsWithNominatedPods(ctx, state, pod, info)
			switch s.Code() {
			case fwk.Success:
				return true, nil, nil
			case fwk.Error:
				return false, nil, s.AsError()
			}
			return false, s.Reasons(), nil
		},
	}
}

func (h handle) Nominated(node string) (pods []*corev1.Pod) {
	for _, info := range h.NominatedPodsForNode(node) {
		pods = append(pods, info.GetPod())
	}
	return pods
}

func (h handle) Preempt(ctx context.Context, plugin string, pod *corev1.Pod, node string, victims []*corev1.Pod) error {
	var mu sync.Mutex
	var errs []error
	h.Parallelizer().Until(ctx, len(victims), func(n int) {
		if err := h.evict(ctx, plugin, pod, node, victims[n]); err != nil {
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, fmt.Errorf("the Pod %s/%s: %w", victims[n].Namespace, victims[n].Name, err))
		}
	}, plugin)
	if len(errs) != 0 {
		return errors.Join(errs...)
	}
	for _, lower := range h.Nominated(node) {
		if preemption.Priority(lower) < preemption.Priority(pod) {
			if err := h.withoutNomination(ctx, lower); err != nil {
				klog.FromContext(ctx).Error(err, "Cannot take a nomination away", "pod", klog.KObj(lower))
			}
		}
	}
	return nil
}

// evict ends a Pod, or its wait, in favour of pod.
func (h handle) evict(ctx context.Context, plugin string, pod *corev1.Pod, node string, victim *corev1.Pod) error {
	if victim.DeletionTimestamp != nil {
		return nil
	}
	note := fmt.Sprintf("Preempted by pod %v on node %v", pod.UID, node)
	if h.displace(plugin, victim) {
		note += " (in kube-scheduler memory)."
	} else {
		condition := corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler,
			Message:            pod.Spec.SchedulerName + ": preempting to accommodate a higher priority pod",
			LastTransitionTime: metav1.Now(), ObservedGeneration: victim.Generation,
		}
		err := h.patchStatus(ctx, victim, map[string]any{"conditions": []corev1.PodCondition{condition}})
		if err == nil {
			uid := victim.UID
			err = h.ClientSet().CoreV1().Pods(victim.Namespace).Delete(ctx, victim.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		}
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // It is gone, and there may be another one of its name.
			return nil
		}
		if err != nil {
			return err
		}
	}
	h.Eventf(victim, pod, corev1.EventTypeNormal, "Preempted", "Preempting", note)
	return nil
}

// displace ends the binding of a Pod that is not bound yet, and reports whether it has.
//
//minor:since 1.36
func (h handle) displace(plugin string, victim *corev1.Pod) bool {
	if waiting := h.GetWaitingPod(victim.UID); waiting != nil {
		return waiting.Preempt(plugin, "preempted")
	}
	binding := h.GetPodInPreBind(victim.UID)
	return binding != nil && binding.CancelPod("preempted by "+plugin)
}

func (h handle) withoutNomination(ctx context.Context, pod *corev1.Pod) error {
	if calls := h.APICacher(); calls != nil {
		_, err := calls.PatchPodStatus(pod, nil, &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride})
		return err
	}
	if pod.Status.NominatedNodeName == "" {
		return nil
	}
	return h.patchStatus(ctx, pod, map[string]any{"nominatedNodeName": nil})
}

// patchStatus changes fields of the status of a Pod.
func (h handle) patchStatus(ctx context.Context, pod *corev1.Pod, status map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return err
	}
	return retry.OnError(retry.DefaultBackoff, retriable, func() error {
		_, err := h.ClientSet().CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		return err
	})
}

// retriable reports whether a call may succeed a moment later.
func retriable(err error) bool {
	return apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err)
}
