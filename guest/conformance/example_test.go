package conformance_test

import (
	"fmt"

	"github.com/kubewasm/kubewasm/guest/conformance"
)

// A host makes the calls of a case in order, and compares.
func ExampleCases() {
	for _, c := range conformance.Cases().Hook[2:4] {
		fmt.Println(c.Name+":", c.Pod.Labels["tier"], "must decide", *c.CPUShares, "CPU shares")
	}
	// Output:
	// shares: batch must decide 128 CPU shares
	// a quota: idle must decide 2 CPU shares
}
