package kube137_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/sched/kube137/kube137test"
)

// crowd is a scheduler whose one node has two Pods, of which one leaves.
func crowd(w *world) (trial fwk.PodGroupSchedulingFunc) {
	staying, leaving := noted("staying"), noted("leaving", "leaving", "soon")
	staying.Spec.NodeName, leaving.Spec.NodeName = "n1", "n1"
	w.handle.Nodes = []*kube137test.NodeInfo{kube137test.NewNodeInfo(zoned("n1", "a"), staying, leaving)}
	// A node has room for two Pods, and the plugin is asked too, as all are.
	return func(context.Context) (*fwk.PodGroupAssignments, *fwk.Status) {
		list := &fwk.PodGroupAssignments{}
		node := w.handle.Nodes[0]
		for _, pod := range []*corev1.Pod{noted("a"), noted("b", "filter", "trace")} {
			assigned := assignment{pod: pod}
			if got := w.filter(w.start(pod), pod, node); got == "Success" && len(node.GetPods()) < 2 {
				assigned.node = "n1"
			} else if strings.Contains(got, "Error") {
				return nil, fwk.NewStatus(fwk.Error, got)
			}
			list.ProposedAssignments = append(list.ProposedAssignments, assigned)
		}
		if list.ProposedAssignments[0].GetNodeName() == "" {
			return list, fwk.NewStatus(fwk.Unschedulable, "the node is full")
		}
		return list, nil
	}
}

// TestTryPodGroup holds that a guest can try a group out while it runs itself, and
// that the snapshot is as before afterwards.
func TestTryPodGroup(t *testing.T) {
	w := newWorld(t, 2, "")
	trial := crowd(w)
	before := w.handle.Nodes[0]
	post, status := w.p.(fwk.PodGroupPostFilterPlugin).PodGroupPostFilter(t.Context(), groupState{kube137test.NewCycleState()}, group{name: "crowded"}, trial)
	if !status.IsSuccess() {
		t.Fatal(text(status))
	}
	want := map[types.NamespacedName]*fwk.NominatingInfo{{Namespace: "shop", Name: "a"}: {NominatedNodeName: "n1", NominatingMode: fwk.ModeOverride}}
	if diff := cmp.Diff(want, post.NominatingInfos); diff != "" {
		t.Errorf("nominations (-want +got):\n%s", diff)
	}
	if w.handle.Nodes[0] != before || len(before.GetPods()) != 2 {
		t.Error("the snapshot has changed")
	}
}

func TestTrialsThatCannotBe(t *testing.T) {
	for name, test := range map[string]struct {
		instances   int
		group, want string
		without     bool
	}{
		"with a single instance":           {1, "crowded", "needs at least two instances", false},
		"without a Pod that is nowhere":    {2, "haunted", `no Pod with the UID "nobody" runs on a node`, false},
		"without the scheduler's function": {2, "crowded", "without a scheduler", true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, test.instances, "")
			trial := crowd(w)
			if test.without {
				trial = nil
			}
			_, status := w.p.(fwk.PodGroupPostFilterPlugin).PodGroupPostFilter(t.Context(), groupState{kube137test.NewCycleState()}, group{name: test.group}, trial)
			if !status.IsError() || !strings.Contains(status.Message(), test.want) {
				t.Errorf("got %s, want an error with %q", text(status), test.want)
			}
		})
	}
}
