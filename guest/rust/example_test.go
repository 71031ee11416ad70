package rust_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/kubewasm/kubewasm/guest/rust"
)

func Example() {
	dir, err := os.MkdirTemp("", "guest")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	// In Cargo.toml: kubewasm = { path = "vendor/kubewasm" }
	if err := rust.WriteCrate(filepath.Join(dir, "vendor", "kubewasm")); err != nil {
		fmt.Println(err)
		return
	}
	_, err = os.Stat(filepath.Join(dir, "vendor", "kubewasm", "src", "lib.rs"))
	fmt.Println(err)
	// Output: <nil>
}
