package framework

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	componentresource "k8s.io/component-helpers/resource"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/preemption"
	"github.com/kubewasm/kubewasm/sched"
)

// Nominated implements sched.Handle.
func (h *Handle) Nominated(node string) []*corev1.Pod { return h.Nominations[node] }

// Preempt implements sched.Handle: the victims leave the snapshot and the informers.
func (h *Handle) Preempt(_ context.Context, _ string, _ *corev1.Pod, node string, victims []*corev1.Pod) error {
	i := slices.IndexFunc(h.Snapshot, func(n *NodeInfo) bool { return n.node.Name == node })
	if i < 0 {
		return fmt.Errorf("no node %q", node)
	}
	n := h.Snapshot[i]
	for _, pod := range victims {
		if err := n.Remove(pod); err != nil {
			return err
		}
		if err := h.Change(corev1.SchemeGroupVersion.WithResource("pods"), pod, nil); err != nil {
			return err
		}
	}
	requested := corev1.ResourceList{}
	for _, on := range n.Pods {
		sum(requested, componentresource.PodRequests(on, componentresource.PodResourcesOptions{}))
	}
	n.Requested = resourceOf(requested)
	return nil
}

// MakeRoom has a plugin make room for a Pod on one of the nodes, whose only other plugin is the
// scheduler's check of resources. The cycle is that of the Pod.
func (h *Handle) MakeRoom(p *sched.Plugin, c *sched.Cycle, pod *corev1.Pod, nodes Nodes) (*sched.Nomination, []*corev1.Pod, *sched.Status) {
	q := h.Preemption(pod, nodes, func(n *NodeInfo) (*preemption.DryRun, error) { return dryRun(p, c.Clone(), pod, n.Copy()), nil })
	return p.Preempt(context.Background(), pod, func(budgets []*policyv1.PodDisruptionBudget) (string, []*corev1.Pod, error) {
		q.Budgets = budgets
		return q.Find(context.Background())
	})
}

// Preemption returns the search for room for a Pod on the nodes, of each of which run makes a dry run.
func (h *Handle) Preemption(pod *corev1.Pod, nodes Nodes, run func(*NodeInfo) (*preemption.DryRun, error)) preemption.Preemption {
	q := preemption.Preemption{
		Pod: pod, Nodes: len(nodes),
		DryRun:   func(n int) (*preemption.DryRun, error) { return run(nodes[n]) },
		Parallel: func(pieces int, work func(int)) { h.Parallel(pieces, "", work) },
	}
	if n, ok := h.Node(pod.Status.NominatedNodeName).(*NodeInfo); ok {
		q.Nominated = func() (*preemption.DryRun, error) { return run(n) }
	}
	return q
}

// Copy returns a copy of a node that changes apart from it.
func (n *NodeInfo) Copy() *NodeInfo {
	clone := *n
	clone.Pods = slices.Clone(n.Pods)
	return &clone
}

func dryRun(p *sched.Plugin, c *sched.Cycle, pod *corev1.Pod, n *NodeInfo) *preemption.DryRun {
	return &preemption.DryRun{
		Node: n.node.Name,
		Potential: func() ([]*corev1.Pod, error) {
			victims, s := p.PotentialVictims(c, n)
			if s.Code() == abi.Error {
				return nil, s.AsError()
			}
			return victims, nil
		},
		Remove: func(victim *corev1.Pod) error {
			if err := n.Remove(victim); err != nil {
				return err
			}
			return p.RemovePod(c, victim, n).AsError()
		},
		Add: func(victim *corev1.Pod) error {
			n.Add(victim)
			return p.AddPod(c, victim, n).AsError()
		},
		Fits: func() (bool, []string, error) {
			if lacks := n.Lacks(pod); lacks != nil {
				return false, lacks, nil
			}
			s := p.Filter(c, n)
			if s.Code() == abi.Error {
				return false, nil, s.AsError()
			}
			return s == nil, s.Reasons(), nil
		},
	}
}

// Lacks returns the reasons for which a Pod does not fit beside those on the node, as the scheduler's
// check of resources does. It counts the Pods, whatever Requested is.
func (n *NodeInfo) Lacks(pod *corev1.Pod) (reasons []string) {
	requested := corev1.ResourceList{}
	for _, on := range n.Pods {
		sum(requested, componentresource.PodRequests(on, componentresource.PodResourcesOptions{}))
	}
	if pods, ok := n.node.Status.Allocatable[corev1.ResourcePods]; ok && int64(len(n.Pods)) >= pods.Value() {
		reasons = append(reasons, "Too many pods")
	}
	for name, quantity := range componentresource.PodRequests(pod, componentresource.PodResourcesOptions{}) {
		free := n.node.Status.Allocatable[name].DeepCopy()
		free.Sub(requested[name])
		if !quantity.IsZero() && quantity.Cmp(free) > 0 {
			reasons = append(reasons, "Insufficient "+string(name))
		}
	}
	slices.Sort(reasons)
	return reasons
}
