package sched

import (
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec"
	"github.com/kubewasm/kubewasm/codec/schedpb"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/sched/internal/peer"
)

// invoke calls a function of the guest, in whatever dialect it is.
func (p *plugin) invoke(inst *host.Instance, i *instance, f abi.Function, args ...uint64) (uint64, error) {
	if !p.peer {
		return inst.Call(p.ctx, f, args...)
	}
	c := &i.call
	i.peer = peer.Call{Pod: c.pod, Target: c.other, Node: c.node, NodeName: c.nodeName, Nodes: c.nodes, Scores: c.scores}
	if c.info != nil && c.nodeName == "" {
		i.peer.NodeName = c.info.Node().Name
	}
	if c.statuses != nil {
		i.peer.Statuses = nodeStatuses(c.statuses)
	}
	result, err := inst.CallExport(p.ctx, peer.Export(f))
	if err != nil {
		return 0, err
	}
	c.nodeNames, c.nominated, c.normalized = i.peer.NodeNames, i.peer.Nominated, i.peer.Normalized
	return peer.Result(f, result), nil
}

// peerEvents are the cluster events of a guest of package peer.
func peerEvents(list []peer.Event) (events []event) {
	if len(list) == 0 {
		list = peer.Defaults
	}
	for _, e := range list {
		events = append(events, event{e.Resource, e.Action})
	}
	return events
}

// peerScheduler offers the plugin's scheduler to guests of package peer.
type peerScheduler struct{ p *plugin }

func (s peerScheduler) Config() []byte { return s.p.config }

func (s peerScheduler) Call(inst *host.Instance) *peer.Call { return &inst.State().(*instance).peer }

func (s peerScheduler) Replay(inst *host.Instance) bool { return inst.State().(*instance).call.replay }

func (s peerScheduler) Node(inst *host.Instance, name string) fwk.NodeInfo {
	info := s.p.findNode(&inst.State().(*instance).call, name)
	if info == nil || info.Node() == nil {
		return nil
	}
	return info
}

func (s peerScheduler) Nodes(inst *host.Instance) []fwk.NodeInfo {
	c := &inst.State().(*instance).call
	if !c.snapshot || s.p.handle == nil {
		return c.nodes
	}
	all, err := s.p.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		inst.Violate(err)
	}
	return all
}

func (s peerScheduler) EncodedNode(node *corev1.Node) (*codec.Object, error) {
	return s.p.objects.Node(node)
}

func (s peerScheduler) EncodedPod(pod *corev1.Pod) (*codec.Object, error) {
	return s.p.objects.Pod(pod)
}

func (s peerScheduler) Log(inst *host.Instance, isError bool, msg string, attributes ...any) {
	level := slog.LevelInfo
	if isError {
		level = slog.LevelError
	}
	// What a guest logs in a call is bounded, as in our own ABI.
	c, limit := s.Call(inst), inst.Limits().OutputBytes
	if c.Logged > limit {
		return
	}
	for _, a := range attributes {
		c.Logged += len(a.(string))
	}
	if c.Logged += len(msg) + 1; c.Logged > limit {
		msg, attributes = "the guest logs more than limits.outputBytes in one call; the rest is dropped", nil
	}
	if len(attributes) > 0 {
		// In a group, so that a guest cannot pass for another plugin.
		attributes = []any{slog.Group("guest", attributes...)}
	}
	s.p.logger.Log(inst.Context(), level, msg, append([]any{"plugin", inst.Plugin().Name(), "function", inst.Calling()}, attributes...)...)
}

func (s peerScheduler) Report(inst *host.Instance, e *schedpb.Event) {
	if s.p.handle == nil {
		inst.Violate(errNoHandle)
	}
	s.p.report(&inst.State().(*instance).call, e)
}

func (s peerScheduler) Handle() fwk.Handle { return s.p.handle }
