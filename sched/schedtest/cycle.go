package schedtest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/schedmsg"
	"github.com/kubewasm/kubewasm/internal/harness"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
	"github.com/kubewasm/kubewasm/internal/framework"
	adapter "github.com/kubewasm/kubewasm/sched"
)

// PreEnqueue asks whether the Pod in manifest may enter the queue.
func (s *Plugin) PreEnqueue(t testing.TB, manifest string) *sched.Status {
	t.Helper()
	r := s.run(t)
	defer r.enter(true)()
	if r.native != nil {
		return r.settle(harness.As[sched.PreEnqueuePlugin](t, r.native.Plugin, "PreEnqueue").PreEnqueue(Pod(t, manifest)))
	}
	return statusOf(t, r.having(t, "PreEnqueue", abi.PreEnqueue).PreEnqueue(harness.ReadPod(t, manifest)))
}

// AddPod asks the plugin to evaluate a node with another Pod (preemption dry run). Both are a
// manifest, or the name of an object of [Plugin.In]: "shop/web" for a Pod, "web" for one in the
// namespace default. The cycle goes on in that state.
func (c *Cycle) AddPod(t testing.TB, pod, node string) *sched.Status {
	t.Helper()
	return c.change(t, "AddPod", pod, node, sched.PreFilterExtensions.AddPod, (*adapter.Plugin).AddPod)
}

// RemovePod is AddPod for the removal of a Pod from a node.
func (c *Cycle) RemovePod(t testing.TB, pod, node string) *sched.Status {
	t.Helper()
	return c.change(t, "RemovePod", pod, node, sched.PreFilterExtensions.RemovePod, (*adapter.Plugin).RemovePod)
}

// Clone returns a copy of the cycle, as the scheduler makes it for a dry run: changes of the one by
// AddPod and RemovePod are not seen by the other. In a native test the state of the cycle must be
// one that can be cloned, see [sched.StateData].
func (c *Cycle) Clone(t testing.TB) *Cycle {
	t.Helper()
	clone := *c
	if c.hosted != nil {
		clone.hosted = c.hosted.Clone()
		return &clone
	}
	state, ok := c.state.Clone()
	if !ok {
		t.Fatal("the state of the cycle cannot be cloned: a value in it has no method Clone() sched.StateData")
	}
	clone.state = state
	return &clone
}

func (c *Cycle) change(t testing.TB, name, pod, node string,
	native func(sched.PreFilterExtensions, sched.CycleState, core.Pod, core.Pod, sched.NodeInfo) *sched.Status,
	hosted func(*adapter.Plugin, *adapter.Cycle, *corev1.Pod, adapter.NodeInfo) *adapter.Status,
) *sched.Status {
	t.Helper()
	other := c.r.podOf(t, pod)
	defer c.r.enter(false)()
	if n := c.r.native; n != nil {
		return c.r.settle(native(harness.As[sched.PreFilterExtensions](t, n.Plugin, name), c.state, c.pod, harness.PodView(t, other), c.r.nativeNode(t, node)))
	}
	return statusOf(t, hosted(c.r.having(t, name, abi.AddPod, abi.RemovePod), c.hosted, other, c.r.hostedNode(t, node)))
}

// PostFilter tells the plugin that the Pod fits on no node, with the status of each node; a node
// that is not among statuses was not examined.
func (c *Cycle) PostFilter(t testing.TB, statuses ...sched.NodeStatus) (*sched.PostFilterResult, *sched.Status) {
	t.Helper()
	defer c.r.enter(false)()
	if n := c.r.native; n != nil {
		sorted := slices.SortedFunc(slices.Values(statuses), func(a, b sched.NodeStatus) int { return strings.Compare(a.NodeName, b.NodeName) })
		result, status := harness.As[sched.PostFilterPlugin](t, n.Plugin, "PostFilter").PostFilter(c.state, c.pod, sched.NewNodeToStatus(sorted...))
		return result, c.r.settle(status)
	}
	result, status := c.r.having(t, "PostFilter", abi.PostFilter).PostFilter(c.hosted, func() (list []schedmsg.NodeStatus) {
		for _, n := range statuses {
			list = append(list, schedmsg.NodeStatus{NodeName: n.NodeName, Code: n.Status.Code(), Message: n.Status.Reason()})
		}
		return list
	})
	if result == nil || !result.Override {
		return nil, statusOf(t, status)
	}
	return &sched.PostFilterResult{NominatedNodeName: result.NodeName}, statusOf(t, status)
}

// PreScore tells the plugin of nodes, manifests or names as in Filter: those that
// passed it.
func (c *Cycle) PreScore(t testing.TB, nodes ...string) *sched.Status {
	t.Helper()
	if n := c.r.native; n != nil {
		infos, names := c.r.nativeNodes(t, nodes)
		defer c.r.enter(false, names...)()
		return c.r.settle(harness.As[sched.PreScorePlugin](t, n.Plugin, "PreScore").PreScore(c.state, c.pod, sched.NewNodeInfos(infos...)))
	}
	infos := make(framework.Nodes, len(nodes))
	for i, node := range nodes {
		infos[i] = c.r.hostedNode(t, node)
	}
	return statusOf(t, c.r.having(t, "PreScore", abi.PreScore).PreScore(c.hosted, infos))
}

// nativeNodes returns nodes for a native plugin, and their names.
func (r *running) nativeNodes(t testing.TB, nodes []string) (infos []sched.NodeInfo, names []string) {
	t.Helper()
	defer r.enter(false)()
	for _, node := range nodes {
		n := r.nativeNode(t, node)
		infos, names = append(infos, n), append(names, n.Node().Metadata().Name())
	}
	return infos, names
}

// Reserve asks the plugin to reserve its resources for the Pod on a node.
func (c *Cycle) Reserve(t testing.TB, nodeName string) *sched.Status {
	t.Helper()
	defer c.r.enter(false)()
	if n := c.r.native; n != nil {
		return c.r.settle(harness.As[sched.ReservePlugin](t, n.Plugin, "Reserve").Reserve(c.state, c.pod, nodeName))
	}
	return statusOf(t, c.r.having(t, "Reserve", abi.Reserve, abi.Unreserve).Reserve(c.hosted, c.of, nodeName))
}

// Unreserve tells the plugin that the Pod is not bound to the node after all.
func (c *Cycle) Unreserve(t testing.TB, nodeName string) {
	t.Helper()
	defer c.r.enter(true)()
	if n := c.r.native; n != nil {
		harness.As[sched.ReservePlugin](t, n.Plugin, "Reserve").Unreserve(c.state, c.pod, nodeName)
		c.r.settle(nil)
		return
	}
	c.r.having(t, "Reserve", abi.Reserve, abi.Unreserve).Unreserve(c.hosted, c.of, nodeName)
}

// Permit asks whether the Pod may be bound to the node; the duration is the maximum wait, if it is
// to wait. From then on it is among the waiting Pods, until a later call allows or rejects it.
func (c *Cycle) Permit(t testing.TB, nodeName string) (*sched.Status, time.Duration) {
	t.Helper()
	status, wait := c.permit(t, nodeName)
	if status.Code() == abi.Wait {
		name := nativeName
		if c.r.module != nil {
			name = c.r.module.Name
		}
		c.waiting = &framework.WaitingPod{Pod: c.of, Pending: []string{name}}
		c.r.world.Waiting = append(c.r.world.Waiting, c.waiting)
	}
	return status, wait
}

// Outcome is the result for a Pod that Permit made wait: "allowed", "rejected: " with the reason,
// or nothing while it waits.
func (c *Cycle) Outcome() string {
	if c.waiting == nil {
		return ""
	}
	result, reason, rejected := strings.Cut(c.waiting.Result(), ": ")
	outcome, _, _ := strings.Cut(result, " ")
	if rejected {
		return outcome + ": " + reason
	}
	return outcome
}

func (c *Cycle) permit(t testing.TB, nodeName string) (*sched.Status, time.Duration) {
	t.Helper()
	defer c.r.enter(false)()
	if n := c.r.native; n != nil {
		status, wait := harness.As[sched.PermitPlugin](t, n.Plugin, "Permit").Permit(c.state, c.pod, nodeName)
		return c.r.settle(status), time.Duration(wait)
	}
	status, wait := c.r.having(t, "Permit", abi.Permit).Permit(c.hosted, c.of, nodeName)
	return statusOf(t, status), wait
}

// ended is the context of PreBind: no object changes while a plugin waits for one.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// PreBind asks the plugin to prepare the node for the Pod. The status Wait is not waited for.
func (c *Cycle) PreBind(t testing.TB, nodeName string) *sched.Status {
	t.Helper()
	defer c.r.enter(true)()
	if n := c.r.native; n != nil {
		return c.r.settle(harness.As[sched.PreBindPlugin](t, n.Plugin, "PreBind").PreBind(c.state, c.pod, nodeName))
	}
	return statusOf(t, c.r.having(t, "PreBind", abi.PreBind).PreBind(ended, c.hosted, c.of, nodeName))
}

// Bind asks the plugin to bind the Pod to the node.
func (c *Cycle) Bind(t testing.TB, nodeName string) *sched.Status {
	t.Helper()
	defer c.r.enter(true)()
	if n := c.r.native; n != nil {
		return c.r.settle(harness.As[sched.BindPlugin](t, n.Plugin, "Bind").Bind(c.state, c.pod, nodeName))
	}
	return statusOf(t, c.r.having(t, "Bind", abi.Bind).Bind(c.hosted, c.of, nodeName))
}
