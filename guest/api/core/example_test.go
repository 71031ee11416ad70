package core_test

import (
	"fmt"

	"github.com/kubewasm/kubewasm/guest/api/core"
)

func Example() {
	node := core.NodeFromJSON([]byte(`{"spec": {"taints": [
		{"key": "example.com/maintenance", "effect": "PreferNoSchedule"},
		{"key": "example.com/dedicated", "value": "shop", "effect": "NoSchedule"}
	]}}`))
	pod := core.PodFromJSON([]byte(`{"spec": {
		"tolerations": [{"key": "example.com/dedicated", "value": "web"}],
		"containers": [{"name": "web", "image": "registry.example.com/web:1.4.2"}]
	}}`))
	if taint, found := core.FindUntolerated(node.Spec().Taints(), pod.Spec().Tolerations()); found {
		fmt.Println("not on this node:", taint)
	}
	for _, c := range pod.Spec().Containers() {
		fmt.Println(c.Name(), c.Image())
	}
	// Output:
	// not on this node: example.com/dedicated=shop:NoSchedule
	// web registry.example.com/web:1.4.2
}
