package sched

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/schedmsg"
)

// The extension points of a scheduling cycle that choose a node.

// PreFilter shows the guest the Pod of a cycle and all nodes, and returns the names of those
// that may be filtered, nil for all. Skip leaves out Filter, unless the guest filters.
func (p *Plugin) PreFilter(c *Cycle, nodes Nodes) (names []string, _ *Status) {
	switch {
	case !p.Asks(abi.PreFilter) && p.offered.Has(abi.Filter):
		return nil, nil
	case !p.Asks(abi.PreFilter):
		return nil, skip
	case !p.functions.Has(abi.PreFilter):
		return nil, nil
	}
	c.nodes = nodes
	looked := false
	status := p.runStep(c, step{function: abi.PreFilter, pod: c.pod, of: c.of, nodes: nodes}, func(i *instance) {
		names, looked = i.call.nodeNames, len(i.call.looked) != 0 || p.peer
	})
	if c.recorded != nil {
		c.recorded.list(abi.PreFilter, nodes, looked, names, status)
	}
	if p.monitored && status == nil && names != nil {
		p.tell(abi.PreFilter, c.of, strings.Join(names[:min(len(names), 3)], ","), nil)
	}
	if status != nil || p.monitored {
		return nil, p.refuses(c, p.answer(abi.PreFilter, c.of, status, leavingOut(status)))
	}
	return names, nil
}

// AddPod asks the guest to evaluate the node with another Pod (preemption dry run).
func (p *Plugin) AddPod(c *Cycle, added *corev1.Pod, node NodeInfo) *Status {
	return p.changePod(abi.AddPod, c, added, node)
}

// RemovePod asks the guest to evaluate the node without a Pod (preemption dry run).
func (p *Plugin) RemovePod(c *Cycle, removed *corev1.Pod, node NodeInfo) *Status {
	return p.changePod(abi.RemovePod, c, removed, node)
}

func (p *Plugin) changePod(f abi.Function, c *Cycle, changed *corev1.Pod, nodeInfo NodeInfo) *Status {
	if !p.functions.Has(f) {
		return nil
	}
	node := nodeInfo.Node()
	if node == nil {
		return noNode
	}
	s := p.runStep(c, step{
		function: f, pod: c.pod, of: c.of, other: p.objects.Pod(changed), node: p.objects.Node(node), info: nodeInfo,
	}, nil)
	return p.answer(f, c.of, s, nil)
}

// Filter asks whether the Pod fits on a node.
//
// 0 allocs if the answer is shared: TestFilterDoesNotAllocate.
func (p *Plugin) Filter(c *Cycle, node NodeInfo) *Status {
	_, status := p.onNode(abi.Filter, c, node)
	if c != nil && c.recorded != nil {
		c.recorded.node(abi.Filter, node, 0, status)
	}
	return p.refuses(c, p.onNodeAnswer(abi.Filter, c, node, status))
}

// PostFilter lets the guest make room for a Pod that fits on no node. statuses returns the explicit
// statuses of nodes, in any order; it may be called only during the call.
func (p *Plugin) PostFilter(c *Cycle, statuses func() []schedmsg.NodeStatus) (*Nomination, *Status) {
	if !p.functions.Has(abi.PostFilter) {
		return nil, unschedulable
	}
	var result *Nomination
	status := p.inCycle(abi.PostFilter, scheduling, c, c.of, unschedulable, call{statuses: statuses}, func(i *instance, packed uint64) *Status {
		mode, code := abi.Unpack[abi.Code](packed)
		// The framework also takes a nomination from a plugin that found no node.
		switch code {
		case abi.Success, abi.Unschedulable, abi.UnschedulableAndUnresolvable:
		default:
			return nil
		}
		if mode == modeOverride || i.call.nominated != "" {
			result = &Nomination{NodeName: i.call.nominated, Override: mode == modeOverride}
		}
		return nil
	})
	if p.monitored {
		result = nil
	}
	return result, p.answer(abi.PostFilter, c.of, status, unschedulable)
}

// modeOverride is the mode of a nomination that replaces the one before.
const modeOverride = 1

// sortedStatuses returns the statuses of nodes in the order of the nodes' names.
func sortedStatuses(statuses func() []schedmsg.NodeStatus) []schedmsg.NodeStatus {
	if statuses == nil {
		return nil
	}
	list := statuses()
	slices.SortFunc(list, func(a, b schedmsg.NodeStatus) int { return strings.Compare(a.NodeName, b.NodeName) })
	return list
}

// PreScore shows the guest the nodes that passed Filter. Skip leaves out Score, unless the
// guest scores.
func (p *Plugin) PreScore(c *Cycle, nodes Nodes) *Status {
	switch {
	case p.functions.Has(abi.PreScore):
		looked := false
		status := p.runStep(c, step{function: abi.PreScore, pod: c.pod, of: c.of, nodes: nodes}, func(i *instance) {
			looked = len(i.call.looked) != 0 || p.peer
		})
		if c.recorded != nil {
			c.recorded.list(abi.PreScore, nodes, looked, nil, status)
		}
		return p.answer(abi.PreScore, c.of, status, leavingOut(status))
	case p.functions.Has(abi.Score):
		return nil
	}
	return skip
}

// Score returns the score of a node.
//
// 0 allocs: TestFilterDoesNotAllocate.
func (p *Plugin) Score(c *Cycle, node NodeInfo) (int64, *Status) {
	score, status := p.onNode(abi.Score, c, node)
	if c != nil && c.recorded != nil {
		c.recorded.node(abi.Score, node, score, status)
	}
	if p.monitored {
		return 0, p.onNodeAnswer(abi.Score, c, node, status)
	}
	return score, status
}

// onNode runs f, Filter or Score, for a node, unless its result is in the cache.
func (p *Plugin) onNode(f abi.Function, c *Cycle, nodeInfo NodeInfo) (score int64, _ *Status) {
	if !p.functions.Has(f) {
		return 0, nil
	}
	node := nodeInfo.Node()
	if node == nil {
		return 0, noNode
	}
	object := p.objects.KnownNode(node)
	if object == nil {
		object = p.newNode(c, node)
	}
	key, hit := p.cache.get(c.state, f, object)
	if hit != nil {
		return hit.score, hit.status
	}
	if c.life.first() != nil {
		status, _ := p.over(c, f, nil)
		return 0, status
	}
	h := c.history.Load()
	inst, i, err := p.acquire(&c.life, c, h, len(h.steps), scheduling)
	if err != nil {
		return 0, p.failedIn(c, f, err, nil)
	}
	i.beginOnNode(c, object, nodeInfo)
	var version uint64 // It differs between equal Nodes, and is no source of a shared result.
	if key.class == nil {
		version = uint64(nodeInfo.GetGeneration())
	}
	if c.clone || p.candidate {
		inst.StateTrial(nil)
	}
	result, err := p.invoke(&c.life, inst, i, f, uint64(h.ref), uint64(c.pod.Ref), uint64(object.Ref), version)
	var s *Status
	if err != nil {
		s = p.failedIn(c, f, err, nil)
		c.life.charge(f, inst.FuelUsed())
	} else {
		if fuel := inst.FuelUsed(); fuel > cheapCall {
			c.life.charge(f, fuel)
		}
		if uint32(result) != 0 {
			s = status(abi.Code(result), inst)
		} else if f == abi.Score {
			score = i.call.scoreOf(result)
		}
		if key.class != nil {
			p.cache.put(key, c.clone, object, inst, abi.Code(int32(uint32(result))), score, s)
		}
	}
	p.leave(inst, i)
	return score, s
}

// NormalizeScore changes the scores of nodes. They stay as they are unless the guest succeeds
// and hands over a score for each of them.
func (p *Plugin) NormalizeScore(c *Cycle, scores Scores) *Status {
	if !p.functions.Has(abi.NormalizeScore) {
		return nil
	}
	s := p.inCycle(abi.NormalizeScore, scheduling, c, c.of, nil, call{scores: scores}, func(i *instance, result uint64) *Status {
		if abi.Code(int32(uint32(result))) == abi.Success && !p.monitored {
			// By index: the framework reads the list that way, whatever the names.
			for n, score := range i.call.normalized {
				scores.SetScore(n, score)
			}
		}
		return nil
	})
	return p.answer(abi.NormalizeScore, c.of, s, nil)
}

// inCycle runs f for the Pod of a cycle. args is the data that the guest may ask about beside it.
// then, if not nil, reads the guest's result and the data that it left in the instance; if it
// returns a status, that replaces the guest's.
func (p *Plugin) inCycle(f abi.Function, phase phase, c *Cycle, pod *corev1.Pod, neutral *Status, args call, then func(*instance, uint64) *Status) *Status {
	if status, over := p.over(c, f, neutral); over {
		return status
	}
	if settles.Has(f) {
		p.settle(c)
	}
	object := c.pod
	if pod != c.of {
		// The bound Pod is a copy with the name of the node.
		object = p.objects.Pod(pod)
	}
	h := c.history.Load()
	ctx := p.context(c, f, phase)
	inst, i, err := p.acquire(ctx, c, h, len(h.steps), phase)
	if err != nil {
		return p.failedIn(c, f, err, neutral)
	}
	defer p.leave(inst, i)
	i.call = args
	i.call.pod, i.call.of, i.call.snapshot = object, pod, phase == scheduling
	if c.clone || p.candidate {
		inst.StateTrial(nil)
	}
	params := []uint64{uint64(h.ref), uint64(object.Ref)}
	if args.node != nil {
		params = append(params, uint64(args.node.Ref))
	}
	result, err := p.invoke(ctx, inst, i, f, params...)
	if err != nil {
		return p.failedIn(c, f, err, neutral)
	}
	if phase == scheduling {
		c.life.charge(f, inst.FuelUsed())
	}
	if then != nil {
		if s := then(i, result); s != nil {
			return s
		}
	}
	return status(abi.Code(result), inst)
}
