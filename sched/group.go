package sched

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/schedmsg"
	"github.com/kubewasm/kubewasm/host"
)

// The extension points of groups of Pods, each of which has a cycle without a Pod.

// inGroup runs f for a group. args is the data that the guest may ask about.
func (p *Plugin) inGroup(f abi.Function, c *Cycle, neutral *Status, args call, then func(*instance, uint64) *Status) *Status {
	if status, over := p.over(c, f, neutral); over {
		return status
	}
	h := c.history.Load()
	inst, i, err := p.acquire(&c.life, c, h, len(h.steps), scheduling)
	if err != nil {
		return p.failedIn(c, f, err, neutral)
	}
	defer p.leave(inst, i)
	i.call = args
	i.call.snapshot = true
	result, err := p.invoke(&c.life, inst, i, f, uint64(h.ref))
	if err != nil {
		return p.failedIn(c, f, err, neutral)
	}
	c.life.charge(f, inst.FuelUsed())
	if s := status(abi.Code(result), inst); s != nil {
		return s
	}
	if then != nil {
		return then(i, result)
	}
	return nil
}

// PodGroupPostFilter lets the guest make room for a group that does not fit, and returns the nodes
// that it nominates, by the Pods. try schedules the group on trial, during which the scheduler also
// calls this plugin; it may be nil.
func (p *Plugin) PodGroupPostFilter(c *Cycle, group schedmsg.PodGroup, try func() ([]schedmsg.Assignment, *Status)) (map[types.NamespacedName]string, *Status) {
	if !p.functions.Has(abi.PodGroupPostFilter) {
		return nil, unschedulable
	}
	var nominations map[types.NamespacedName]string
	status := p.inGroup(abi.PodGroupPostFilter, c, unschedulable, call{group: group, try: try}, func(i *instance, _ uint64) *Status {
		// After a success the scheduler reads the result, even if nothing is nominated.
		if nominations = i.call.nominations; nominations == nil {
			nominations = map[types.NamespacedName]string{}
		}
		return nil
	})
	if p.monitored {
		nominations = nil
	}
	return nominations, p.answer(abi.PodGroupPostFilter, nil, status, unschedulable)
}

// GeneratePlacements returns the placements that the guest proposes for a group, each with
// nodes of the parent. nil leaves the parent as it is.
func (p *Plugin) GeneratePlacements(c *Cycle, group schedmsg.PodGroup, parent Nodes) ([]Placement, *Status) {
	if !p.functions.Has(abi.GeneratePlacements) {
		return nil, nil
	}
	nodes := make(map[string]NodeInfo, length(parent))
	for n := range all(parent) {
		nodes[n.Node().Name] = n
	}
	var placements []Placement
	status := p.inGroup(abi.GeneratePlacements, c, nil, call{group: group, nodes: parent}, func(i *instance, _ uint64) *Status {
		placements = make([]Placement, len(i.call.placements))
		for n, proposed := range i.call.placements {
			placements[n].Name = proposed.Name
			for _, name := range proposed.NodeNames {
				node, ok := nodes[name]
				if !ok {
					return errorStatus(fmt.Errorf("plugin %q: placement %q has the node %q, which is not in its parent", p.guest.Name(), proposed.Name, name))
				}
				placements[n].Nodes = append(placements[n].Nodes, node)
			}
		}
		return nil
	})
	if status != nil || p.monitored {
		return nil, p.answer(abi.GeneratePlacements, nil, status, nil)
	}
	return placements, nil
}

// ScorePlacement returns the score of a placement. placement returns it, with the nodes that
// are proposed for the Pods.
func (p *Plugin) ScorePlacement(c *Cycle, group schedmsg.PodGroup, placement func() (schedmsg.Placement, []schedmsg.Assignment)) (int64, *Status) {
	if !p.functions.Has(abi.ScorePlacement) {
		return 0, nil
	}
	var score int64
	status := p.inGroup(abi.ScorePlacement, c, nil, call{group: group, placement: placement}, func(i *instance, packed uint64) *Status {
		score = i.call.scoreOf(packed)
		return nil
	})
	if p.monitored {
		score = 0
	}
	return score, p.answer(abi.ScorePlacement, nil, status, nil)
}

// NormalizePlacementScore changes the scores of placements, which have their names.
func (p *Plugin) NormalizePlacementScore(c *Cycle, group schedmsg.PodGroup, scores Scores) *Status {
	if !p.functions.Has(abi.NormalizePlacementScore) {
		return nil
	}
	s := p.inGroup(abi.NormalizePlacementScore, c, nil, call{group: group, scores: scores}, func(i *instance, _ uint64) *Status {
		if p.monitored {
			return nil
		}
		for n, score := range i.call.normalized {
			scores.SetScore(n, score)
		}
		return nil
	})
	return p.answer(abi.NormalizePlacementScore, nil, s, nil)
}

// A trial schedules a group of Pods while the guest's PodGroupPostFilter runs. The scheduler
// calls this plugin for the Pods like any other, so the trial needs a second instance.

// trialWait is the maximum time that a call waits for an instance during a trial. Instances of
// other calls are released long before.
const trialWait = 5 * time.Second

// tryPodGroupImport is the host function of tryPodGroup.
const tryPodGroupImport = "try_pod_group"

// tryPodGroup returns the result of scheduling the group without some Pods.
func (p *Plugin) tryPodGroup(inst *host.Instance, stack []uint64) {
	i := during(inst, abi.MaskOf(abi.PodGroupPostFilter))
	if p.handle == nil || i.call.try == nil {
		inst.Abort(errNoHandle)
	}
	uids := texts(inst, inst.Read(uint32(stack[0]), uint32(stack[1])), "UID", 0)
	question := fmt.Sprintf("%q", uids)
	b := remember(inst, question, func() []byte {
		b, err := p.try(i.call.try, uids)
		if err != nil {
			inst.Abort(err)
		}
		return b
	})
	stack[0] = uint64(inst.Write(uint32(stack[2]), uint32(stack[3]), b))
}

// try schedules the group while the scheduler's snapshot is without some Pods.
func (p *Plugin) try(schedule func() ([]schedmsg.Assignment, *Status), uids []string) ([]byte, error) {
	if p.guest.Stats().Limit < 2 {
		return nil, errors.New("a trial runs other functions of the guest, so the plugin needs at least two instances")
	}
	p.trials.Add(1)
	defer p.trials.Add(-1)
	pods, err := p.running(uids)
	if err != nil {
		return nil, err
	}
	var b []byte
	err = p.handle.Without(pods, func() {
		assignments, status := schedule()
		b = schedmsg.AppendTrial(nil, status.Code(), status.Message(), assignments)
	})
	return b, err
}

// running finds Pods of the snapshot by their UIDs.
func (p *Plugin) running(uids []string) ([]*corev1.Pod, error) {
	if len(uids) == 0 {
		return nil, nil
	}
	wanted := make(map[string]bool, len(uids))
	for _, uid := range uids {
		wanted[uid] = true
	}
	nodes, err := p.handle.Nodes()
	if err != nil {
		return nil, err
	}
	var pods, on []*corev1.Pod
	for n := range all(nodes) {
		on = p.framework.AppendPods(on[:0], n)
		for _, pod := range on {
			if wanted[string(pod.UID)] {
				delete(wanted, string(pod.UID))
				pods = append(pods, pod)
			}
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(wanted)) {
		return nil, fmt.Errorf("no Pod with the UID %.80q runs on a node", uid)
	}
	return pods, nil
}
