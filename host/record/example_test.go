package record_test

import (
	"bytes"
	"fmt"

	"github.com/kubewasm/kubewasm/host/record"
)

// A program masks what its own objects hold, before a call is written.
func Example() {
	cfg := record.Config{
		Path: "/var/lib/kubewasm/recording",
		Only: record.Denials,
		Redact: func(_, _ string, data []byte) {
			secret := []byte("acct-")
			for i := bytes.Index(data, secret); i >= 0; i = bytes.Index(data, secret) {
				copy(data[i:], "xxxxx")
			}
		},
	}
	data := []byte("owner: acct-17")
	cfg.Redact("billing", "validate", data)
	fmt.Println(string(data), cfg.Check())
	// Output: owner: xxxxx17 []
}
