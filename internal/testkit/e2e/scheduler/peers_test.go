package scheduler

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/internal/testkit/e2e/guests"
)

// peers are guests of kube-scheduler-wasm-extension, in both forms of its ABI. Each has a
// profile of its name.
func peers(t *testing.T) []plugin {
	const dir = "../../../../sched/testdata/peer/"
	return []plugin{
		{name: "peer-first", file: guests.File(t, dir+"first.wasm")},
		{name: "peer-keeps", file: guests.File(t, dir+"keeps.wasm")},
		{name: "peer-present", file: guests.File(t, dir+"present.wasm"), args: ", grants: [waiting-pods, events]"},
	}
}

func testPeers(t *testing.T, s *suite) {
	add := func(scheduler, name string, change func(*corev1.Pod)) {
		s.addPod(t, scheduler, name, func(p *corev1.Pod) {
			p.Spec.SchedulerName = scheduler
			if change != nil {
				change(p)
			}
		})
	}
	large := strings.Repeat("x", 16<<10)
	t.Run("first lets a Pod onto a Node that has more bytes", func(t *testing.T) {
		s.addNode(t, "peer-first", "peer-small", nil)
		s.addNode(t, "peer-first", "peer-large", nil)
		patch := []byte(`{"metadata":{"annotations":{"size":"` + large + `"}}}`)
		if _, err := s.Client.CoreV1().Nodes().Patch(t.Context(), "peer-large", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		add("peer-first", "fits", func(p *corev1.Pod) { p.Annotations["size"] = large[:8<<10] })
		if got := s.bound(t, "fits"); got != "peer-large" {
			t.Errorf("the Pod is on %s", got)
		}
		add("peer-first", "larger", func(p *corev1.Pod) { p.Annotations["size"] = large + large })
		if got := s.refused(t, "larger"); !strings.Contains(got, "the Pod is larger than the node") {
			t.Errorf("got %s", got)
		}
	})
	t.Run("keeps refuses with what it kept of the cycle", func(t *testing.T) {
		s.addNode(t, "peer-keeps", "peer-keeps", nil)
		add("peer-keeps", "kept", nil)
		// The first letters of the name by PreFilter, and one for Filter.
		if got := s.refused(t, "kept"); !strings.Contains(got, "kef") {
			t.Errorf("got %s", got)
		}
	})
	t.Run("present nominates the Node that it names", func(t *testing.T) {
		// It asks for the Nodes n1 and b, and nominates n7.
		s.addNode(t, "peer-present", "n1", nil)
		s.addNode(t, "peer-present", "n7", nil)
		add("peer-present", "nominated", nil)
		s.until(t, "nominated", "nominated", func(p *corev1.Pod) bool { return p.Status.NominatedNodeName == "n7" })
		if got := s.refused(t, "nominated"); !strings.Contains(got, " n1") {
			t.Errorf("got %s", got)
		}
	})
}
