package confidential_test

import (
	"fmt"

	"github.com/kubewasm/kubewasm/host/confidential"
)

// A webhook logs what a policy says, as far as it may outlive the request.
func Example() {
	rule := &confidential.Rule{Fields: []string{"pin"}}
	for _, object := range []string{
		`{"kind":"Pod","spec":{"containers":[{"env":[{"name":"DSN","value":"postgres://shop:hunter2@db"}]}]}}`,
		`{"kind":"Account","spec":{"pin":"1234"}}`,
	} {
		var stain confidential.Stain
		rule.Find("", "", []byte(object), &stain)
		fmt.Println(stain.Text("may not use postgres://shop:hunter2@db"))
	}
	// Output:
	// may not use xxxxxxxxxxxxxxxxxxxxxxxxxx
	// (withheld: confidential data)
}
