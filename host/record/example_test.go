package record_test

import (
	"fmt"
	"log"

	"github.com/kubewasm/kubewasm/host/record"
)

// A recording is read sequence by sequence, and call by call.
func ExampleOpen() {
	recording, err := record.Open("../replay/testdata/amd64")
	if err != nil {
		log.Fatal(err)
	}
	for _, problem := range recording.Problems() {
		fmt.Println(problem)
	}
	for _, s := range recording.Sequences()[:1] {
		fmt.Println("plugin", s.Version.Plugin, "on", s.Version.Arch)
		for c, err := range s.Calls() {
			if err != nil {
				log.Fatal(err)
			}
			fmt.Println(c.Number, c.Function, record.VerdictOf(c))
			if c.Number == 2 {
				break
			}
		}
	}
	// Output:
	// plugin policy on amd64
	// 0 validate answered
	// 1 mutate answered
	// 2 validate denied
}
