package sched

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/schedmsg"
)

// The extension points of groups of Pods.

// inGroup runs f for a group. args is what the guest may ask about.
func (p *plugin) inGroup(f abi.Function, state stateStore, neutral *fwk.Status, args call, then func(*instance, uint64) *fwk.Status) *fwk.Status {
	c := p.cycleOf(state, nil)
	inst, i, ref, err := p.enter(c, scheduling)
	if err != nil {
		return p.failed(f, err, neutral)
	}
	defer p.leave(inst, i)
	i.call = args
	i.call.snapshot = true
	result, err := p.invoke(inst, i, f, uint64(ref))
	if err != nil {
		return p.failed(f, err, neutral)
	}
	if s := status(uint32(result), inst); s != nil {
		return s
	}
	if then != nil {
		return then(i, result)
	}
	return nil
}

// PodGroupPostFilter implements fwk.PodGroupPostFilterPlugin. The guest may
// nominate nodes, and try the group out.
func (e *extensions) PodGroupPostFilter(ctx context.Context, state fwk.PodGroupCycleState, group fwk.PodGroupInfo, try fwk.PodGroupSchedulingFunc) (*fwk.PodGroupPostFilterResult, *fwk.Status) {
	var result *fwk.PodGroupPostFilterResult
	args := call{group: group}
	if try != nil {
		args.try = func() (*fwk.PodGroupAssignments, *fwk.Status) { return try(ctx) }
	}
	status := e.plugin.inGroup(abi.PodGroupPostFilter, state, fwk.NewStatus(fwk.Unschedulable), args, func(i *instance, _ uint64) *fwk.Status {
		// Of a success the scheduler reads the result, even if nothing is
		// nominated.
		result = &fwk.PodGroupPostFilterResult{NominatingInfos: map[types.NamespacedName]*fwk.NominatingInfo{}}
		for pod, node := range i.call.nominations {
			result.NominatingInfos[pod] = &fwk.NominatingInfo{NominatedNodeName: node, NominatingMode: fwk.ModeOverride}
		}
		return nil
	})
	return result, status
}

// GeneratePlacements implements fwk.PlacementGeneratePlugin. A placement may
// have nodes of its parent only.
func (e *extensions) GeneratePlacements(_ context.Context, state fwk.PodGroupCycleState, group fwk.PodGroupInfo, parent *fwk.Placement) (*fwk.GeneratePlacementsResult, *fwk.Status) {
	args := call{group: group}
	nodes := map[string]fwk.NodeInfo{}
	if parent != nil {
		args.nodes = parent.Nodes
		for _, n := range parent.Nodes {
			nodes[n.Node().Name] = n
		}
	}
	result := &fwk.GeneratePlacementsResult{}
	// A plugin that has nothing to say leaves the parent as it is.
	whole := &fwk.GeneratePlacementsResult{}
	if parent != nil {
		whole.Placements = []*fwk.Placement{parent}
	}
	answered := false
	status := e.plugin.inGroup(abi.GeneratePlacements, state, nil, args, func(i *instance, _ uint64) *fwk.Status {
		answered = true
		for _, proposed := range i.call.placements {
			placement := &fwk.Placement{Name: proposed.Name}
			for _, name := range proposed.NodeNames {
				node, ok := nodes[name]
				if !ok {
					return fwk.AsStatus(fmt.Errorf("plugin %q: placement %q has the node %q, which its parent has not", e.plugin.guest.Name(), proposed.Name, name))
				}
				placement.Nodes = append(placement.Nodes, node)
			}
			result.Placements = append(result.Placements, placement)
		}
		return nil
	})
	if !status.IsSuccess() {
		return nil, status
	}
	if !answered {
		return whole, nil
	}
	return result, nil
}

// ScorePlacement implements fwk.PlacementScorePlugin.
func (e *extensions) ScorePlacement(_ context.Context, state fwk.PlacementCycleState, group fwk.PodGroupInfo, placement *fwk.PodGroupAssignments) (int64, *fwk.Status) {
	var score int32
	status := e.plugin.inGroup(abi.ScorePlacement, state, nil, call{group: group, placement: placement}, func(_ *instance, packed uint64) *fwk.Status {
		score, _ = abi.UnpackScore(packed)
		return nil
	})
	return int64(score), status
}

// PlacementScoreExtensions implements fwk.PlacementScorePlugin.
func (e *extensions) PlacementScoreExtensions() fwk.PlacementScoreExtensions {
	if e.plugin.functions.Has(abi.NormalizePlacementScore) {
		return placementExtensions{e.plugin}
	}
	return nil
}

type placementExtensions struct{ *plugin }

// NormalizePlacementScore implements fwk.PlacementScoreExtensions.
func (p placementExtensions) NormalizePlacementScore(_ context.Context, state fwk.PodGroupCycleState, group fwk.PodGroupInfo, scores []fwk.PlacementScore) *fwk.Status {
	list := make(fwk.NodeScoreList, len(scores))
	for n, s := range scores {
		list[n] = fwk.NodeScore{Name: s.Placement.Name, Score: s.Score}
	}
	return p.inGroup(abi.NormalizePlacementScore, state, nil, call{group: group, scores: list}, func(i *instance, _ uint64) *fwk.Status {
		for n, score := range i.call.normalized {
			scores[n].Score = score
		}
		return nil
	})
}

// names returns the names of nodes, a NUL after each.
func names(dst []byte, nodes []fwk.NodeInfo) []byte {
	for _, n := range nodes {
		if node := n.Node(); node != nil {
			dst = append(append(dst, node.Name...), 0)
		}
	}
	return dst
}

// sortedKeys returns the keys of a map in their order, for messages.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// A trial schedules a group of Pods while the guest's PodGroupPostFilter runs. The scheduler
// calls this plugin for the Pods like any other, so the trial needs a second instance.

// trialWait is how long a call waits for an instance during a trial. Instances of other calls
// are released long before.
const trialWait = 5 * time.Second

// tryPodGroup answers what would become of the group without some Pods.
func (p *plugin) tryPodGroup(inst *host.Instance, stack []uint64) {
	i := during(inst, abi.MaskOf(abi.PodGroupPostFilter))
	if p.handle == nil || i.call.try == nil {
		inst.Abort(errNoHandle)
	}
	uids := texts(inst, inst.Read(uint32(stack[0]), uint32(stack[1])), "UID")
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

// try takes Pods from the scheduler's snapshot, schedules the group and puts them
// back.
func (p *plugin) try(schedule func() (*fwk.PodGroupAssignments, *fwk.Status), uids []string) (b []byte, err error) {
	if p.guest.Stats().Limit < 2 {
		return nil, errors.New("a trial runs the guest's other functions, so the plugin needs two instances at least")
	}
	p.trials.Add(1)
	defer p.trials.Add(-1)
	snapshot := p.handle.MutableSnapshotSharedLister()
	pods, err := podsOf(snapshot, uids)
	if err != nil {
		return nil, err
	}
	if err := snapshot.StartMutations(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, snapshot.EndMutations()) }()
	for _, pod := range pods {
		if err := snapshot.RemovePod(klog.Background(), pod, pod.Spec.NodeName); err != nil {
			return nil, err
		}
	}
	assignments, status := schedule()
	return schedmsg.AppendTrial(nil, assignments, status), nil
}

// podsOf finds Pods of the snapshot by their UIDs.
func podsOf(snapshot fwk.SharedLister, uids []string) ([]*corev1.Pod, error) {
	if len(uids) == 0 {
		return nil, nil
	}
	wanted := make(map[string]bool, len(uids))
	for _, uid := range uids {
		wanted[uid] = true
	}
	nodes, err := snapshot.NodeInfos().List()
	if err != nil {
		return nil, err
	}
	var pods []*corev1.Pod
	for _, n := range nodes {
		for _, info := range n.GetPods() {
			if pod := info.GetPod(); wanted[string(pod.UID)] {
				delete(wanted, string(pod.UID))
				pods = append(pods, pod)
			}
		}
	}
	for _, uid := range sortedKeys(wanted) {
		return nil, fmt.Errorf("no Pod with the UID %.80q runs on a node", uid)
	}
	return pods, nil
}
