// The group guest of the conformance suite, by the SDK.
package main

import (
	"slices"
	"strconv"
	"strings"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
)

//kubewasm:name conformance-group

type guest struct{}

func (guest) PodGroupPostFilter(_ sched.CycleState, group sched.PodGroupInfo) ([]sched.Nomination, *sched.Status) {
	var evicted []string
	var nominations []sched.Nomination
	for _, pod := range group.UnscheduledPods() {
		m := pod.Metadata()
		if uid, ok := m.Labels().Lookup("evict"); ok {
			evicted = append(evicted, uid)
		}
		if node, ok := m.Labels().Lookup("node"); ok {
			nominations = append(nominations, sched.Nomination{Namespace: m.Namespace(), Name: m.Name(), NodeName: node})
		}
	}
	if len(evicted) != 0 {
		assignments, status := sched.TryPodGroup(evicted...)
		if !status.IsSuccess() {
			return nil, sched.Unschedulable("trial: ", strconv.Itoa(int(status.Code())), " ", status.Reason())
		}
		return assignments, nil
	}
	if len(nominations) == 0 {
		return nil, sched.Unschedulable(group.Type, " ", group.Namespace, "/", group.Name, " of ", strconv.Itoa(group.NumUnscheduledPods()), " Pods is stuck")
	}
	return nominations, nil
}

func (guest) GeneratePlacements(_ sched.CycleState, _ sched.PodGroupInfo, parent []string) ([]sched.Placement, *sched.Status) {
	var racks []sched.Placement
	for _, name := range parent {
		node, ok := sched.SnapshotNode(name)
		if !ok {
			continue
		}
		rack, ok := node.Node().Metadata().Labels().Lookup("rack")
		if !ok {
			continue
		}
		i := slices.IndexFunc(racks, func(p sched.Placement) bool { return p.Name == rack })
		if i < 0 {
			i = len(racks)
			racks = append(racks, sched.Placement{Name: rack})
		}
		racks[i].NodeNames = append(racks[i].NodeNames, name)
	}
	if len(racks) == 0 {
		return nil, sched.Unschedulable("no racks")
	}
	return racks, nil
}

func (guest) ScorePlacement(_ sched.CycleState, _ sched.PodGroupInfo, placement sched.Placement) (int64, *sched.Status) {
	if placement.Name == "odd" {
		return 0, sched.NewStatus(abi.Error, "odd")
	}
	score := -int64(len(placement.NodeNames))
	for _, a := range placement.Assignments {
		if slices.Contains(placement.NodeNames, a.NodeName) {
			score += 10
		}
	}
	if placement.Name == "huge" {
		score <<= 40
	}
	return score, nil
}

func (guest) NormalizePlacementScore(_ sched.CycleState, _ sched.PodGroupInfo, scores sched.NodeScoreList) *sched.Status {
	highest := slices.MaxFunc(scores, func(a, b sched.NodeScore) int { return int(a.Score - b.Score) }).Score
	for i := range scores {
		scores[i].Score = max(scores[i].Score+100-highest, 0)
	}
	return nil
}

func (guest) PotentialVictims(_ sched.CycleState, pod core.Pod, node sched.NodeInfo) (victims []core.Pod, _ *sched.Status) {
	if _, ok := pod.Metadata().Labels().Lookup("nominated"); ok {
		var names []string
		for _, p := range node.NominatedPods() {
			names = append(names, p.Metadata().Name())
		}
		return nil, sched.Unschedulable("nominated: ", strings.Join(names, ","))
	}
	for _, p := range node.Pods() {
		if _, kept := p.Metadata().Labels().Lookup("keep"); !kept {
			victims = append(victims, p)
		}
	}
	return victims, nil
}

func init() { sched.Register(guest{}) }

func main() {}
