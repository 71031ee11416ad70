//go:build !wasip1

package guesttest

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/guest/sched"
)

// PreEnqueue asks whether the Pod in manifest may enter the queue.
func (s *Scheduler) PreEnqueue(t testing.TB, manifest string) *sched.Status {
	t.Helper()
	if s.native != nil {
		return as[sched.PreEnqueuePlugin](t, s.native.plugin, "PreEnqueue").PreEnqueue(Pod(t, manifest))
	}
	if s.loaded == nil {
		s = s.Configure(t, "")
	}
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(manifest), pod); err != nil {
		t.Fatalf("read Pod: %v", err)
	}
	return statusOf(t, as[fwk.PreEnqueuePlugin](t, s.loaded, "PreEnqueue").PreEnqueue(context.Background(), pod))
}

// PreScore tells the plugin of the Nodes in manifests, those that passed Filter.
func (c *Cycle) PreScore(t testing.TB, manifests ...string) *sched.Status {
	t.Helper()
	if n := c.s.native; n != nil {
		infos := make([]sched.NodeInfo, len(manifests))
		for i, m := range manifests {
			infos[i] = sched.NewNodeInfo(Node(t, m))
		}
		return as[sched.PreScorePlugin](t, n.plugin, "PreScore").PreScore(c.state, c.pod, sched.NodeInfosOf(infos...))
	}
	infos := make([]fwk.NodeInfo, len(manifests))
	for i, m := range manifests {
		infos[i] = nodeInfo(t, m)
	}
	return statusOf(t, as[fwk.PreScorePlugin](t, c.s.loaded, "PreScore").PreScore(context.Background(), c.hosted, c.of, infos))
}

// Reserve asks the plugin to reserve what it manages for the Pod on a node.
func (c *Cycle) Reserve(t testing.TB, nodeName string) *sched.Status {
	t.Helper()
	if n := c.s.native; n != nil {
		return as[sched.ReservePlugin](t, n.plugin, "Reserve").Reserve(c.state, c.pod, nodeName)
	}
	return statusOf(t, as[fwk.ReservePlugin](t, c.s.loaded, "Reserve").Reserve(context.Background(), c.hosted, c.of, nodeName))
}

// Unreserve tells the plugin that the Pod is not bound to the node after all.
func (c *Cycle) Unreserve(t testing.TB, nodeName string) {
	t.Helper()
	if n := c.s.native; n != nil {
		as[sched.ReservePlugin](t, n.plugin, "Reserve").Unreserve(c.state, c.pod, nodeName)
		return
	}
	as[fwk.ReservePlugin](t, c.s.loaded, "Reserve").Unreserve(context.Background(), c.hosted, c.of, nodeName)
}

// Permit asks whether the Pod may be bound to the node; the duration is how long
// it waits at most, if it is to wait.
func (c *Cycle) Permit(t testing.TB, nodeName string) (*sched.Status, time.Duration) {
	t.Helper()
	if n := c.s.native; n != nil {
		status, wait := as[sched.PermitPlugin](t, n.plugin, "Permit").Permit(c.state, c.pod, nodeName)
		return status, time.Duration(wait)
	}
	status, wait := as[fwk.PermitPlugin](t, c.s.loaded, "Permit").Permit(context.Background(), c.hosted, c.of, nodeName)
	return statusOf(t, status), wait
}

// PreBind asks the plugin to prepare the node for the Pod.
func (c *Cycle) PreBind(t testing.TB, nodeName string) *sched.Status {
	t.Helper()
	if n := c.s.native; n != nil {
		return as[sched.PreBindPlugin](t, n.plugin, "PreBind").PreBind(c.state, c.pod, nodeName)
	}
	return statusOf(t, as[fwk.PreBindPlugin](t, c.s.loaded, "PreBind").PreBind(context.Background(), c.hosted, c.of, nodeName))
}

// Bind asks the plugin to bind the Pod to the node.
func (c *Cycle) Bind(t testing.TB, nodeName string) *sched.Status {
	t.Helper()
	if n := c.s.native; n != nil {
		return as[sched.BindPlugin](t, n.plugin, "Bind").Bind(c.state, c.pod, nodeName)
	}
	return statusOf(t, as[fwk.BindPlugin](t, c.s.loaded, "Bind").Bind(context.Background(), c.hosted, c.of, nodeName))
}
