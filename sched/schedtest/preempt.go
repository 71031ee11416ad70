package schedtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
	"github.com/kubewasm/kubewasm/internal/framework"
	"github.com/kubewasm/kubewasm/internal/harness"
	"github.com/kubewasm/kubewasm/internal/preemption"
)

// Preempt has the plugin's PotentialVictims make room for the Pod on nodes of [Plugin.In], all of them
// without names. It returns the best node, and its victims as "namespace/name", the most important
// first. The victims leave the node, and with it the objects of In. The only other filter is the
// scheduler's check of resources. PodDisruptionBudgets of In, with their status, are kept if possible.
func (c *Cycle) Preempt(t testing.TB, nodes ...string) (node string, victims []string, _ *sched.Status) {
	t.Helper()
	var infos framework.Nodes
	for _, n := range c.r.world.Snapshot {
		if len(nodes) == 0 || slices.Contains(nodes, n.Node().Name) {
			infos = append(infos, n)
		}
	}
	var pods []*corev1.Pod
	var status *sched.Status
	if c.r.native != nil {
		node, pods, status = c.preempt(t, infos)
	} else {
		p := c.r.having(t, "PotentialVictims", abi.PotentialVictims)
		nomination, evicted, s := c.r.world.MakeRoom(p, c.hosted, c.of, infos)
		if nomination != nil {
			node = nomination.NodeName
		}
		pods, status = evicted, statusOf(t, s)
	}
	for _, pod := range pods {
		victims = append(victims, pod.Namespace+"/"+pod.Name)
	}
	return node, victims, status
}

// preempt is Preempt for a native plugin.
func (c *Cycle) preempt(t testing.TB, nodes framework.Nodes) (string, []*corev1.Pod, *sched.Status) {
	t.Helper()
	q := c.r.world.Preemption(c.of, nodes, func(n *framework.NodeInfo) (*preemption.DryRun, error) { return c.dryRun(t, n.Copy()) })
	q.Parallel = func(pieces int, work func(piece int)) { // A native plugin has one host, which serves one call at a time.
		for n := range pieces {
			work(n)
		}
	}
	for _, o := range c.r.world.Informers[policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets")].List() {
		q.Budgets = append(q.Budgets, o.(*policyv1.PodDisruptionBudget))
	}
	node, victims, err := q.Find(context.Background())
	var refusal *preemption.Refusal
	switch {
	case errors.As(err, &refusal):
		return "", nil, sched.Unschedulable(refusal.Reason)
	case err != nil:
		return "", nil, sched.AsStatus(err)
	}
	if err := c.r.world.Handle.Preempt(context.Background(), nativeName, c.of, node, victims); err != nil {
		t.Fatal(err)
	}
	return node, victims, nil
}

// dryRun is a dry run of a native plugin.
func (c *Cycle) dryRun(t testing.TB, n *framework.NodeInfo) (*preemption.DryRun, error) {
	t.Helper()
	state, ok := c.state.Clone()
	if !ok {
		return nil, errors.New("the state of the cycle cannot be cloned: a value in it has no method Clone() sched.StateData")
	}
	plugin := c.r.native.Plugin
	// call calls the plugin with the node as it is now.
	call := func(f func(info sched.NodeInfo) *sched.Status) *sched.Status {
		defer c.r.enter(false)()
		end := c.r.world.trial(n)
		defer end()
		info, _ := sched.SnapshotNode(n.Node().Name)
		return c.r.settle(f(info))
	}
	change := func(victim *corev1.Pod, of func(sched.PreFilterExtensions, sched.CycleState, core.Pod, core.Pod, sched.NodeInfo) *sched.Status) error {
		p, ok := plugin.(sched.PreFilterExtensions)
		if !ok {
			return nil
		}
		return asError(call(func(info sched.NodeInfo) *sched.Status { return of(p, state, c.pod, harness.PodView(t, victim), info) }))
	}
	return &preemption.DryRun{
		Node: n.Node().Name,
		Potential: func() ([]*corev1.Pod, error) {
			var victims []core.Pod
			s := call(func(info sched.NodeInfo) (s *sched.Status) {
				victims, s = harness.As[sched.PreemptionPlugin](t, plugin, "PotentialVictims").PotentialVictims(state, c.pod, info)
				return s
			})
			switch s.Code() {
			case abi.Success:
				return podsOf(victims, n.Pods)
			case abi.Unschedulable, abi.UnschedulableAndUnresolvable:
				return nil, nil
			}
			return nil, asError(s)
		},
		Remove: func(victim *corev1.Pod) error {
			if err := n.Remove(victim); err != nil {
				return err
			}
			return change(victim, sched.PreFilterExtensions.RemovePod)
		},
		Add: func(victim *corev1.Pod) error {
			n.Add(victim)
			return change(victim, sched.PreFilterExtensions.AddPod)
		},
		Fits: func() (bool, []string, error) {
			if lacks := n.Lacks(c.of); lacks != nil {
				return false, lacks, nil
			}
			p, ok := plugin.(sched.FilterPlugin)
			if !ok || c.Status.Code() == abi.Skip {
				return true, nil, nil
			}
			s := call(func(info sched.NodeInfo) *sched.Status { return p.Filter(state, c.pod, info) })
			if s.Code() == abi.Error {
				return false, nil, asError(s)
			}
			return s.IsSuccess(), []string{s.Reason()}, nil
		},
	}, nil
}

func asError(s *sched.Status) error {
	if s.IsSuccess() {
		return nil
	}
	return errors.New(s.String())
}

// podsOf returns the Pods of views, which are among those of a node.
func podsOf(views []core.Pod, on []*corev1.Pod) (pods []*corev1.Pod, _ error) {
	for _, v := range views {
		m := v.Metadata()
		i := slices.IndexFunc(on, func(pod *corev1.Pod) bool {
			return pod.UID == types.UID(m.UID()) && pod.Name == m.Name() && pod.Namespace == m.Namespace()
		})
		if i < 0 || slices.Contains(pods, on[i]) {
			return nil, fmt.Errorf("%s/%s is not a Pod of the node, or it is named twice", m.Namespace(), m.Name())
		}
		pods = append(pods, on[i])
	}
	return pods, nil
}
