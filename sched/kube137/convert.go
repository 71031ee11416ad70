package kube137

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/schedmsg"
	"github.com/kubewasm/kubewasm/sched"
)

// status returns the framework's status of an answer. It is a new one each time, since the
// framework writes the plugin's name into it, on several goroutines.
func status(s *sched.Status) *fwk.Status {
	switch {
	case s == nil:
		return nil
	case s.Err() == nil:
		return fwk.NewStatus(fwk.Code(s.Code()), s.Reasons()...)
	}
	failed := fwk.AsStatus(s.Err())
	for _, reason := range s.Reasons() {
		failed.AppendReason(reason)
	}
	return failed
}

// nodes is a list of nodes for the engine.
type nodes []fwk.NodeInfo

func (n nodes) Len() int                { return len(n) }
func (n nodes) At(i int) sched.NodeInfo { return n[i] }

// nodesOf returns a list of nodes, nil for none.
func nodesOf(infos []fwk.NodeInfo) sched.Nodes {
	if infos == nil {
		return nil
	}
	return nodes(infos)
}

// scores is a list of scores for the engine.
type scores fwk.NodeScoreList

func (s scores) Len() int                    { return len(s) }
func (s scores) Name(i int) string           { return s[i].Name }
func (s scores) Score(i int) int64           { return s[i].Score }
func (s scores) SetScore(i int, score int64) { s[i].Score = score }

// placementScores is the same of placements.
//
//minor:since 1.36
type placementScores []fwk.PlacementScore

//minor:since 1.36
func (s placementScores) Len() int { return len(s) }

//minor:since 1.36
func (s placementScores) Name(i int) string { return s[i].Placement.Name }

//minor:since 1.36
func (s placementScores) Score(i int) int64 { return s[i].Score }

//minor:since 1.36
func (s placementScores) SetScore(i int, score int64) { s[i].Score = score }

// nodeStatuses returns the explicit statuses of nodes. The interface has no method for them, but
// its implementation has.
func nodeStatuses(r fwk.NodeToStatusReader) func() []schedmsg.NodeStatus {
	return func() (list []schedmsg.NodeStatus) {
		if each, ok := r.(interface {
			ForEachExplicitNode(func(string, *fwk.Status))
		}); ok {
			each.ForEachExplicitNode(func(name string, s *fwk.Status) {
				list = append(list, schedmsg.NodeStatus{NodeName: name, Code: abi.Code(s.Code()), Message: s.Message()})
			})
		}
		return list
	}
}

func postFilterResult(n *sched.Nomination) *fwk.PostFilterResult {
	if n == nil {
		return nil
	}
	info := &fwk.NominatingInfo{NominatedNodeName: n.NodeName, NominatingMode: fwk.ModeNoop}
	if n.Override {
		info.NominatingMode = fwk.ModeOverride
	}
	return &fwk.PostFilterResult{NominatingInfo: info}
}

// queued returns a Pod in the queue, or of a group the first one.
func queued(e fwk.QueuedEntityInfo) sched.Queued {
	q := sched.Queued{Timestamp: e.GetTimestamp(), Priority: e.GetPriority(), InitialAttemptTimestamp: e.GetInitialAttemptTimestamp(), Attempts: e.GetAttempts()}
	switch e := e.(type) {
	case interface{ GetPodInfo() fwk.PodInfo }:
		q.Pod = e.GetPodInfo().GetPod()
	case interface{ GetUnscheduledPods() []*corev1.Pod }:
		if pods := e.GetUnscheduledPods(); len(pods) > 0 {
			q.Pod = pods[0]
		}
	}
	return q
}

//minor:since 1.36
func groupOf(g fwk.PodGroupInfo) schedmsg.PodGroup {
	if g == nil {
		return schedmsg.PodGroup{}
	}
	return schedmsg.PodGroup{Type: string(g.GetType()), Namespace: g.GetNamespace(), Name: g.GetName(), Pods: g.GetUnscheduledPods()}
}

// trial returns a function that schedules a group on trial, nil if there is none.
//
//minor:since 1.37
func trial(ctx context.Context, try fwk.PodGroupSchedulingFunc) func() ([]schedmsg.Assignment, *sched.Status) {
	if try == nil {
		return nil
	}
	return func() ([]schedmsg.Assignment, *sched.Status) {
		assignments, s := try(ctx)
		if s.IsSuccess() {
			return assigned(assignments), nil
		}
		return assigned(assignments), sched.NewStatus(abi.Code(s.Code()), slices.Clone(s.Reasons())...)
	}
}

//minor:since 1.36
func assigned(p *fwk.PodGroupAssignments) (list []schedmsg.Assignment) {
	if p == nil {
		return nil
	}
	for _, a := range p.ProposedAssignments {
		list = append(list, schedmsg.Assignment{Pod: a.GetPod(), NodeName: a.GetNodeName()})
	}
	return list
}

// placed returns a placement, with the nodes that are proposed for the Pods.
//
//minor:since 1.36
func placed(p *fwk.PodGroupAssignments) func() (schedmsg.Placement, []schedmsg.Assignment) {
	return func() (placement schedmsg.Placement, _ []schedmsg.Assignment) {
		if p.Placement != nil {
			placement.Name = p.Name
			for _, n := range p.Nodes {
				placement.NodeNames = append(placement.NodeNames, n.Node().Name)
			}
		}
		return placement, assigned(p)
	}
}

// nominated returns the nodes that a guest nominates for the Pods of a group.
//
//minor:since 1.37
func nominated(nominations map[types.NamespacedName]string) *fwk.PodGroupPostFilterResult {
	if nominations == nil {
		return nil
	}
	result := &fwk.PodGroupPostFilterResult{NominatingInfos: map[types.NamespacedName]*fwk.NominatingInfo{}}
	for pod, node := range nominations {
		result.NominatingInfos[pod] = &fwk.NominatingInfo{NominatedNodeName: node, NominatingMode: fwk.ModeOverride}
	}
	return result
}

// generated returns the placements that a guest proposes. Without any answer the parent stays.
//
//minor:since 1.36
func generated(list []sched.Placement, s *sched.Status, parent *fwk.Placement) *fwk.GeneratePlacementsResult {
	if s != nil {
		return nil
	}
	result := &fwk.GeneratePlacementsResult{}
	if list == nil && parent != nil {
		result.Placements = []*fwk.Placement{parent}
	}
	for _, proposed := range list {
		placement := &fwk.Placement{Name: proposed.Name}
		for _, n := range proposed.Nodes {
			placement.Nodes = append(placement.Nodes, n.(fwk.NodeInfo))
		}
		result.Placements = append(result.Placements, placement)
	}
	return result
}
