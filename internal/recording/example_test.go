package recording_test

import (
	"fmt"
	"log"

	"github.com/kubewasm/kubewasm/internal/recording"
)

// A recording is read sequence by sequence, and call by call.
func ExampleOpen() {
	recorded, err := recording.Open("../replay/testdata/amd64")
	if err != nil {
		log.Fatal(err)
	}
	for _, problem := range recorded.Problems() {
		fmt.Println(problem)
	}
	for _, s := range recorded.Sequences()[:1] {
		fmt.Println("plugin", s.Version.Plugin, "on", s.Version.Arch)
		for c, err := range s.Calls() {
			if err != nil {
				log.Fatal(err)
			}
			fmt.Println(c.Number, c.Function, recording.VerdictOf(c))
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
