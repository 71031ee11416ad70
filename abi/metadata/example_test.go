package metadata_test

import (
	"fmt"
	"log"

	"github.com/kubewasm/kubewasm/abi/metadata"
)

// Any tool that can add a custom section can write metadata.
func ExampleParse() {
	m, err := metadata.Parse([]byte(`{"abi": 1, "name": "zone", "version": "1.2.0", "kinds": ["scheduler"], "reads": ["node.metadata.labels"]}`))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(m.Name, m.Version, "reads", m.Reads)
	// Output: zone 1.2.0 reads [node.metadata.labels]
}
