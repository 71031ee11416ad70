package configfile_test

import (
	"fmt"
	"time"

	"github.com/kubewasm/kubewasm/host/configfile"
)

func ExampleYAML() {
	var cfg struct {
		Name     string        `json:"name"`
		Interval time.Duration `json:"interval"`
		MaxBytes int64         `json:"maxBytes"`
	}
	fmt.Println(configfile.YAML([]byte("name: zone\ninterval: 30s\nmaxBytes: 64Mi"), &cfg), cfg)
	fmt.Println(configfile.YAML([]byte("nmae: zone\ninterval: 30"), &cfg))
	// Output:
	// <nil> {zone 30s 67108864}
	// unknown field "nmae", did you mean "name"?
	// interval is the number 30, want a duration such as 100ms
}
