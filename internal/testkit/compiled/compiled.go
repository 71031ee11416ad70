// Package compiled lets the tests of all packages compile each guest once.
package compiled

import (
	"os"
	"path/filepath"

	"github.com/kubewasm/kubewasm/host"
)

// Config returns a configuration with the cache that the command kubewasm and the tests of plugins
// use, which tests with the race detector and those of nested modules share. Under the race detector
// the compiler takes ten seconds for a Go guest. It is for tests that are not about compiling.
func Config() host.RuntimeConfig {
	dir, err := os.UserCacheDir()
	if err != nil { // In a virtual machine there may be no home.
		dir = os.TempDir()
	}
	return host.RuntimeConfig{CacheDir: filepath.Join(dir, "kubewasm", "compiled")}
}
