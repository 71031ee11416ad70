package hookmsg_test

import (
	"fmt"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// A decision changes the fields that are set, and no other.
func ExampleDecision() {
	d := hookmsg.Decision{
		Resources:     &hookmsg.Resources{CPUShares: new(int64(2))},
		ContainerEnvs: map[string]string{"GOMAXPROCS": "1"},
	}
	for field := range d.Fields().All() {
		fmt.Println(field)
	}
	// Output:
	// cpu_shares
	// container_envs
}
