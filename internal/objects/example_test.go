package objects_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/internal/objects"
)

// An object has another version when a field changes that a guest has read.
func ExampleStore() {
	store := objects.NewStore()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	for _, zone := range []string{"a", "a", "b"} {
		node = node.DeepCopy() // As informers do, which never change an object.
		node.ResourceVersion += "1"
		node.Labels = map[string]string{"zone": zone}
		object := store.Node(node)
		value, _ := object.Entry(objects.LabelsField, "zone")
		fmt.Println("slot", object.Ref.Slot(), "version", object.Ref.Version(), "zone", value)
	}
	// Output:
	// slot 0 version 1 zone a
	// slot 0 version 1 zone a
	// slot 0 version 2 zone b
}
