package cluster_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/internal/testkit/e2e/cluster"
	"github.com/kubewasm/kubewasm/internal/testkit/e2e/minor"
)

func TestStart(t *testing.T) {
	c := cluster.Start(t, nil)
	version, err := c.Client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if got := version.EmulationMajor + "." + version.EmulationMinor; got != minor.Name {
		t.Errorf("the API server is of minor %s, %s; want %s", got, version.GitVersion, minor.Name)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	got, err := c.Client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Spec.Taints) != 0 {
		t.Errorf("a new node has the taints %v", got.Spec.Taints)
	}
}
