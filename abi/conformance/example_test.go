package conformance_test

import (
	"fmt"
	"log"

	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/abi/conformance"
)

// A host makes the calls of a case in order, and compares.
func ExampleCases() {
	var suite struct {
		Hook []struct {
			Name      string
			Pod       struct{ Labels map[string]string }
			CPUShares int64
		}
	}
	if err := yaml.Unmarshal(conformance.Cases(), &suite); err != nil {
		log.Fatal(err)
	}
	for _, c := range suite.Hook[2:4] {
		fmt.Println(c.Name+":", c.Pod.Labels["tier"], "must decide", c.CPUShares, "CPU shares")
	}
	// Output:
	// shares: batch must decide 128 CPU shares
	// a quota: idle must decide 2 CPU shares
}
