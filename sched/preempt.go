package sched

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/preemption"
)

// The grants of a guest that names the Pods which may be evicted for another one.
const (
	// GrantPreempt lets a guest name Pods of a lower priority.
	GrantPreempt = "preempt"
	// GrantPreemptAny lets a guest name Pods of any priority below that of system-cluster-critical.
	GrantPreemptAny = "preempt-any"
)

// systemCritical is the priority of the class system-cluster-critical.
const systemCritical = 2_000_000_000

// budgets is the resource of PodDisruptionBudgets.
var budgets = host.ObjectGrant{Resource: "policy/v1/poddisruptionbudgets"}

// mayPreempt returns an error if the guest names victims and may not, and otherwise has the scheduler
// follow the PodDisruptionBudgets.
func (p *Plugin) mayPreempt() (err error) {
	switch {
	case !p.functions.Has(abi.PotentialVictims):
		return nil
	case p.functions.Has(abi.PostFilter):
		return fmt.Errorf("plugin %q: the guest implements both postfilter and potentialvictims, want one of them", p.Name())
	case !slices.Contains(p.args.Grants, GrantPreempt) && !slices.Contains(p.args.Grants, GrantPreemptAny):
		const signature = "(i32, i32) -> ()"
		return &host.ImportError{Plugin: p.Name(), Module: abi.KindScheduler.Module(), Name: "result_victims", Got: signature, Want: signature, Grant: GrantPreempt}
	case p.handle == nil || p.candidate:
		return nil // It preempts nothing.
	}
	p.budgets, err = p.handle.Lister(budgets)
	return err
}

// Preempt is the answer at PostFilter of a plugin that is asked for potential victims. It evicts the
// Pods that find returns for a Pod, by package preemption, and nominates their node.
// It returns them with the nomination.
func (p *Plugin) Preempt(ctx context.Context, pod *corev1.Pod, find func(budgets []*policyv1.PodDisruptionBudget) (node string, victims []*corev1.Pod, err error)) (*Nomination, []*corev1.Pod, *Status) {
	if p.handle == nil {
		return nil, nil, errorStatus(errNoHandle)
	}
	var node string
	var victims []*corev1.Pod
	budgets, err := p.listBudgets()
	if err == nil {
		node, victims, err = find(budgets)
	}
	var refusal *preemption.Refusal
	switch {
	case errors.As(err, &refusal) && !refusal.Pending && !p.monitored:
		return &Nomination{Override: true}, nil, NewStatus(abi.Unschedulable, refusal.Reason)
	case errors.As(err, &refusal):
		return nil, nil, NewStatus(abi.Unschedulable, refusal.Reason)
	case err != nil:
		return nil, nil, p.answer(abi.PotentialVictims, pod, p.failed(abi.PotentialVictims, err, unschedulable), unschedulable)
	}
	attrs := []any{"plugin", p.Name(), "pod", pod.Namespace + "/" + pod.Name, "node", node, "pods", namesOf(victims)}
	if p.monitored {
		p.callLogger.Info("monitored: the plugin would evict Pods for another one", attrs...)
		return nil, nil, unschedulable
	}
	if err := p.handle.Preempt(ctx, p.Name(), pod, node, victims); err != nil {
		return nil, nil, errorStatus(fmt.Errorf("plugin %q: evict Pods: %w", p.Name(), err))
	}
	p.logger.Info("evicts Pods for another one", attrs...)
	return &Nomination{NodeName: node, Override: true}, victims, nil
}

func namesOf(pods []*corev1.Pod) string {
	var names []string
	for _, pod := range pods {
		names = append(names, pod.Namespace+"/"+pod.Name)
	}
	return strings.Join(names, ", ")
}

// listBudgets returns the PodDisruptionBudgets of the cluster.
func (p *Plugin) listBudgets() ([]*policyv1.PodDisruptionBudget, error) {
	if synced, err := p.budgets.Synced(); err != nil || !synced {
		return nil, errors.Join(errors.New("the PodDisruptionBudgets are not known yet"), err)
	}
	list, err := p.budgets.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	found := make([]*policyv1.PodDisruptionBudget, 0, len(list))
	for _, object := range list {
		if b, ok := object.(*policyv1.PodDisruptionBudget); ok {
			found = append(found, b)
		}
	}
	return found, nil
}

// PotentialVictims returns the Pods of a node that the guest allows to evict for the Pod of a cycle,
// which is the clone of a dry run. There are none but with a success.
func (p *Plugin) PotentialVictims(c *Cycle, nodeInfo NodeInfo) ([]*corev1.Pod, *Status) {
	const f = abi.PotentialVictims
	node := nodeInfo.Node()
	if !p.functions.Has(f) || node == nil {
		return nil, nil
	}
	object := p.objects.Node(node)
	var victims []*corev1.Pod
	s := p.inCycle(f, scheduling, c, c.of, unschedulable, call{node: object, info: nodeInfo}, func(i *instance, code uint64) *Status {
		if abi.Code(int32(uint32(code))) == abi.Success {
			victims = i.call.victims
		}
		return nil
	})
	if s != nil {
		return nil, s
	}
	return victims, nil
}

// resultVictims takes the refs of Pods of the node of the call.
func (p *Plugin) resultVictims(inst *host.Instance, c *call, data []byte) {
	if len(data)%8 != 0 {
		inst.Abort(fmt.Errorf("%d bytes are not the refs of Pods", len(data)))
	}
	inst.Keep(len(data) / 8 * int(unsafe.Sizeof((*corev1.Pod)(nil))))
	on := map[abi.Ref]*corev1.Pod{}
	pods := p.framework.AppendPods(nil, c.info)
	for n, object := range p.podsOn(inst, c.node.Ref) {
		on[object.Ref] = pods[n]
	}
	c.victims = make([]*corev1.Pod, 0, len(data)/8)
	for ; len(data) > 0; data = data[8:] {
		ref := abi.Ref(binary.LittleEndian.Uint64(data))
		pod := on[ref]
		if pod == nil {
			inst.Abort(fmt.Errorf("slot %d, version %d is not a Pod of the node, or it is named twice", ref.Slot(), ref.Version()))
		}
		delete(on, ref)
		if err := p.mayEvict(pod, c.of); err != nil {
			inst.Abort(err)
		}
		c.victims = append(c.victims, pod)
	}
}

// mayEvict returns an error if the plugin's grants do not allow to evict a Pod for another one.
func (p *Plugin) mayEvict(victim, of *corev1.Pod) error {
	priority := preemption.Priority(victim)
	if priority < preemption.Priority(of) || priority < systemCritical && slices.Contains(p.args.Grants, GrantPreemptAny) {
		return nil
	}
	return fmt.Errorf("the priority of the Pod %s/%s is %d, that of the Pod to schedule %d, and the configuration does not grant %q for it",
		victim.Namespace, victim.Name, priority, preemption.Priority(of), GrantPreemptAny)
}

// nominatedPods gives the refs of the Pods that are nominated for a node, sorted by namespace and
// name, as 64-bit little-endian numbers.
func (p *Plugin) nominatedPods(inst *host.Instance, stack []uint64) {
	node := nodeOf(inst, abi.Ref(stack[0])).Node()
	refs := p.podRefs(inst, "nominated\x00"+node.GetName(), func() ([]metav1.Object, bool, error) {
		if p.handle == nil || node == nil {
			return nil, true, nil
		}
		var pods []metav1.Object
		for _, pod := range p.handle.Nominated(node.Name) {
			pods = append(pods, pod)
		}
		slices.SortFunc(pods, func(a, b metav1.Object) int {
			return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
		})
		return pods, true, nil
	})
	stack[0] = uint64(inst.Write(uint32(stack[1]), uint32(stack[2]), refs))
}
