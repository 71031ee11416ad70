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

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/schedmsg"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/framework"
	"github.com/kubewasm/kubewasm/sched"
)

func assignmentsOf(list []Assignment) (assignments []schedmsg.Assignment) {
	for _, a := range list {
		assignments = append(assignments, schedmsg.Assignment{Pod: podOf(Object{Name: a.Pod}), NodeName: a.Node})
	}
	return assignments
}

func TestGroup(t *testing.T) { run(t, "group", onCases(groupCases)) }

func groupCases(t *testing.T, rt *host.Runtime, guest string, s *Suite) {
	for _, c := range s.Group {
		t.Run(c.Name, func(t *testing.T) {
			handle := &framework.Handle{Snapshot: nodesOf(c.Nodes), Informers: framework.NewInformers()}
			p := load(t, rt, guest, handle, 2, `, "grants": ["preempt-any"]`) // A trial needs an instance of its own.
			defer p.Close(context.Background())
			g := schedmsg.PodGroup{Type: "podgroup", Namespace: metav1.NamespaceDefault, Name: "gang"}
			for _, pod := range c.Pods {
				g.Pods = append(g.Pods, podOf(pod))
			}
			askGroup(t, p, handle, g, c)
		})
	}
}

func askGroup(t *testing.T, p *sched.Plugin, handle *framework.Handle, g schedmsg.PodGroup, c GroupCase) {
	state := p.Resume(nil)
	switch {
	case c.PostFilter != nil:
		tried := 0
		got, status := p.PodGroupPostFilter(state, g, func() ([]schedmsg.Assignment, *sched.Status) {
			tried++
			if c.PostFilter.Trial == nil {
				return nil, sched.NewStatus(abi.Error, "there must be no trial")
			}
			if diff := cmp.Diff(c.PostFilter.Trial.Without, missing(c.Nodes, handle.Snapshot)); diff != "" {
				t.Errorf("Pods that are gone (-want +got):\n%s", diff)
			}
			return assignmentsOf(c.PostFilter.Trial.Assignments), sched.NewStatus(codeOf(c.PostFilter.Trial.Status), c.PostFilter.Trial.Status.Reason)
		})
		if (tried != 0) != (c.PostFilter.Trial != nil) {
			t.Errorf("the guest has tried the group %d times", tried)
		}
		checkStatus(t, status, c.PostFilter.Want)
		want := map[types.NamespacedName]string{}
		for _, a := range c.PostFilter.Nominations {
			want[types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: a.Pod}] = a.Node
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("nominations (-want +got):\n%s", diff)
		}
	case c.Generate != nil:
		placements, status := p.GeneratePlacements(state, g, handle.Snapshot)
		checkStatus(t, status, c.Generate.Want)
		var got []Placement
		for _, p := range placements {
			placement := Placement{Name: p.Name}
			for _, n := range p.Nodes {
				placement.Nodes = append(placement.Nodes, n.Node().Name)
			}
			got = append(got, placement)
		}
		if diff := cmp.Diff(c.Generate.Placements, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("placements (-want +got):\n%s", diff)
		}
	case c.Score != nil:
		score, status := p.ScorePlacement(state, g, func() (schedmsg.Placement, []schedmsg.Assignment) {
			placement := schedmsg.Placement{Name: c.Score.Name}
			for _, n := range handle.Snapshot {
				placement.NodeNames = append(placement.NodeNames, n.Node().Name)
			}
			return placement, assignmentsOf(c.Score.Assignments)
		})
		if checkStatus(t, status, c.Score.Want); score != c.Score.Score {
			t.Errorf("score %d, want %d", score, c.Score.Score)
		}
	case c.NormalizeScore != nil:
		var scores framework.Scores
		for _, s := range c.NormalizeScore.Scores {
			scores = append(scores, framework.Score{Name: s.Name, Score: s.Score})
		}
		for i := range c.NormalizeScore.More {
			scores = append(scores, framework.Score{Name: fmt.Sprintf("%s-%d", strings.Repeat("rack", 20), i)})
		}
		checkStatus(t, p.NormalizePlacementScore(state, g, scores), Status{})
		var got []Score
		for i, s := range scores {
			if i < len(c.NormalizeScore.Scores) {
				got = append(got, Score{Name: s.Name, Score: s.Score})
			} else if s.Score != 100 {
				t.Fatalf("%s has the score %d, want 100", s.Name, s.Score)
			}
		}
		if diff := cmp.Diff(c.NormalizeScore.Want, got); diff != "" {
			t.Errorf("scores (-want +got):\n%s", diff)
		}
	case c.Victims != nil:
		n := handle.Snapshot[0]
		handle.Nominations = map[string][]*corev1.Pod{}
		for _, pod := range c.Victims.Nominated {
			handle.Nominations[n.Node().Name] = append(handle.Nominations[n.Node().Name], podOf(pod))
		}
		victims, status := p.PotentialVictims(p.Begin(podOf(c.Victims.Pod)).Clone(), n)
		checkStatus(t, status, c.Victims.Want)
		var got []string
		for _, pod := range victims {
			got = append(got, pod.Name)
		}
		if diff := cmp.Diff(c.Victims.Victims, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("victims (-want +got):\n%s", diff)
		}
	default:
		t.Fatal("the case asks nothing")
	}
}

// missing returns the names of the Pods that nodes had and have no more.
func missing(before []Node, now framework.Nodes) (names []string) {
	runs := map[string]bool{}
	for _, n := range now {
		for _, pod := range n.Pods {
			runs[pod.Name] = true
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
