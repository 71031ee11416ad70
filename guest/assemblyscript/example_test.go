package assemblyscript_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/kubewasm/kubewasm/guest/assemblyscript"
)

// A build system of one's own gives the package to the compiler, beside the transform in it:
//
//	asc assembly/index.ts --path modules --transform modules/kubewasm/transform/index.js --runtime minimal
func ExampleWritePackage() {
	modules, err := os.MkdirTemp("", "modules")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(modules)
	if err := assemblyscript.WritePackage(filepath.Join(modules, "kubewasm")); err != nil {
		log.Fatal(err)
	}
	_, err = os.Stat(filepath.Join(modules, "kubewasm", "scheduler.ts"))
	fmt.Println(err)
	// Output: <nil>
}
