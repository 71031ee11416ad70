package intstr_test

import (
	"fmt"

	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/api/intstr"
)

func Example() {
	service := core.ServiceFromJSON([]byte(`{"spec": {"ports": [{"targetPort": 8080}, {"targetPort": "http"}]}}`))
	for _, port := range service.Spec().Ports() {
		target := port.TargetPort()
		fmt.Println(target.Type == intstr.String, target)
	}
	// Output:
	// false 8080
	// true http
}
