package kube137test_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/sched/kube137/kube137test"
)

// A snapshot has a node with a Pod.
func Example() {
	node := kube137test.NewNodeInfo(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}},
	)
	handle := &kube137test.Handle{Nodes: []*kube137test.NodeInfo{node}}
	info, err := handle.SnapshotSharedLister().NodeInfos().Get("n1")
	if err != nil {
		panic(err)
	}
	fmt.Println(info.Node().Name, len(info.GetPods()))
	// Output: n1 1
}
