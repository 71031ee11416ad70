package sched

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
)

// The extension points from the choice of a node to the binding. Reserve and
// Permit belong to the scheduling cycle; what comes after them runs in parallel with the
// scheduling cycles of other Pods.

// Reserve implements fwk.ReservePlugin.
func (e *extensions) Reserve(_ context.Context, state fwk.CycleState, pod *corev1.Pod, nodeName string) *fwk.Status {
	p := e.plugin
	if !p.functions.Has(abi.Reserve) && !p.peer {
		return nil
	}
	c := p.cycleOf(state, pod)
	if p.settle(c); !p.functions.Has(abi.Reserve) {
		return nil
	}
	object := p.objects.Pod(pod)
	return p.runStep(c, step{function: abi.Reserve, pod: object, of: pod, nodeName: nodeName}, nil)
}

// Unreserve implements fwk.ReservePlugin. It cannot return a failure, which
// is logged.
func (e *extensions) Unreserve(_ context.Context, state fwk.CycleState, pod *corev1.Pod, nodeName string) {
	e.plugin.notify(abi.Unreserve, state, pod, nodeName)
}

// notify runs a function without a result, with which a cycle is over.
func (p *plugin) notify(f abi.Function, state fwk.CycleState, pod *corev1.Pod, nodeName string) {
	defer p.endBinding(state, pod)
	if !p.functions.Has(f) {
		return
	}
	if err := p.tell(p.cycleOf(state, pod), f, pod, nodeName); err != nil {
		p.logger.Error("call failed", "plugin", p.guest.Name(), "function", f.String(), "pod", pod.Namespace+"/"+pod.Name, "err", err)
	}
}

func (p *plugin) tell(c *cycle, f abi.Function, pod *corev1.Pod, nodeName string) error {
	object := p.objects.Pod(pod)
	inst, i, ref, err := p.enter(c, binding)
	if err != nil {
		return err
	}
	defer p.leave(inst, i)
	i.call = call{pod: object, of: pod, nodeName: nodeName}
	_, err = p.invoke(inst, i, f, uint64(ref), uint64(object.Ref))
	return err
}

// Permit implements fwk.PermitPlugin.
func (e *extensions) Permit(_ context.Context, state fwk.CycleState, pod *corev1.Pod, nodeName string) (*fwk.Status, time.Duration) {
	var timeout time.Duration
	status := e.plugin.inCycle(abi.Permit, scheduling, state, pod, nil, call{nodeName: nodeName}, func(_ *instance, packed uint64) *fwk.Status {
		ms, _ := abi.Unpack(packed)
		timeout = time.Duration(ms) * time.Millisecond
		return nil
	})
	if !status.IsWait() {
		timeout = 0
	}
	return status, timeout
}

// PreBindPreFlight implements fwk.PreBindPlugin. A guest that has no function
// for it handles every Pod, one after the other.
func (e *extensions) PreBindPreFlight(_ context.Context, state fwk.CycleState, pod *corev1.Pod, nodeName string) (*fwk.PreBindPreFlightResult, *fwk.Status) {
	if !e.plugin.functions.Has(abi.PreBindPreFlight) {
		return nil, nil
	}
	var result *fwk.PreBindPreFlightResult
	status := e.plugin.inCycle(abi.PreBindPreFlight, binding, state, pod, nil, call{nodeName: nodeName}, func(_ *instance, packed uint64) *fwk.Status {
		parallel, code := abi.Unpack(packed)
		if abi.Code(int32(code)) == abi.Success {
			result = &fwk.PreBindPreFlightResult{AllowParallel: parallel != 0}
		}
		return nil
	})
	return result, status
}

// PreBind implements fwk.PreBindPlugin.
func (e *extensions) PreBind(_ context.Context, state fwk.CycleState, pod *corev1.Pod, nodeName string) *fwk.Status {
	if !e.plugin.functions.Has(abi.PreBind) {
		return nil
	}
	return e.plugin.inCycle(abi.PreBind, binding, state, pod, nil, call{nodeName: nodeName}, nil)
}

// Bind implements fwk.BindPlugin. A guest whose failure is ignored leaves the Pod
// to the next plugin.
func (e *extensions) Bind(_ context.Context, state fwk.CycleState, pod *corev1.Pod, nodeName string) *fwk.Status {
	return e.plugin.inCycle(abi.Bind, binding, state, pod, fwk.NewStatus(fwk.Skip), call{nodeName: nodeName}, nil)
}

// PostBind implements fwk.PostBindPlugin. A failure is logged.
func (e *extensions) PostBind(_ context.Context, state fwk.CycleState, pod *corev1.Pod, nodeName string) {
	e.plugin.notify(abi.PostBind, state, pod, nodeName)
}
