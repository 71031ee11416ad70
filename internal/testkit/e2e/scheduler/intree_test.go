package scheduler

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/internal/testkit/e2e/guests"
)

// inTreeProfile is the profile in which guests take the place of inTree, plugins of the
// scheduler.
const inTreeProfile = "in-tree-guests"

var inTree = []string{"NodeName", "NodePorts", "TaintToleration", "NodeAffinity", "NodeResourcesFit", "ImageLocality"}

// weights are those of the scheduler's defaults.
var weights = map[string]int{"TaintToleration": 3, "NodeAffinity": 2, "NodeResourcesFit": 1, "ImageLocality": 1}

// inTreeGuests are the guests that internal/testkit/e2e/differential compares with the plugins.
func inTreeGuests(t *testing.T) (list []plugin) {
	for _, name := range inTree {
		guest := strings.ToLower(name)
		list = append(list, plugin{name: "guest-" + guest, file: guests.File(t, "../differential/testdata/"+guest), weight: weights[name]})
	}
	return list
}

// testInTree schedules Pods by the guests alone: the scheduler's plugins that would decide the
// same are not in the profile.
func testInTree(t *testing.T, s *suite) {
	add := func(name string, change func(*corev1.Pod)) {
		s.addPod(t, "intree", name, func(p *corev1.Pod) {
			p.Spec.SchedulerName = inTreeProfile
			if change != nil {
				change(p)
			}
		})
	}
	s.addNode(t, "intree", "intree-plain", nil)
	s.addNode(t, "intree", "intree-ssd", nil, "disk", "ssd")
	s.addNode(t, "intree", "intree-tainted", nil)
	node, err := s.Client.CoreV1().Nodes().Get(t.Context(), "intree-tainted", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Spec.Taints = []corev1.Taint{{Key: "only", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	if _, err := s.Client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	t.Run("TaintToleration and NodeAffinity choose", func(t *testing.T) {
		add("prefers-ssd", func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 100, Preference: corev1.NodeSelectorTerm{
					MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "disk", Operator: corev1.NodeSelectorOpIn, Values: []string{"ssd"}}},
				}}},
			}}
		})
		if got := s.bound(t, "prefers-ssd"); got != "intree-ssd" {
			t.Errorf("the Pod is on %s", got)
		}
	})
	t.Run("NodePorts takes a port once", func(t *testing.T) {
		on := map[string]bool{}
		for i := range 2 {
			name := fmt.Sprint("port-", i)
			add(name, func(p *corev1.Pod) {
				p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080}}
			})
			on[s.bound(t, name)] = true
		}
		if len(on) != 2 || on["intree-tainted"] {
			t.Errorf("the Pods with the port are on %v", on)
		}
	})
	t.Run("a Pod is refused with the reasons of the plugins", func(t *testing.T) {
		add("too-large", func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080}}
		})
		message := s.refused(t, "too-large")
		for _, want := range []string{"didn't have free ports for the requested pod ports", "untolerated taint"} {
			if !strings.Contains(message, want) {
				t.Errorf("got %s, want %s", message, want)
			}
		}
	})
	t.Run("preemption makes room as NodeResourcesFit counts it", func(t *testing.T) {
		large := func(p *corev1.Pod) {
			p.Spec.NodeSelector = map[string]string{"of": "intree-full"}
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("40")}
		}
		s.addNode(t, "intree-full", "intree-full", nil)
		add("low", large)
		s.bound(t, "low")
		add("waits", large)
		if got := s.refused(t, "waits"); !strings.Contains(got, "Insufficient cpu") {
			t.Errorf("got %s", got)
		}
		add("high", func(p *corev1.Pod) {
			large(p)
			p.Spec.PriorityClassName = "high"
		})
		if got := s.bound(t, "high"); got != "intree-full" {
			t.Errorf("the Pod is on %s", got)
		}
	})
}
