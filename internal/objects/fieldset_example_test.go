package objects_test

import (
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/internal/objects"
)

// Of a Node those fields are encoded that a guest declares.
func ExampleParseFieldSet() {
	fields, err := objects.ParseFieldSet([]string{"node.metadata.labels[zone]", "node.spec.taints"})
	if err != nil {
		log.Fatal(err)
	}
	nodes := fields.Node()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"zone": "a", "rack": "7"}}}
	var decoded corev1.Node
	if err := decoded.Unmarshal(nodes.Append(nil, node)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(decoded.Name, decoded.Labels)
	_, err = objects.ParseFieldSet([]string{"node.spec.taint"})
	fmt.Println(err)
	// Output:
	// n1 map[zone:a]
	// field path "node.spec.taint": NodeSpec has no field "taint"; did you mean "taints"?
}
