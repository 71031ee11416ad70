package hookmsg_test

import (
	"fmt"
	"log"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// What a guest decides arrives as the bytes of a Decision.
func ExampleParseDecision() {
	// resources (field 1) of two bytes: cpu_shares (field 1) = 2.
	decision, err := hookmsg.ParseDecision([]byte{0x0a, 0x02, 0x08, 0x02})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(*decision.Resources.CPUShares, decision.Resources.CFSQuotaUS == nil)

	_, err = hookmsg.ParseDecision([]byte{0x0a, 0x03, 0x08, 0x02})
	fmt.Println(err != nil)
	// Output:
	// 2 true
	// true
}
