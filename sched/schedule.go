package sched

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/schedmsg"
)

// The extension points of a scheduling cycle, as far as they choose a node.

// PreFilter implements fwk.PreFilterPlugin.
func (e *extensions) PreFilter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	p := e.plugin
	c := p.newCycle(pod)
	if state != nil {
		state.Write(p.key, c)
	}
	if !p.functions.Has(abi.PreFilter) {
		return nil, nil
	}
	var result *fwk.PreFilterResult
	status := p.runStep(c, step{function: abi.PreFilter, pod: c.pod, of: pod, nodes: nodes}, func(i *instance) {
		if i.call.nodeNames != nil {
			result = &fwk.PreFilterResult{NodeNames: sets.New(i.call.nodeNames...)}
		}
	})
	if !status.IsSuccess() {
		return nil, status
	}
	return result, nil
}

// PreFilterExtensions implements fwk.PreFilterPlugin.
func (e *extensions) PreFilterExtensions() fwk.PreFilterExtensions {
	if e.plugin.functions&abi.MaskOf(abi.AddPod, abi.RemovePod) != 0 {
		return podExtensions{e.plugin}
	}
	return nil
}

// podExtensions are the PreFilterExtensions of a guest that watches Pods come
// and go.
type podExtensions struct{ *plugin }

// AddPod implements fwk.PreFilterExtensions.
func (p podExtensions) AddPod(_ context.Context, state fwk.CycleState, pod *corev1.Pod, added fwk.PodInfo, nodeInfo fwk.NodeInfo) *fwk.Status {
	return p.changePod(abi.AddPod, state, pod, added, nodeInfo)
}

// RemovePod implements fwk.PreFilterExtensions.
func (p podExtensions) RemovePod(_ context.Context, state fwk.CycleState, pod *corev1.Pod, removed fwk.PodInfo, nodeInfo fwk.NodeInfo) *fwk.Status {
	return p.changePod(abi.RemovePod, state, pod, removed, nodeInfo)
}

func (p *plugin) changePod(f abi.Function, state fwk.CycleState, pod *corev1.Pod, changed fwk.PodInfo, nodeInfo fwk.NodeInfo) *fwk.Status {
	if !p.functions.Has(f) {
		return nil
	}
	node := nodeInfo.Node()
	if node == nil {
		return fwk.NewStatus(fwk.Error, "node not found")
	}
	c := p.cycleOf(state, pod)
	return p.runStep(c, step{
		function: f, pod: c.pod, of: pod, other: p.objects.Pod(changed.GetPod()), node: p.objects.Node(node), info: nodeInfo,
	}, nil)
}

// Filter implements fwk.FilterPlugin.
//
// 0 allocs if the node passes: TestFilterDoesNotAllocate.
func (e *extensions) Filter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, nodeInfo fwk.NodeInfo) *fwk.Status {
	_, status := e.plugin.onNode(abi.Filter, state, pod, nodeInfo)
	return status
}

// PostFilter implements fwk.PostFilterPlugin.
func (e *extensions) PostFilter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	p := e.plugin
	var result *fwk.PostFilterResult
	status := p.inCycle(abi.PostFilter, scheduling, state, pod, fwk.NewStatus(fwk.Unschedulable), call{statuses: statuses}, func(i *instance, packed uint64) *fwk.Status {
		mode, code := abi.Unpack(packed)
		// The framework also takes a nomination from a plugin that found no node.
		switch abi.Code(int32(code)) {
		case abi.Success, abi.Unschedulable, abi.UnschedulableAndUnresolvable:
		default:
			return nil
		}
		if fwk.NominatingMode(mode) != fwk.ModeOverride && i.call.nominated == "" {
			return nil
		}
		result = &fwk.PostFilterResult{NominatingInfo: &fwk.NominatingInfo{
			NominatedNodeName: i.call.nominated, NominatingMode: fwk.ModeNoop,
		}}
		if fwk.NominatingMode(mode) == fwk.ModeOverride {
			result.NominatingMode = fwk.ModeOverride
		}
		return nil
	})
	return result, status
}

// nodeStatuses returns the statuses of the nodes that have one of their own, in
// the order of their names. The interface has no method for them, but its
// implementation has.
func nodeStatuses(r fwk.NodeToStatusReader) []schedmsg.NodeStatus {
	each, ok := r.(interface {
		ForEachExplicitNode(func(string, *fwk.Status))
	})
	if !ok {
		return nil
	}
	var list []schedmsg.NodeStatus
	each.ForEachExplicitNode(func(name string, s *fwk.Status) {
		list = append(list, schedmsg.NodeStatus{NodeName: name, Status: s})
	})
	slices.SortFunc(list, func(a, b schedmsg.NodeStatus) int { return strings.Compare(a.NodeName, b.NodeName) })
	return list
}

// PreScore implements fwk.PreScorePlugin.
func (e *extensions) PreScore(_ context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	c := e.plugin.cycleOf(state, pod)
	return e.plugin.runStep(c, step{function: abi.PreScore, pod: c.pod, of: pod, nodes: nodes}, nil)
}

// Score implements fwk.ScorePlugin.
//
// 0 allocs: TestFilterDoesNotAllocate.
func (e *extensions) Score(_ context.Context, state fwk.CycleState, pod *corev1.Pod, nodeInfo fwk.NodeInfo) (int64, *fwk.Status) {
	result, status := e.plugin.onNode(abi.Score, state, pod, nodeInfo)
	n, _ := abi.UnpackScore(result)
	return int64(n), status
}

// onNode runs f, Filter or Score, for a node, unless its result is in the cache.
func (p *plugin) onNode(f abi.Function, state fwk.CycleState, pod *corev1.Pod, nodeInfo fwk.NodeInfo) (uint64, *fwk.Status) {
	node := nodeInfo.Node()
	if node == nil {
		return 0, fwk.NewStatus(fwk.Error, "node not found")
	}
	c := p.cycleOf(state, pod)
	object := p.objects.Node(node)
	key := p.cache.keyOf(c.state, f, object)
	if r := key.get(); r != nil {
		p.cache.hits.add(f, object)
		return r.value, r.status()
	}
	inst, i, ref, err := p.enter(c, scheduling)
	if err != nil {
		return 0, p.failed(f, err, nil)
	}
	args := &i.call
	args.pod, args.of, args.node, args.info, args.snapshot, args.own = c.pod, pod, object, nodeInfo, true, false
	result, err := p.invoke(inst, i, f, uint64(ref), uint64(c.pod.Ref), uint64(object.Ref))
	var s *fwk.Status
	if err != nil {
		result, s = 0, p.failed(f, err, nil)
	} else {
		if key.class != nil {
			p.cache.put(key, object, inst, result)
		}
		if uint32(result) != 0 {
			s = status(uint32(result), inst)
		}
	}
	if args.looked == nil && args.answers == nil && args.listed == nil && i.shared == nil && !p.peer {
		// To clear it all would cost a tenth of the whole call.
		args.pod, args.of, args.node, args.info, args.snapshot = nil, nil, nil, nil, false
		inst.Release()
	} else {
		p.leave(inst, i)
	}
	return result, s
}

// ScoreExtensions implements fwk.ScorePlugin.
func (e *extensions) ScoreExtensions() fwk.ScoreExtensions {
	if e.plugin.functions.Has(abi.NormalizeScore) {
		return scoreExtensions{e.plugin}
	}
	return nil
}

type scoreExtensions struct{ *plugin }

// NormalizeScore implements fwk.ScoreExtensions. The scores stay as they are
// unless the guest succeeds and hands over a score for each of them.
func (p scoreExtensions) NormalizeScore(_ context.Context, state fwk.CycleState, pod *corev1.Pod, scores fwk.NodeScoreList) *fwk.Status {
	return p.inCycle(abi.NormalizeScore, scheduling, state, pod, nil, call{scores: scores}, func(i *instance, result uint64) *fwk.Status {
		if abi.Code(int32(uint32(result))) == abi.Success {
			// By index: the framework reads the list that way, whatever the names.
			for n, score := range i.call.normalized {
				scores[n].Score = score
			}
		}
		return nil
	})
}

// inCycle runs f for the Pod of a cycle. args is what the guest may ask about
// beside it. then, if not nil, reads what the guest returned and left in the
// instance; a status of its own counts instead of the guest's.
func (p *plugin) inCycle(f abi.Function, phase phase, state fwk.CycleState, pod *corev1.Pod, neutral *fwk.Status, args call, then func(*instance, uint64) *fwk.Status) *fwk.Status {
	c := p.cycleOf(state, pod)
	if settles.Has(f) {
		p.settle(c)
	}
	object := c.pod
	if pod != c.of {
		// What is bound is a copy with the name of the node.
		object = p.objects.Pod(pod)
	}
	inst, i, ref, err := p.enter(c, phase)
	if err != nil {
		return p.failed(f, err, neutral)
	}
	defer p.leave(inst, i)
	i.call = args
	i.call.pod, i.call.of, i.call.snapshot = object, pod, phase == scheduling
	result, err := p.invoke(inst, i, f, uint64(ref), uint64(object.Ref))
	if err != nil {
		return p.failed(f, err, neutral)
	}
	if then != nil {
		if s := then(i, result); s != nil {
			return s
		}
	}
	return status(uint32(result), inst)
}
