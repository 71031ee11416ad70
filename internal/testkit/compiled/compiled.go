// Package compiled lets the tests of all packages compile each guest once.
package compiled

import (
	"os"
	"path/filepath"
	"reflect"
	"runtime"

	"github.com/tetratelabs/wazero"

	"github.com/kubewasm/kubewasm/host"
)

// maxBytes is the most that the files of the cache have together. The guests of all tests
// take 2 GB.
const maxBytes = 8 << 30

// Config returns a configuration with a cache in the user's cache directory, which tests with
// the race detector and those of nested modules share. Under the race detector the compiler
// takes ten seconds for a Go guest. It is for tests that are not about compiling.
func Config() host.RuntimeConfig {
	dir, err := os.UserCacheDir()
	if err != nil { // In a virtual machine there may be no home.
		dir = os.TempDir()
	}
	return host.RuntimeConfig{CacheDir: filepath.Join(dir, "kubewasm", "tests", engine()), CacheBytes: maxBytes}
}

// engine names wazero with its version. The binary of a test does not have it, and wazero then
// takes machine code of another version for its own; the directory of the source does.
func engine() string {
	pc := reflect.ValueOf(wazero.NewRuntime).Pointer()
	file, _ := runtime.FuncForPC(pc).FileLine(pc)
	return filepath.Base(filepath.Dir(file))
}
