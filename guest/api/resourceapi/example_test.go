package resourceapi_test

import (
	"fmt"

	"github.com/kubewasm/kubewasm/guest/api/resourceapi"
)

func Example() {
	slice := resourceapi.ResourceSliceFromJSON([]byte(`{"spec": {"driver": "gpu.example.com", "devices": [{
		"name": "gpu-0", "attributes": {"model": {"string": "A100"}, "index": {"int": 0}}, "capacity": {"memory": {"value": "80Gi"}}
	}]}}`))
	for _, device := range slice.Spec().Devices() {
		model, index := device.Attributes().Get("model"), device.Attributes().Get("index")
		fmt.Println(device.Name(), model.StringValue(), index.HasIntValue(), device.Capacity().Get("memory").Value())
	}
	// Output: gpu-0 A100 true 80Gi
}
