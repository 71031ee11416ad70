package kube137

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
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
		Extend: func(list []*preemption.Candidate) ([]*preemption.Candidate, error) { return p.extend(ctx, pod, list) },
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

// extend returns the candidates that the scheduler's extenders leave. They are asked as its own preemption
// asks them, and may name other victims.
func (p *plugin) extend(ctx context.Context, pod *corev1.Pod, candidates []*preemption.Candidate) ([]*preemption.Candidate, error) {
	left := map[string]*extenderv1.Victims{}
	for _, c := range candidates {
		left[c.Node] = &extenderv1.Victims{Pods: c.Victims, NumPDBViolations: int64(c.Violations)}
	}
	for _, e := range p.handle.Extenders() {
		if len(left) == 0 || !e.SupportsPreemption() || !e.IsInterested(pod) {
			continue
		}
		next, err := e.ProcessPreemption(pod, left, p.handle.SnapshotSharedLister().NodeInfos())
		for node, victims := range next {
			switch {
			case victims != nil && len(victims.Pods) != 0:
			case e.IsIgnorable():
				delete(next, node)
			default:
				err = fmt.Errorf("it names no victim on the node %q", node)
			}
		}
		switch {
		case err == nil:
			left = next
		case e.IsIgnorable():
			klog.FromContext(ctx).Error(err, "Cannot ask an extender that may be ignored for victims", "extender", e.Name(), "pod", klog.KObj(pod))
		default:
			return nil, fmt.Errorf("extender %q: %w", e.Name(), err)
		}
	}
	return slices.DeleteFunc(candidates, func(c *preemption.Candidate) bool {
		victims := left[c.Node]
		if victims != nil {
			c.Victims, c.Violations = victims.Pods, int(victims.NumPDBViolations)
		}
		return victims == nil
	}), nil
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

const (
	// maxEvicting is the number of Pods that evict others in the background, each for at most evictTime.
	maxEvicting = 100
	evictTime   = 2 * time.Minute
	// evictAgain is the time after which a Pod is tried again whose victims were not all evicted.
	evictAgain = time.Second
)

// evictions has the Pods for which others are being evicted, and whether PreEnqueue has held each back:
// another cycle would choose victims again. It outlives the plugin that has chosen them.
type evictions struct {
	mu   sync.Mutex
	pods map[types.UID]bool
}

// begin adds a Pod, and reports whether others may be evicted for it in the background.
func (e *evictions) begin(uid types.UID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := e.pods[uid]; ok || len(e.pods) >= maxEvicting {
		return false
	}
	if e.pods == nil {
		e.pods = map[types.UID]bool{}
	}
	e.pods[uid] = false
	return true
}

// hold reports whether a Pod is to stay out of the queue, and end whether it has.
func (e *evictions) hold(uid types.UID) (held bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, held = e.pods[uid]; held {
		e.pods[uid] = true
	}
	return held
}

func (e *evictions) end(uid types.UID) (held bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	held = e.pods[uid]
	delete(e.pods, uid)
	return held
}

// Preempt evicts the victims after it has returned, as the scheduler's own preemption, unless too many
// Pods do.
func (h handle) Preempt(ctx context.Context, plugin string, pod *corev1.Pod, node string, victims []*corev1.Pod) error {
	ending := func(victim *corev1.Pod) bool { return victim.DeletionTimestamp != nil }
	if victims = slices.DeleteFunc(slices.Clone(victims), ending); len(victims) == 0 {
		return nil
	}
	if !h.evicting.begin(pod.UID) {
		return h.evictAll(ctx, plugin, pod, node, victims)
	}
	go func() {
		ctx := context.WithoutCancel(ctx)
		err := h.evictAll(ctx, plugin, pod, node, victims)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot evict Pods for another one", "plugin", plugin, "pod", klog.KObj(pod), "node", node)
			h.Eventf(pod, nil, corev1.EventTypeWarning, "PreemptionFailed", "Preempting", fmt.Sprintf("plugin %q: evict Pods of node %s: %.500s", plugin, node, err))
			time.Sleep(evictAgain)
		}
		if held := h.evicting.end(pod.UID); held || err != nil {
			h.Activate([]*corev1.Pod{pod}) // It may have missed the end of its victims, or they do not end.
		}
	}()
	return nil
}

// evictAll evicts victims in parallel, the last one when all others are. It stops at the first error.
func (h handle) evictAll(ctx context.Context, plugin string, pod *corev1.Pod, node string, victims []*corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, evictTime)
	defer cancel()
	for _, lower := range h.Nominated(node) {
		if preemption.Priority(lower) < preemption.Priority(pod) {
			if err := h.withoutNomination(ctx, lower); err != nil {
				klog.FromContext(ctx).Error(err, "Cannot take a nomination away", "pod", klog.KObj(lower))
			}
		}
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	evict := func(n int) {
		if err := h.evict(ctx, plugin, pod, node, victims[n]); err != nil {
			fail(fmt.Errorf("the Pod %s/%s: %w", victims[n].Namespace, victims[n].Name, err))
		}
	}
	last := len(victims) - 1
	h.Parallelizer().Until(ctx, last, evict, plugin)
	if ctx.Err() == nil {
		evict(last)
	}
	return context.Cause(ctx)
}

// evict ends a Pod, or its wait, in favour of pod.
func (h handle) evict(ctx context.Context, plugin string, pod *corev1.Pod, node string, victim *corev1.Pod) error {
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
