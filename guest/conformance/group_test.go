package conformance_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/framework"
	"github.com/kubewasm/kubewasm/sched"
)

// group is a fwk.PodGroupInfo.
type group struct {
	fwk.PodGroupInfo
	pods []*corev1.Pod
}

func (g group) GetType() fwk.EntityKeyType        { return fwk.PodGroupKeyType }
func (g group) GetNamespace() string              { return metav1.NamespaceDefault }
func (g group) GetName() string                   { return "gang" }
func (g group) GetUnscheduledPods() []*corev1.Pod { return g.pods }

// groupState is a fwk.PodGroupCycleState and a fwk.PlacementCycleState.
type groupState struct{ *framework.CycleState }

func (groupState) GetParentPlacementCycleState() fwk.PlacementCycleState { return nil }

// assignment is a fwk.ProposedAssignment.
type assignment struct {
	fwk.ProposedAssignment
	pod  *corev1.Pod
	node string
}

func (a assignment) GetPod() *corev1.Pod { return a.pod }
func (a assignment) GetNodeName() string { return a.node }

func assignmentsOf(list []Assignment) *fwk.PodGroupAssignments {
	assignments := &fwk.PodGroupAssignments{}
	for _, a := range list {
		assignments.ProposedAssignments = append(assignments.ProposedAssignments, assignment{pod: podOf(Object{Name: a.Pod}), node: a.Node})
	}
	return assignments
}

func TestGroup(t *testing.T) {
	run(t, "group", func(t *testing.T, rt *host.Runtime, guest string) {
		for _, c := range readCases(t).Group {
			t.Run(c.Name, func(t *testing.T) {
				handle := &framework.Handle{Nodes: nodesOf(c.Nodes)}
				p := load(t, rt, guest, handle, 2, "") // A trial needs an instance of its own.
				defer p.Close(context.Background())
				g := group{}
				for _, pod := range c.Pods {
					g.pods = append(g.pods, podOf(pod))
				}
				askGroup(t, p, handle, g, c)
			})
		}
	})
}

func askGroup(t *testing.T, p sched.Plugin, handle *framework.Handle, g group, c GroupCase) {
	ctx, state := t.Context(), groupState{framework.NewCycleState()}
	all := &fwk.Placement{}
	for _, n := range handle.Nodes {
		all.Nodes = append(all.Nodes, n)
	}
	switch {
	case c.PostFilter != nil:
		tried := 0
		result, status := p.(fwk.PodGroupPostFilterPlugin).PodGroupPostFilter(ctx, state, g, func(context.Context) (*fwk.PodGroupAssignments, *fwk.Status) {
			tried++
			if c.PostFilter.Trial == nil {
				return nil, fwk.NewStatus(fwk.Error, "there must be no trial")
			}
			if diff := cmp.Diff(c.PostFilter.Trial.Without, missing(c.Nodes, handle.Nodes)); diff != "" {
				t.Errorf("Pods that are gone (-want +got):\n%s", diff)
			}
			return assignmentsOf(c.PostFilter.Trial.Assignments), frameworkStatus(c.PostFilter.Trial.Status)
		})
		if (tried != 0) != (c.PostFilter.Trial != nil) {
			t.Errorf("the guest has tried the group %d times", tried)
		}
		checkStatus(t, status, c.PostFilter.Want)
		want, got := map[types.NamespacedName]*fwk.NominatingInfo{}, map[types.NamespacedName]*fwk.NominatingInfo{}
		for _, a := range c.PostFilter.Nominations {
			want[types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: a.Pod}] = &fwk.NominatingInfo{NominatedNodeName: a.Node, NominatingMode: fwk.ModeOverride}
		}
		if result != nil {
			got = result.NominatingInfos
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("nominations (-want +got):\n%s", diff)
		}
	case c.Generate != nil:
		result, status := p.(fwk.PlacementGeneratePlugin).GeneratePlacements(ctx, state, g, all)
		checkStatus(t, status, c.Generate.Want)
		var got []Placement
		if result != nil {
			for _, p := range result.Placements {
				placement := Placement{Name: p.Name}
				for _, n := range p.Nodes {
					placement.Nodes = append(placement.Nodes, n.Node().Name)
				}
				got = append(got, placement)
			}
		}
		if diff := cmp.Diff(c.Generate.Placements, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("placements (-want +got):\n%s", diff)
		}
	case c.Score != nil:
		assignments := assignmentsOf(c.Score.Assignments)
		assignments.Placement = &fwk.Placement{Name: c.Score.Name, Nodes: all.Nodes}
		score, status := p.(fwk.PlacementScorePlugin).ScorePlacement(ctx, state, g, assignments)
		if checkStatus(t, status, c.Score.Want); score != c.Score.Score {
			t.Errorf("score %d, want %d", score, c.Score.Score)
		}
	case c.NormalizeScore != nil:
		var scores []fwk.PlacementScore
		for _, s := range c.NormalizeScore.Scores {
			scores = append(scores, fwk.PlacementScore{Placement: &fwk.Placement{Name: s.Name}, Score: s.Score})
		}
		for i := range c.NormalizeScore.More {
			scores = append(scores, fwk.PlacementScore{Placement: &fwk.Placement{Name: fmt.Sprintf("%s-%d", strings.Repeat("rack", 20), i)}})
		}
		checkStatus(t, p.(fwk.PlacementScorePlugin).PlacementScoreExtensions().NormalizePlacementScore(ctx, state, g, scores), Status{})
		var got []Score
		for i, s := range scores {
			if i < len(c.NormalizeScore.Scores) {
				got = append(got, Score{Name: s.Placement.Name, Score: s.Score})
			} else if s.Score != 100 {
				t.Fatalf("%s has the score %d, want 100", s.Placement.Name, s.Score)
			}
		}
		if diff := cmp.Diff(c.NormalizeScore.Want, got); diff != "" {
			t.Errorf("scores (-want +got):\n%s", diff)
		}
	default:
		t.Fatal("the case asks nothing")
	}
}

// missing returns the names of the Pods that nodes had and have no more.
func missing(before []Node, now []*framework.NodeInfo) (names []string) {
	runs := map[string]bool{}
	for _, n := range now {
		for _, pod := range n.GetPods() {
			runs[pod.GetPod().Name] = true
		}
	}
	for _, n := range before {
		for _, pod := range n.Pods {
			if !runs[pod.Name] {
				names = append(names, pod.Name)
			}
		}
	}
	return names
}
