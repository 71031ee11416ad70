package admissionmsg_test

import (
	"fmt"
	"log"

	"github.com/kubewasm/kubewasm/codec/admissionmsg"
)

// What a guest says beside its verdict arrives as the bytes of a Result.
func ExampleParseResult() {
	// warnings (field 3) of three bytes.
	result, err := admissionmsg.ParseResult([]byte{0x1a, 0x03, 'o', 'l', 'd'})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Warnings)
	// Output: [old]
}
