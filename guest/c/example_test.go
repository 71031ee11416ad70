package c_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/kubewasm/kubewasm/guest/c"
)

// A build system that is not kubewasm build passes the directory to clang with -I.
func ExampleWriteHeaders() {
	dir, err := os.MkdirTemp("", "include")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := c.WriteHeaders(dir); err != nil {
		log.Fatal(err)
	}
	_, err = os.Stat(filepath.Join(dir, "kubewasm.h"))
	fmt.Println(err == nil)
	// Output: true
}
