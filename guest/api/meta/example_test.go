package meta_test

import (
	"fmt"

	"github.com/kubewasm/kubewasm/guest/api/core"
)

func Example() {
	pod := core.PodFromJSON([]byte(`{"metadata": {"name": "web-0", "labels": {"app": "web", "tier": "front"}}}`))
	labels := pod.Metadata().Labels()
	fmt.Println(pod.Metadata().Name(), labels.Get("app"), labels.Has("zone"))
	for key, value := range labels.All {
		fmt.Println(key, "=", value)
	}
	// Output:
	// web-0 web false
	// app = web
	// tier = front
}
