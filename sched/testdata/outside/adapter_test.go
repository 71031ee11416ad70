package outside_test

import (
	"os"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/host"

	"example.com/outside"
)

// TestPlace runs the conformance suite's guest for schedulers, which chooses nodes by a label.
func TestPlace(t *testing.T) {
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rt.Close(t.Context()) })
	p, err := outside.Load(t.Context(), rt, "by-rack", host.File(os.Getenv("KUBEWASM_GUEST")), []byte(`{"label":"rack"}`))
	if err != nil {
		t.Fatal(err)
	}
	node := func(name, rack string) *outside.Node {
		return &outside.Node{Generation: 1, Object: &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"rack": rack}},
			Status:     corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}},
		}}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", Labels: map[string]string{"rack": "7"}}}
	for _, test := range []struct {
		name    string
		nodes   []*outside.Node
		want    string
		reasons []string
	}{
		{"the second node fits", []*outside.Node{node("n1", "6"), node("n2", "7")}, "n2", nil},
		{"no node fits", []*outside.Node{node("n3", "8"), node("n4", "")}, "", []string{"n3: want 7, got 8", "n4: want 7, got "}},
	} {
		t.Run(test.name, func(t *testing.T) {
			chosen, reasons := outside.Place(p, pod, test.nodes)
			got := ""
			if chosen != nil {
				got = chosen.Object.Name
			}
			if got != test.want || !slices.Equal(reasons, test.reasons) {
				t.Errorf("got %q, %q, want %q, %q", got, reasons, test.want, test.reasons)
			}
		})
	}
}
