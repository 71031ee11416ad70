package objects_test

import (
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/internal/objects"
)

// An object is encoded once for each of its versions.
func ExampleTable() {
	var table objects.Table
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	for _, zone := range []string{"a", "a", "b"} {
		node = node.DeepCopy() // As informers do, which never change an object.
		node.Labels = map[string]string{"zone": zone}
		object, err := table.Node(node)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("slot", object.Ref.Slot(), "version", object.Ref.Version())
	}
	// Output:
	// slot 0 version 1
	// slot 0 version 1
	// slot 0 version 2
}

// With a projection, only a change of what is read is another version.
func ExampleParseProjection() {
	projection, err := objects.ParseProjection([]string{"node.metadata.labels", "node.spec.taints"})
	if err != nil {
		log.Fatal(err)
	}
	var table objects.Table
	table.Project(projection, false)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	for _, kubelet := range []string{"v1.37.0", "v1.37.1"} {
		node = node.DeepCopy()
		node.Status.NodeInfo.KubeletVersion = kubelet
		object, err := table.Node(node)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("version", object.Ref.Version())
	}
	_, err = objects.ParseProjection([]string{"node.spec.taint"})
	fmt.Println(err)
	// Output:
	// version 1
	// version 1
	// field path "node.spec.taint": NodeSpec has no field "taint"; did you mean "taints"?
}
