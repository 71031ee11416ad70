package sched

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/abi"
)

// The extension points from the choice of a node to the binding. Reserve and Permit belong to the
// scheduling cycle; later ones run in parallel with the scheduling cycles of other Pods. pod may be
// a copy of the cycle's.

// Reserve tells the guest that the Pod is to run on a node.
func (p *Plugin) Reserve(c *Cycle, pod *corev1.Pod, nodeName string) *Status {
	if !p.Asks(abi.Reserve) || !p.functions.Has(abi.Reserve) && !p.peer && !p.carries() {
		return nil
	}
	if p.settle(c); !p.functions.Has(abi.Reserve) {
		return nil
	}
	defer c.stage.Store(hasNode)
	object := p.objects.Pod(pod)
	s := p.runStep(c, step{function: abi.Reserve, pod: object, of: pod, nodeName: nodeName}, nil)
	return p.refuses(c, p.answer(abi.Reserve, pod, s, nil))
}

// Unreserve tells the guest that the Pod is not bound to the node after all, which ends the cycle.
// A failure is logged.
func (p *Plugin) Unreserve(c *Cycle, pod *corev1.Pod, nodeName string) {
	if c != nil && c.waited.Load() && p.handle != nil && !p.candidate {
		for _, after := range nominationChecks {
			time.AfterFunc(after, func() { p.freeNomination(pod) })
		}
	}
	p.notify(abi.Unreserve, c, pod, nodeName)
}

// nominationChecks are the times after which a Pod that has lost its node is looked at.
var nominationChecks = [...]time.Duration{time.Second, 10 * time.Second}

// freeNomination has a Pod tried again that has lost the node for which it waited in Permit and is
// still nominated for it: kube-scheduler may have rejected it before it knew that it had nominated it,
// and keeps the room for it until it is tried (docs/upstream.md, Kubernetes, 2).
func (p *Plugin) freeNomination(pod *corev1.Pod) {
	select {
	case <-p.closed:
		return
	default:
	}
	if now := p.handle.Pending(pod); now != nil && now.UID == pod.UID && now.Status.NominatedNodeName != "" {
		p.handle.Activate([]*corev1.Pod{now})
	}
}

// notify runs a function without a result that ends a cycle.
func (p *Plugin) notify(f abi.Function, c *Cycle, pod *corev1.Pod, nodeName string) {
	if !p.Asks(f) {
		return
	}
	defer p.endBinding(c)
	if !p.functions.Has(f) {
		return
	}
	if err := p.notice(c, f, pod, nodeName); err != nil {
		p.callLogger.Error("call failed", "plugin", p.guest.Name(), "function", f.String(), "pod", pod.Namespace+"/"+pod.Name, "err", err)
	}
}

func (p *Plugin) notice(c *Cycle, f abi.Function, pod *corev1.Pod, nodeName string) error {
	object := p.objects.Pod(pod)
	if first := c.life.first(); first != nil && replayed.Has(first.function) {
		p.skipped(f)
		return nil // It does not know the Pod, or would fail again.
	}
	h := c.history.Load()
	inst, i, err := p.acquire(&c.binding, c, h, len(h.steps), binding)
	if err != nil {
		return err
	}
	defer p.leave(inst, i)
	i.call = call{pod: object, of: pod, nodeName: nodeName}
	_, err = p.invoke(&c.binding, inst, i, f, uint64(h.ref), uint64(object.Ref))
	return err
}

// Permit asks whether the Pod may be bound, and returns the maximum wait if it is to wait.
func (p *Plugin) Permit(c *Cycle, pod *corev1.Pod, nodeName string) (*Status, time.Duration) {
	if !p.functions.Has(abi.Permit) {
		return nil, 0
	}
	var timeout time.Duration
	status := p.inCycle(abi.Permit, scheduling, c, pod, nil, call{nodeName: nodeName}, func(_ *instance, packed uint64) *Status {
		ms, _ := abi.Unpack[abi.Code](packed)
		timeout = time.Duration(ms) * time.Millisecond
		return nil
	})
	if status = p.answer(abi.Permit, pod, status, nil); status.Code() != abi.Wait {
		timeout = 0
	}
	c.waited.Store(status.Code() == abi.Wait)
	return p.refuses(c, status), timeout
}

// PreBindPreFlight returns Skip if PreBind has nothing to do for the Pod, and reports whether
// PreBind may run in parallel with that of other plugins. A guest that has only PreBind handles
// every Pod, one after the other.
func (p *Plugin) PreBindPreFlight(c *Cycle, pod *corev1.Pod, nodeName string) (parallel bool, _ *Status) {
	switch {
	case !p.Asks(abi.PreBind):
		return true, skip
	case !p.functions.Has(abi.PreBindPreFlight):
		return false, nil
	}
	status := p.inCycle(abi.PreBindPreFlight, binding, c, pod, nil, call{nodeName: nodeName}, func(_ *instance, packed uint64) *Status {
		answer, code := abi.Unpack[abi.Code](packed)
		parallel = answer != 0 && code == abi.Success
		return nil
	})
	return parallel || p.monitored, p.answer(abi.PreBindPreFlight, pod, status, nil)
}

// PreBind asks the guest to prepare the node. It waits for objects if the guest does, until ctx ends.
func (p *Plugin) PreBind(ctx context.Context, c *Cycle, pod *corev1.Pod, nodeName string) *Status {
	if !p.functions.Has(abi.PreBind) {
		return nil
	}
	s := p.awaitChanges(ctx, func() (s *Status, objects []awaitedObject, most time.Duration) {
		s = p.inCycle(abi.PreBind, binding, c, pod, nil, call{nodeName: nodeName}, func(i *instance, _ uint64) *Status {
			objects, most = i.call.awaited, i.call.awaitFor
			return nil
		})
		return s, objects, most
	})
	return p.answer(abi.PreBind, pod, s, nil)
}

// Bind asks the guest to bind the Pod. Skip leaves the Pod to the next plugin. It is also the
// answer of a guest whose failure is ignored.
func (p *Plugin) Bind(c *Cycle, pod *corev1.Pod, nodeName string) *Status {
	if !p.functions.Has(abi.Bind) {
		return skip
	}
	s := p.inCycle(abi.Bind, binding, c, pod, skip, call{nodeName: nodeName}, nil)
	return p.answer(abi.Bind, pod, s, skip)
}

// PostBind tells the guest that the Pod is bound, which ends the cycle. A failure is logged.
func (p *Plugin) PostBind(c *Cycle, pod *corev1.Pod, nodeName string) {
	p.notify(abi.PostBind, c, pod, nodeName)
}
