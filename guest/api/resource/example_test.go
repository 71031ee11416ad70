package resource_test

import (
	"fmt"

	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/api/resource"
)

func Example() {
	pod := core.PodFromJSON([]byte(`{"spec": {"containers": [
		{"name": "web", "resources": {"requests": {"cpu": "250m", "memory": "1536Mi"}}},
		{"name": "log", "resources": {"requests": {"cpu": 1, "memory": "512Mi"}}}
	]}}`))
	var cpu, memory resource.Quantity
	for _, c := range pod.Spec().Containers() {
		requests := c.Resources().Requests()
		cpu.Add(requests.Get("cpu"))
		memory.Add(requests.Get("memory"))
	}
	fmt.Println(cpu, cpu.MilliValue(), memory, memory.Value())
	// Output: 1250m 1250 2Gi 2147483648
}
